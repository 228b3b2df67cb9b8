"""Numbers as people write them, with a decimal comma or groups of digits, and their plain form, which Arrow parses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # commands that read no rows do not load Arrow
    import pyarrow as pa


class NumberForm(NamedTuple):
    """The decimal sign, and the sign between groups of three digits; '' for none. Numbers without groups always fit."""

    decimal: str = "."
    thousands: str = ""

    @property
    def pattern(self) -> str:
        """The regular expression of a finite number."""
        decimal, digits = re.escape(self.decimal), "[0-9]+"
        if self.thousands:
            digits = f"([0-9]{{1,3}}({re.escape(self.thousands)}[0-9]{{3}})+|[0-9]+)"
        return rf"^[+-]?({digits}({decimal}[0-9]*)?|{decimal}[0-9]+)([eE][+-]?[0-9]{{1,5}})?$"

    def matches(self, texts: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return pc.match_substring_regex(texts, self.pattern)

    def plain(self, texts: pa.Array) -> pa.Array:
        """Texts that match, in the plain form."""
        import pyarrow.compute as pc

        if self.thousands:
            texts = pc.replace_substring(texts, self.thousands, "")
        return texts if self.decimal == "." else pc.replace_substring(texts, self.decimal, ".")

    @property
    def flags(self) -> str:
        """The options of the command line, ready to be pasted."""
        given = [] if self.decimal == "." else ["--decimal", self.decimal]
        if self.thousands:
            given += ["--thousands", "space" if self.thousands == " " else self.thousands]
        return shlex.join(given)


PLAIN_NUMBERS = NumberForm()
USUAL_FORMS = (
    *(NumberForm(",", thousands) for thousands in ("", ".", " ", "\xa0", "\u202f", "'")),
    *(NumberForm(".", thousands) for thousands in (",", " ", "'", "\xa0", "\u202f", "\u2019")),
)
"""Forms to recognise. Of those with the same decimal sign the first that fits is meant."""


def flags_of(forms: Iterable[NumberForm]) -> list[str]:
    """The options for the first of these forms with each decimal sign: several if '1,234' may be meant either way."""
    found: dict[str, str] = {}
    for form in forms:
        found.setdefault(form.decimal, form.flags)
    return list(found.values())
