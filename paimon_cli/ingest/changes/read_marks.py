"""How far each source of events was read for a table: what its snapshots record, so that no event is applied twice.

A source is known by its path and by its first event, so that another file in the same place is another source. A mark is the
position after the last event that was read, and a digest of that event: a source that has another event there has changed, and
where to go on cannot be told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from paimon_cli.errors import Refused
from paimon_cli.ingest.changes.event_lines import EventLines, PositionUnit
from paimon_cli.ingest.changes.table_events import SourceTable
from paimon_cli.options.option_text import counted

MARKS_PROPERTY = "paimon-cli.ingest"
TABLES_PROPERTY = "paimon-cli.ingest-tables"
MAX_SOURCES = 10_000
"""The record of a table is in each of its snapshots. More sources than this take another commit user."""
_DIGEST_CHARACTERS = 16


class Mark(NamedTuple):
    """`position`: where to go on. `last`: a digest of the event before."""

    position: int
    last: str


Marks = Mapping[str, Mark]
"""By source, as `source_key` names it."""


def source_key(name: str, first_event: bytes) -> str:
    """The name under which a source is remembered."""
    return f"{name}#{digest(first_event)}"


def digest(event: bytes) -> str:
    return hashlib.sha256(event).hexdigest()[:_DIGEST_CHARACTERS]


def marks_text(marks: Marks, user: str) -> str:
    """The marks as the text of a property. Raises `Refused` if they are too many."""
    if len(marks) > MAX_SOURCES:
        raise Refused(
            f"user {user} has read {counted(len(marks), 'source')}",
            f"snapshots remember at most {MAX_SOURCES:,}",
            "go on with another --commit-user; sources that were read stay away",
        )
    return json.dumps(marks, ensure_ascii=False, separators=(",", ":"))


def marks_of_text(text: str | None) -> dict[str, Mark] | None:
    """The marks of a property; None if it is none."""
    try:
        found = json.loads(text or "")
        marks = {str(key): Mark(int(position), str(last)) for key, (position, last) in found.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return marks if all(0 <= mark.position < 1 << 63 for mark in marks.values()) else None


def tables_text(tables: Set[SourceTable]) -> str:
    """The tables of the source whose rows a table has, as the text of a property."""
    return json.dumps(sorted(tables), ensure_ascii=False, separators=(",", ":"))


def tables_of_text(text: str) -> set[SourceTable] | None:
    """The tables of such a property; None if it is none."""
    try:
        return {SourceTable(str(database), str(table), str(schema)) for database, table, schema in json.loads(text)}
    except (ValueError, TypeError, RecursionError):
        return None


@dataclass(frozen=True)
class BlockMarks:
    """The marks that a block of events makes possible. `key`: of its source; `previous`: the mark at the end of the block
    before.
    """

    key: str
    lines: EventLines
    previous: Mark | None = None

    @cached_property
    def end(self) -> Mark | None:
        """The mark after the whole block, which all tables take."""
        return Mark(self.lines.end, digest(self.lines.text(-1))) if len(self.lines) else self.previous

    def before(self, position: int) -> Mark | None:
        """The mark before the event at a position; None if it is the first one of the source."""
        index = int(np.searchsorted(self.lines.positions, position)) - 1
        return self.previous if index < 0 else Mark(position, digest(self.lines.text(index)))

    def after(self, position: int) -> Mark:
        """The mark after the event at a position."""
        positions = self.lines.positions
        index = int(np.searchsorted(positions, position))
        following = int(positions[index + 1]) if index + 1 < len(positions) else self.lines.end
        return Mark(following, digest(self.lines.text(index)))


class LastEvent(NamedTuple):
    """The last event that this run has read of a source. `begin`: where it begins; `mark`: the one after it."""

    begin: int
    mark: Mark

    def following(self, lines: EventLines) -> EventLines:
        """The events after it, of a block that begins with it. Raises `Refused` if they begin with another one."""
        if not len(lines) or digest(lines.text(0)) != self.mark.last:
            raise has_changed(lines.source, self.mark, lines.unit)
        return lines.take(np.arange(1, len(lines)))


def check_mark(mark: Mark, lines: EventLines, begin: int, gone: int = 0) -> None:
    """Raise `Refused` if the block has another event before the mark, or events after the mark, before `gone`, are gone.

    `begin`: where the block begins. A compacted topic may have lost the event before the mark: then nothing is checked.
    """
    if mark.position < gone:
        raise Refused(
            f"cannot determine whether events of {lines.source} were missed",
            f"the table has read to {lines.unit} {mark.position}, events before {gone} are gone, and no group has read them",
            "?offsets=earliest goes on with what is left; load the table again if rows are missing",
            source=lines.source,
        )
    if not begin < mark.position <= lines.end:
        return
    index = int(np.searchsorted(lines.positions, mark.position)) - 1
    if index < 0 or (lines.unit == PositionUnit.OFFSET and lines.positions[index] != mark.position - 1):
        return
    if digest(lines.text(index)) != mark.last:
        raise has_changed(lines.source, mark, lines.unit)


def has_changed(source: str, mark: Mark, unit: str = PositionUnit.BYTE) -> Refused:
    what = "topic" if unit == PositionUnit.OFFSET else "file"
    return Refused(
        f"{source} is not what was read before",
        f"its event before {unit} {mark.position} is another one, so that it cannot be told where to go on",
        f"restore the {what}, or give new events another {what}; another --commit-user reads all from the beginning",
        source=source,
    )
