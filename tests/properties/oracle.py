"""The rows that a table must hold, from the list of all changes: a plain fold per key, without levels, files or Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """One incoming row, in the order of arrival; `kind` is +I, +U, -U or -D."""

    kind: str
    row: Row

    @property
    def is_add(self) -> bool:
        return self.kind in ("+I", "+U")


def current_rows(changes: Iterable[Change], key: tuple[str, ...], options: dict[str, str]) -> list[Row]:
    """The rows that a reader must see; without a key, all that were written."""
    if not key:
        return [change.row for change in changes]
    of_key: dict[Key, list[Change]] = {}
    for change in changes:
        of_key.setdefault(tuple(change.row[name] for name in key), []).append(change)
    fold = {"deduplicate": _newest, "first-row": _oldest, "partial-update": _patched, "aggregation": _aggregated}
    engine = fold[options.get("merge-engine", "deduplicate")]
    found = {
        k: engine(_at_home(_ordered(_heard(known, options), options), key, options), key, options) for k, known in of_key.items()
    }
    return [row for row in found.values() if row is not None]


def _at_home(changes: list[Change], key: tuple[str, ...], options: dict[str, str]) -> list[Change]:
    """Where rows are mixed, a key stays in the partition where its first row came."""
    if not changes or "p" in key or "p" not in changes[0].row or options.get("merge-engine", "deduplicate") == "deduplicate":
        return changes
    home = changes[0].row["p"]
    return [Change(change.kind, {**change.row, "p": home}) for change in changes]


def _heard(changes: list[Change], options: dict[str, str]) -> list[Change]:
    if options.get("ignore-delete") == "true":
        return [change for change in changes if change.is_add]
    return changes


def _ordered(changes: list[Change], options: dict[str, str]) -> list[Change]:
    """By the sequence field, nulls first in both orders; equal ones as they came."""
    field = options.get("sequence.field")
    if field is None:
        return changes
    sign = -1 if options.get("sequence.field.sort-order") == "descending" else 1
    return sorted(changes, key=lambda c: -(10**9) if c.row[field] is None else sign * c.row[field])


def _newest(changes: list[Change], key: tuple[str, ...], options: dict[str, str]) -> Row | None:
    return changes[-1].row if changes and changes[-1].is_add else None


def _oldest(changes: list[Change], key: tuple[str, ...], options: dict[str, str]) -> Row | None:
    return changes[0].row if changes else None


def _patched(changes: list[Change], key: tuple[str, ...], options: dict[str, str]) -> Row | None:
    """A group's columns follow its sequence field, nulls too; a summed one adds up in any order; others keep the last value."""
    if not changes:
        return None
    groups = {
        name.removeprefix("fields.").removesuffix(".sequence-group"): columns.split(",")
        for name, columns in options.items()
        if name.endswith(".sequence-group")
    }
    grouped = {column for columns in groups.values() for column in columns} | set(groups)
    row: Row = dict.fromkeys(changes[0].row)
    for change in changes:
        new = change.row
        row |= {name: value for name, value in new.items() if name not in grouped and value is not None}
        for sequence, columns in groups.items():
            if new[sequence] is None:
                continue
            is_newer = row[sequence] is None or new[sequence] >= row[sequence]
            for column in columns:
                if options.get(f"fields.{column}.aggregate-function") == "sum":
                    row[column] = _sum(row[column], new[column])
                elif is_newer:
                    row[column] = new[column]
            if is_newer:
                row[sequence] = new[sequence]
    return row


def _aggregated(changes: list[Change], key: tuple[str, ...], options: dict[str, str]) -> Row | None:
    if not changes:
        return None
    row: Row = {name: value if name in (*key, "p") else None for name, value in changes[0].row.items()}
    begun: set[str] = set()
    for change in changes:
        for name, value in change.row.items():
            if name in (*key, "p"):
                continue
            function = options.get(f"fields.{name}.aggregate-function", "last_non_null_value")
            if change.is_add:
                row[name] = AGGREGATIONS[function](row[name], value) if name in begun or function not in FIRST else value
                if function == "first_value" or value is not None:
                    begun.add(name)
            elif options.get(f"fields.{name}.ignore-retract") != "true":
                assert function == "sum"
                row[name] = row[name] if value is None else -value if row[name] is None else row[name] - value
    return row


FIRST = ("first_value", "first_non_null_value")


def _sum(old: Any, new: Any) -> Any:
    """The sum of two values; if one is null, the other."""
    return new if old is None else old if new is None else old + new


def _joined(old: Any, new: Any) -> Any:
    if old is None or new is None:
        return _sum(old, new)
    return old if not new.strip() else new if not old.strip() else f"{old},{new}"


def _best(choose: Any) -> Any:
    return lambda old, new: new if old is None else old if new is None else choose(old, new)


AGGREGATIONS: dict[str, Any] = {
    "sum": _sum,
    "max": _best(max),
    "min": _best(min),
    "product": _best(lambda old, new: old * new),
    "bool_and": _best(lambda old, new: old and new),
    "bool_or": _best(lambda old, new: old or new),
    "last_value": lambda old, new: new,
    "last_non_null_value": lambda old, new: old if new is None else new,
    "first_value": lambda old, new: old,
    "first_non_null_value": lambda old, new: old,
    "listagg": _joined,
}
