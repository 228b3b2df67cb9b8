"""What a table must hold: for each branch the changes behind each version, without levels, files or Arrow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.properties.oracle import Change, Row, current_rows
from tests.properties.shapes import Layout


@dataclass(frozen=True)
class Version:
    """A snapshot: the changes behind it, the names of the columns then, and the rows that readers saw first.

    `names` maps the column that a change tells of (its identity, which a rename keeps) to its name. `schema`: the schema's id.
    `waiting`: how many stored records a compaction had to make visible.
    """

    changes: tuple[Change, ...]
    names: Mapping[str, str]
    rows: tuple[str, ...]
    schema: int
    waiting: int = 0


@dataclass
class Line:
    """A branch: its versions by snapshot id, its tags, and the columns that the next commit writes.

    `floor`: the first version to which a rollback may go; before it the number of buckets was another. `past`: all that the
    newest version was built on, by snapshot id, also what has expired.
    """

    names: dict[str, str]
    versions: dict[int, Version] = field(default_factory=dict)
    tags: dict[str, tuple[int, Version]] = field(default_factory=dict)
    floor: int = 1
    past: dict[int, Version] = field(default_factory=dict)

    def add(self, number: int, version: Version) -> None:
        self.versions[number] = self.past[number] = version

    @property
    def newest(self) -> int:
        return max(self.versions, default=0)

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.versions[self.newest].changes if self.versions else ()

    @property
    def is_hidden(self) -> bool:
        """Whether records of the newest version wait to become visible."""
        return bool(self.versions) and self.versions[self.newest].waiting > 0

    @property
    def has_gap(self) -> bool:
        """Whether versions are missing between others: main has become a branch that had lost its oldest ones."""
        return len(self.versions) < self.newest - min(self.versions, default=1) + 1

    def targets(self) -> list[int]:
        return [number for number in sorted(self.versions) if number >= self.floor]

    def copy_of(self, number: int) -> Line:
        """A branch that begins at a version."""
        version = self.versions[number]
        return Line(dict(version.names), {number: version}, floor=number, past=self.past_of(number))

    def past_of(self, number: int) -> dict[int, Version]:
        """All versions up to one."""
        return {n: version for n, version in self.past.items() if n <= number}


def folded(changes: Iterable[Change], names: Mapping[str, str], layout: Layout) -> list[Row]:
    """The rows after these changes, by the names of columns."""
    whole = [replace(change, row={column: change.row.get(column) for column in names}) for change in changes]
    return current_rows(whole, layout.key, layout.options)


def texts(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Rows as texts in a fixed order, to be compared."""
    return tuple(sorted(json.dumps(dict(row), ensure_ascii=False, sort_keys=True) for row in rows))


def named(rows: Iterable[Row], names: Mapping[str, str]) -> list[Row]:
    return [{names[column]: value for column, value in row.items() if column in names} for row in rows]
