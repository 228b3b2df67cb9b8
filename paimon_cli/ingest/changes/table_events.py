"""The events of one table of a source, as a decoder gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paimon_cli.datatypes.data_type import DataType
from paimon_cli.ingest.changes.event_formats import EventFormat
from paimon_cli.ingest.changes.event_lines import BadEvent
from paimon_cli.ingest.changes.event_values import UNDECLARED, UNDECLARED_BY_CONNECT, ValueForm
from paimon_cli.ingest.changes.read_events import ReadEvents

Codes = npt.NDArray[np.integer[Any]]


class SourceTable(NamedTuple):
    """A table as events name it. `schema`: of PostgreSQL and its like; all are '' where an event names no table."""

    database: str
    table: str
    schema: str = ""

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}" if self.database else self.table


@dataclass(frozen=True)
class TableEvents:
    """Consecutive events of one table. `operations`: one a row of `read`. `forms`: of columns whose events declare types.
    `keys`: the primary key that the events name. `bad`: events among them that could not be read. A truncation has no rows.
    """

    table: SourceTable
    format: EventFormat
    read: ReadEvents
    operations: Codes
    forms: Mapping[str, ValueForm]
    keys: tuple[str, ...] = ()
    bad: tuple[BadEvent, ...] = ()
    truncates: bool = False

    @property
    def begin(self) -> int:
        """The position of the first event, whether it could be read or not."""
        return min([*self.read.lines.positions[:1].tolist(), *(event.position for event in self.bad)])

    def form(self, column: str) -> ValueForm:
        return self.forms.get(column, UNDECLARED_BY_CONNECT if self.format.wraps else UNDECLARED)


@dataclass(frozen=True)
class Wanted:
    """What a decoder asks about a table before it reads its rows. `types`: of the columns that it has; `needs_before`:
    whether its updates must have exact images of the row before.
    """

    types: Mapping[str, DataType] = field(default_factory=dict)
    needs_before: bool = False
