"""Every option that Paimon knows, for `options ls`, completion and checks of keys; the list itself is a packaged data file.

Engines keep options of their own in tables, and so does this tool.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

from paimon_cli.options.table_options import DATA_CONFLICT_CHECK, DATA_CONFLICT_CHECKS


@dataclass(frozen=True)
class Option:
    """One option. `type` as Java names it, `default` as text (None: unset), `immutable`: fixed when the table is created."""

    key: str
    type: str
    default: str | None
    description: str
    immutable: bool = False
    choices: tuple[str, ...] = ()
    older_keys: tuple[str, ...] = ()


def _load() -> tuple[Option, ...]:
    text = resources.files("paimon_cli.options").joinpath("option_catalog.json").read_text(encoding="utf-8")
    return tuple(
        Option(
            row["key"],
            row["type"],
            row.get("default"),
            row["description"],
            row.get("immutable", False),
            tuple(row.get("choices", ())),
            tuple(row.get("older_keys", ())),
        )
        for row in json.loads(text)
    )


OPTIONS = _load()
"""All options of Paimon, sorted by key."""

OWN_OPTIONS = (
    Option(
        DATA_CONFLICT_CHECK,
        "String",
        "off",
        "paimon-cli only: a commit fails when others wrote to the same partition, bucket, key range or keys since its read",
        choices=DATA_CONFLICT_CHECKS,
    ),
)
"""What this tool adds; Paimon's engines ignore it."""

_BY_KEY = {key: option for option in OPTIONS for key in option.older_keys}
_BY_KEY |= {option.key: option for option in (*OPTIONS, *OWN_OPTIONS)}


def find_option(key: str) -> Option | None:
    """The option of that key or older key; None for what is not listed, such as `fields.<column>.aggregate-function`."""
    return _BY_KEY.get(key)
