"""nested_update and nested_partial_update: an ARRAY of ROW as a small table in a column (Java FieldNestedUpdateAgg ...)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from paimon_cli.errors import BadInput
from paimon_cli.lsm.aggregators.step_by_step import StepByStep
from paimon_cli.lsm.aggregators.value_identity import identity

NO_LIMIT = 2**31 - 1
NULL_KEYS = ("merge", "ignore", "error")


@dataclass(frozen=True)
class NestedTable:
    """How rows inside the array are told apart; `null_key`: what becomes of rows whose key has a null."""

    column: str
    row_type: pa.DataType
    key: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    null_key: str = "merge"
    count_limit: int = NO_LIMIT

    def updated(self) -> StepByStep:
        """nested_update: rows are appended, or replace the row with their key; a retraction removes equal rows or keys."""
        return StepByStep(self._upserted if self.key else self._appended, None, self._without)

    def partially_updated(self) -> StepByStep:
        """nested_partial_update: fields that are not null replace those of the row with the same key."""
        return StepByStep(self._filled)

    def _mark(self, row: Any) -> Hashable:
        """The row's key; None when such a row is left out."""
        if any(row[name] is None for name in self.key):
            if self.null_key == "error":
                raise BadInput(
                    f"a row in column {self.column} has a null in its nested-key",
                    f"fields.{self.column}.nested-key-null-strategy is error",
                    column=self.column,
                )
            if self.null_key == "ignore":
                return None
        return tuple(identity(row[name], self.row_type.field(name).type) for name in self.key)

    def _newer(self, row: Any, old: Any) -> bool:
        return self._rank(row) >= self._rank(old)

    def _rank(self, row: Any) -> tuple[tuple[Any, ...], ...]:
        """Null is the smallest value of a sequence field."""
        return tuple((False,) if row[name] is None else (True, row[name]) for name in self.sequence)

    def _put(self, table: dict[Hashable, Any], rows: Any, limited: bool) -> None:
        for row in _present(rows):
            mark = self._mark(row)
            if mark is None:
                continue
            if mark in table:
                if self._newer(row, table[mark]):
                    table[mark] = row
            elif not limited or len(table) < self.count_limit:
                table[mark] = row

    def _upserted(self, held: Any, rows: Any) -> Any:
        if rows is None:
            return held
        table: dict[Hashable, Any] = {}
        self._put(table, held, limited=False)
        self._put(table, rows, limited=True)
        return list(table.values())

    def _appended(self, held: Any, rows: Any) -> Any:
        if rows is None:
            return held
        if held is not None and len(held) >= self.count_limit:
            return held
        room = max(0, self.count_limit - len(held or ()))
        return [*_present(held), *_present(rows)[:room]]

    def _without(self, held: Any, rows: Any) -> Any:
        if held is None or rows is None:
            return held
        if not self.key:
            gone = {identity(row, self.row_type) for row in _present(rows)}
            return [row for row in _present(held) if identity(row, self.row_type) not in gone]
        table = {mark: row for row in _present(held) if (mark := self._mark(row)) is not None}
        for row in _present(rows):
            mark = self._mark(row)
            if mark is not None:
                table.pop(mark, None)
        return list(table.values())

    def _filled(self, held: Any, rows: Any) -> Any:
        if rows is None:
            return held
        table: dict[Hashable, Any] = {}
        for row in [*_present(held), *_present(rows)]:
            mark = self._mark(row)
            if mark is not None:
                known = table.setdefault(mark, dict.fromkeys(row))
                known.update({name: value for name, value in row.items() if value is not None})
        return list(table.values())


def _present(rows: Any) -> list[Any]:
    return [row for row in rows or () if row is not None]
