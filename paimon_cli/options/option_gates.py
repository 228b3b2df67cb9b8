"""Which tables are left alone because of an option: better no answer than a wrong one, and no commit that others would miss.

What is refused, and why, stands in the catalog of options; the places where work begins ask here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paimon_cli.errors import NotSupported
from paimon_cli.options.option_catalog import Option, find_option

OPEN = "open"
"""Whatever is done with the files of a table."""
SCAN = "scan"
"""Reading rows."""
WRITE = "write"
"""Making data files from rows."""
COMPACT = "compact"
"""Making data files from data files."""
COMMIT = "commit"
"""Publishing a snapshot."""
TAG = "tag"
"""Making a tag."""

_DONE = {
    OPEN: "table {} has the option {}",
    SCAN: "cannot read table {} with {}",
    WRITE: "cannot write table {} with {}",
    COMPACT: "cannot compact table {} with {}",
    COMMIT: "cannot commit to table {} with {}",
    TAG: "cannot tag table {} with {}",
}
_MAY_BE_LEFT_OUT = (SCAN, COMMIT, TAG)
"""Work whose option may be left out for once: the data files do not depend on it."""


def refuse(at: str, options: Mapping[str, str], table: str) -> None:
    """Raise `NotSupported` that names the first option for which this work is refused."""
    for key, value, option in _refused(at, options):
        hint = "use a Paimon engine that supports the option"
        if at in _MAY_BE_LEFT_OUT:
            hint = f"to go without it this once, add --option {key}={option.default or ''}"
        raise NotSupported(_DONE[at].format(table, f"{key}={value}"), option.reason, hint, option=key)


def refusals(at: str, options: Mapping[str, str]) -> list[str]:
    """One sentence for each option for which this work would be refused."""
    return [f"with {key}={value} {option.reason}" for key, value, option in _refused(at, options)]


def _refused(at: str, options: Mapping[str, str]) -> Iterator[tuple[str, str, Option]]:
    for key, value in options.items():
        option = find_option(key)
        if option is not None and not option.passes(at, value):
            yield key, value, option
