"""Lists of names as users type them."""

from __future__ import annotations

import pytest

from paimon_cli.datatypes.type_text import quoted_names
from paimon_cli.errors import UsageError

NAMES = {
    "": (),
    " , ": (),
    "id": ("id",),
    " id , name,": ("id", "name"),
    "`last name`,id": ("last name", "id"),
    "id, `a,b` ,`c`": ("id", "a,b", "c"),
    '"a,b"," x "': ("a,b", " x "),
    "`a``b`": ("a`b",),
    '"a""b",```c`': ('a"b', "`c"),
    "it's,5\"": ("it's", '5"'),
    "日 本": ("日 本",),
}


@pytest.mark.parametrize(("text", "names"), NAMES.items())
def test_names_may_be_quoted(text: str, names: tuple[str, ...]) -> None:
    assert quoted_names(text) == names


@pytest.mark.parametrize("text", ["`a", 'id,"b', "`a`b", "``"])
def test_quotes_close(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read the names"):
        quoted_names(text)
