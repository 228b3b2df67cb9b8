"""Every option that Paimon knows, for `options ls`, completion and checks of keys; the list itself is a packaged data file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources


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
"""All options, sorted by key."""

_BY_KEY = {key: option for option in OPTIONS for key in option.older_keys} | {option.key: option for option in OPTIONS}


def find_option(key: str) -> Option | None:
    """The option of that key or older key; None for what Paimon does not list, such as `fields.<column>.aggregate-function`."""
    return _BY_KEY.get(key)
