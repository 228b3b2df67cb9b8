"""The merge engines by their written rules, one record at a time: slow, plain, and independent of the columnar ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Record = dict[str, Any]
RETRACTIONS = ("-U", "-D")


class Refused(Exception):
    """The engine does not accept the record."""


class Column:
    """One column's function and what it holds."""

    def __init__(self, function: str, deaf: bool) -> None:
        self.function, self.deaf, self.begun = function, deaf, False
        self.held: Any = None

    def add(self, value: Any) -> None:
        self.held = self._aggregated(self.held, value)

    def add_older(self, value: Any) -> None:
        if self.function == "collect" and not self.deaf:
            self.add(value)
        else:
            self.held = self._aggregated(value, self.held)

    def take_back(self, value: Any) -> None:
        if self.deaf:
            return
        if self.function == "sum":
            self.held = self.held if value is None else -value if self.held is None else self.held - value
        elif self.function == "last_value":
            self.held = None
        elif self.function == "last_non_null_value":
            self.held = None if value is not None else self.held
        elif self.function == "collect":
            for item in value or [] if self.held is not None else []:
                if item in self.held:
                    at = self.held.index(item)
                    self.held = self.held[:at] + self.held[at + 1 :]
        else:
            raise Refused(self.function)

    def _aggregated(self, held: Any, value: Any) -> Any:
        if self.function == "last_value":
            return value
        if self.function in ("first_value", "first_non_null_value"):
            if self.begun or (self.function == "first_non_null_value" and value is None):
                return held
            self.begun = True
            return value
        if held is None or value is None:
            return value if held is None else held
        simple: dict[str, Callable[[Any, Any], Any]] = {
            "sum": lambda a, b: a + b,
            "collect": lambda a, b: a + b,
            "max": max,
            "min": min,
            "last_non_null_value": lambda a, b: b,
            "listagg": lambda a, b: f"{a},{b}",
        }
        return simple[self.function](held, value)


def deduplicated(records: list[Record], ignore_delete: bool) -> Record | None:
    kept = [r for r in records if not (ignore_delete and r["kind"] in RETRACTIONS)]
    return kept[-1] if kept else None


def first_row(records: list[Record], ignore_delete: bool) -> Record | None:
    if not ignore_delete and any(r["kind"] in RETRACTIONS for r in records):
        raise Refused("first-row")
    kept = [r for r in records if r["kind"] not in RETRACTIONS]
    return kept[0] if kept else None


def aggregated(records: list[Record], functions: list[str], deaf: set[int], remove: bool) -> Record:
    """`functions`: of each column after the key."""
    columns = [Column(function, number in deaf) for number, function in enumerate(functions)]
    for record in records:
        removed = remove and record["kind"] == "-D"
        for column, value in zip(columns, record["row"][1:], strict=True):
            if removed:
                column.held = value
            elif record["kind"] in RETRACTIONS:
                column.take_back(value)
            else:
                column.add(value)
    last = records[-1]
    row = [last["row"][0], *(column.held for column in columns)]
    return {"seq": last["seq"], "kind": "-D" if removed else "+I", "row": row}


class PartialRow:
    """One key under partial-update. `groups`: (sequence columns, other columns); numbers are positions in the row."""

    def __init__(self, width: int, options: dict[str, Any]) -> None:
        self.groups: list[tuple[list[int], list[int]]] = options.get("groups", [])
        self.columns = [Column("last_non_null_value", False) for _ in range(width)]
        for at, function in options.get("functions", {}).items():
            self.columns[at] = Column(function, at in options.get("deaf", ()))
        self.functions = options.get("functions", {})
        self.ignore, self.remove = options.get("ignore", False), options.get("remove", False)
        self.removing: set[int] = options.get("removing", set())
        self.seq, self.filled, self.added, self.deleted = 0, False, False, False

    def fill(self, row: list[Any]) -> None:
        for column, value in zip(self.columns, row, strict=True):
            column.held = value

    def feed(self, record: Record) -> None:
        row, self.deleted = record["row"], False
        if record["kind"] not in RETRACTIONS:
            self.seq, self.filled, self.added = record["seq"], True, True
            self.add(row)
            return
        if not self.filled:
            self.fill(row)
            self.filled = True
        if self.ignore:
            return
        self.seq = record["seq"]
        if self.groups:
            self.retract(record)
        elif not self.remove:
            raise Refused("partial-update")
        elif record["kind"] == "-D":
            self.fill(row)
            self.deleted = True

    def newer(self, fields: list[int], row: list[Any]) -> bool | None:
        """Whether the row is newer; None if it has no value for the group."""
        if all(row[at] is None for at in fields):
            return None
        rank = [[(value is not None, value or 0) for value in values] for values in self._sequences(fields, row)]
        return rank[0] >= rank[1]

    def _sequences(self, fields: list[int], row: list[Any]) -> tuple[list[Any], list[Any]]:
        return [row[at] for at in fields], [self.columns[at].held for at in fields]

    def add(self, row: list[Any]) -> None:
        grouped = {at for fields, others in self.groups for at in (*fields, *others)}
        for at in set(range(len(row))) - grouped:
            self.columns[at].add(row[at])
        for fields, others in self.groups:
            newer = self.newer(fields, row)
            for at in others if newer is not None else ():
                if at not in self.functions:
                    self.columns[at].held = row[at] if newer else self.columns[at].held
                elif newer:
                    self.columns[at].add(row[at])
                else:
                    self.columns[at].add_older(row[at])
            if newer:
                for at in fields:
                    self.columns[at].held = row[at]

    def retract(self, record: Record) -> None:
        row = record["row"]
        verdicts = [self.newer(fields, row) for fields, _ in self.groups]
        removing = [
            fields for (fields, _), newer in zip(self.groups, verdicts, strict=True) if newer and self.removing & set(fields)
        ]
        end = min((min(fields) for fields in removing), default=len(row)) if record["kind"] == "-D" else len(row)
        for (fields, others), newer in zip(self.groups, verdicts, strict=True):
            for at in others if newer is not None else ():
                if at < end and at in self.functions:
                    self.columns[at].take_back(row[at])
                elif at < end and newer:
                    self.columns[at].held = None
            if newer:
                for at in fields:
                    self.columns[at].held = row[at]
        if end < len(row):
            self.fill(row)
            self.deleted = True

    def result(self) -> Record:
        kind = "-D" if self.deleted or not self.added else "+I"
        return {"seq": self.seq, "kind": kind, "row": [column.held for column in self.columns]}
