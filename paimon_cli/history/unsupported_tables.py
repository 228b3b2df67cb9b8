"""Options that change the meaning of a table's files in ways that this version does not know (format section 14.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from paimon_cli.errors import NotSupported

_SWITCHES = (
    "row-tracking.enabled",
    "data-evolution.enabled",
    "chain-table.enabled",
    "pk-clustering-override",
    "sequence.snapshot-ordering",
    "query-auth.enabled",
    "index-file-in-data-file-dir",
    "primary-key.nullable",
)
_SETTINGS = ("data-file.external-paths", "data-file.path-directory")
_FAMILIES = re.compile(r"pk-.*\.index\.columns|blob-.*|vector-.*")
_PLAIN_VALUES = {"type": "table", "branch": "main", "bucket-function.type": "default"}


def refuse_unsupported(options: Mapping[str, str], table: str) -> None:
    """Raise `NotSupported` that names the option: better no answer than a wrong one."""
    for key, value in options.items():
        text = value.strip().lower()
        switched_on = key in _SWITCHES and text != "false"
        named = key in _SETTINGS or _FAMILIES.fullmatch(key) is not None
        other = text != _PLAIN_VALUES.get(key, text)
        if (switched_on or named or other) and text:
            raise NotSupported(
                f"table {table} has the option {key}={value}",
                "it changes what the table's files mean, and this version does not know how",
                "use a Paimon engine that supports the option",
                option=key,
            )
