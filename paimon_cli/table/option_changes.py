"""Changes of a table's options, under Paimon's own refusals (Java SchemaManager.checkAlterTableOption)."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_cli.errors import UsageError
from paimon_cli.options.option_catalog import find_option

ONLY_UP = ("ignore-delete", "ignore-update-before")
NEVER = {"type": "the kind of a table never changes", "path": "to move a table, move its directory"}


def with_option(options: Mapping[str, str], key: str, value: str, has_snapshots: bool) -> dict[str, str]:
    """UsageError for what may not change; some rules hold only once there is data."""
    old = options.get(key)
    if old == value:
        return dict(options)
    _refuse_never(key)
    if has_snapshots:
        _refuse_immutable(key)
        if key == "bucket":
            _check_bucket(int(old or "-1"), value)
        if key == "deletion-vectors.enabled":
            _check_vectors(options, _is_true(value))
        if key in ONLY_UP and _is_true(old) and not _is_true(value):
            raise UsageError(f"option {key} cannot go back to false", "deletes that were ignored are already lost", option=key)
    return {**options, key: value}


def check_options_of_call(options: Mapping[str, str], given: Mapping[str, str], has_snapshots: bool) -> None:
    """UsageError where `given`, for one call that commits, would go against what the files of the table were made by."""
    for key, value in given.items():
        known = find_option(key)
        if known is not None and options.get(key, known.default) != value:
            _refuse_never(key)
            if has_snapshots:
                _refuse_immutable(key)
            if has_snapshots and key == "deletion-vectors.enabled":
                _check_vectors({**options, "deletion-vectors.modifiable": "false"}, _is_true(value))


def without_option(options: Mapping[str, str], key: str, has_snapshots: bool) -> dict[str, str]:
    """UsageError for a key that is not set, or may not go."""
    if key not in options:
        raise UsageError(f"option {key} is not set", hint="`options ls` lists the options that are set", option=key)
    _refuse_never(key)
    if has_snapshots:
        _refuse_immutable(key)
        if key == "bucket":
            raise UsageError("option bucket cannot be unset", "existing files are written for this number of buckets", option=key)
        if key == "deletion-vectors.enabled":
            _check_vectors(options, False)
    return {other: value for other, value in options.items() if other != key}


def _refuse_never(key: str) -> None:
    if key in NEVER:
        raise UsageError(f"option {key} cannot be changed", NEVER[key], option=key)


def _refuse_immutable(key: str) -> None:
    known = find_option(key)
    if known is not None and known.immutable:
        raise UsageError(f"option {key} cannot be changed", "it cannot change once the table has data", option=key)


def _check_bucket(old: int, value: str) -> None:
    """Texts that are no numbers are refused with all other values later."""
    if old == -1 or value.strip() == "-1":
        raise UsageError(
            f"bucket cannot change from {old} to {value}",
            "a table cannot switch between fixed and dynamic buckets",
            option="bucket",
        )


def _check_vectors(options: Mapping[str, str], enabled: bool) -> None:
    if _is_true(options.get("deletion-vectors.enabled")) != enabled and not _is_true(options.get("deletion-vectors.modifiable")):
        raise UsageError(
            "deletion-vectors.enabled cannot change once there is data",
            "without a full compaction rows could appear twice",
            "set deletion-vectors.modifiable=true if you are sure",
            option="deletion-vectors.enabled",
        )


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"
