"""What was read of the events of a table: their rows, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.event_images import Flags, ImageKeys, Images, Indices, pairs_of
from paimon_cli.ingest.changes.event_lines import EventLines
from paimon_cli.ingest.json_rows import parsed_line


def field_of(objects: pa.Array | None, name: str) -> pa.Array | None:
    """A field of objects; None if these are no objects, or have no such field."""
    is_object = objects is not None and pa.types.is_struct(objects.type) and objects.type.get_field_index(name) >= 0
    return pc.struct_field(objects, name) if is_object else None


class EventParts(Mapping[str, pa.Array]):
    """What some events have beside their images: by top-level key, one value an event."""

    def inner(self, key: str, name: str) -> pa.Array | None:
        """The values of this name in the objects at a key; None if there are none."""
        return field_of(self.get(key), name)

    def last(self, key: str) -> Any:
        """The last value at a key that is not null; None if there is none."""
        found = self.get(key)
        named = () if found is None else pc.drop_null(found)
        return named[len(named) - 1].as_py() if len(named) else None

    def last_texts(self, key: str) -> Mapping[str, str]:
        """The last text under each name of the objects at a key."""
        objects = self.get(key)
        if objects is None or not pa.types.is_struct(objects.type):
            return {}
        texts = ReadParts(dict(zip([one.name for one in objects.type], objects.flatten(), strict=True)))
        named = {name: texts.last(name) for name, cells in texts.items() if pa.types.is_string(cells.type)}
        return {name: text for name, text in named.items() if text is not None}

    def changes(self, key: str) -> Flags:
        """Of each event but the last, whether a text of the next one's object at a key differs. None does not differ."""
        objects = self.get(key)
        if objects is None or not pa.types.is_struct(objects.type):
            return np.zeros(0, bool)
        return changes_in(filter(lambda cells: pa.types.is_string(cells.type), objects.flatten()), len(objects))

    def slice(self, begin: int, count: int) -> EventParts:
        """Those of consecutive events."""
        return ReadParts({key: cells.slice(begin, count) for key, cells in self.items()})


def changes_in(columns: Iterable[pa.Array], count: int) -> Flags:
    """Of `count` rows but the last, whether the next one has another text in a column, nulls being the text before, or has texts
    where that one has none at all, or none.
    """
    found, told = np.zeros(max(count - 1, 0), bool), np.zeros(count, bool)
    for cells in columns:
        told |= cells.is_valid().to_numpy(zero_copy_only=False)
        codes = pc.fill_null_forward(cells).dictionary_encode().indices
        found |= np.diff(pc.fill_null(codes, -1).to_numpy()) != 0
    return found | (told[1:] != told[:-1])


@dataclass(frozen=True)
class ReadParts(EventParts):
    """Parts that were read with the images."""

    columns: Mapping[str, pa.Array]

    def __getitem__(self, key: str) -> pa.Array:
        return self.columns[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(frozen=True)
class ReadEvents:
    """The rows of events of one table. `lines`: the events that could be read; `event`: of each row, the index of its event.

    `before`, `after`: the images. `parts`: top-level keys that hold no image, such as `source`.
    `keys`: where events have their images.
    """

    lines: EventLines
    event: Indices
    before: Images
    after: Images
    parts: EventParts
    keys: ImageKeys

    def between(self, begin: int, end: int) -> ReadEvents:
        """Consecutive events, and their rows."""
        rows = self.rows_between(begin, end)
        before, after = self.before.slice(rows), self.after.slice(rows)
        lines, parts = self.lines.slice(begin, end - begin), self.parts.slice(begin, end - begin)
        return ReadEvents(lines, self.event[rows] - begin, before, after, parts, self.keys)

    def rows_between(self, begin: int, end: int) -> slice:
        """The rows of consecutive events."""
        return slice(*np.searchsorted(self.event, (begin, end)).tolist())

    def names_before(self, row: int) -> frozenset[str]:
        """The columns that the event of a row names in its image before, or in its only one. The event is parsed again."""
        parsed, problem = parsed_line(self.lines.text(int(self.event[row])))
        pairs = None if problem else pairs_of(parsed, self.keys)
        if not pairs:
            return frozenset()
        after, before = pairs[row - int(np.searchsorted(self.event, self.event[row]))]
        return frozenset(after or () if before is None else before)

    def part(self, path: str) -> pa.Array | None:
        """A value of each event outside of its images, such as `source.lsn`; None if they have none there."""
        key, _, inner = path.partition(".")
        return self.parts.inner(key, inner) if inner else self.parts.get(key)
