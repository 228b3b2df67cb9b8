"""Images of the row before that hold only its key, where a table takes back the values of that row.

PostgreSQL logs only the key of a row that is deleted, or whose key changes, unless its table has REPLICA IDENTITY FULL. Debezium
then writes null for the other columns, and 0, false or '' for those that are NOT NULL. Taken back from a sum, they leave it as it
was: the amount of the deleted row would stay in it, without a word.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.event_formats import WHOLE_ROW_CONNECTORS
from paimon_cli.ingest.changes.table_events import SourceTable, TableEvents

KEY_ONLY = (
    "its row before has the key and no other value, which the table would take back or order by: REPLICA IDENTITY FULL makes "
    "PostgreSQL send whole rows; a table that keeps the newest row, with neither a changelog of its input nor a sequence field "
    "of the row, needs only the key"
)
LACKS_COLUMN = "its row before lacks a column of the row after, whose value the table would take back"
_FILLERS = r"^(-?0*(\.0*)?|A+=*|1970-01-01T00:00:00(\.0*)?Z)$"
"""Texts for a column that is NOT NULL: '', a number 0 as text or base64, the first moment."""
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ChangeKey:
    """The primary key of a table that gets changes.

    `moving`: its columns that are not of the source's key. They can change while that stays: only an image before tells which row
    an event replaces then. `beside`: all columns of the table that are not of the source's key.
    """

    columns: Sequence[str]
    moving: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


@dataclass
class KeyImages:
    """Finds them among the events of a table, and remembers which tables of the source have sent whole rows.

    An image of nulls may also be a whole row of nulls. It is taken as one if the source always sends whole rows, or has sent one
    for an update that kept its key: with the key alone, PostgreSQL sends no image for it.
    """

    _whole: set[SourceTable] = field(default_factory=set)

    def among(
        self, events: TableEvents, cells: Mapping[str, pa.Array], values: Collection[str], retracts: Flags, kept_key: Flags
    ) -> Flags:
        """Which of these rows must not be taken back.

        `cells`: the images before, by column; `values`: the columns of the table that are no part of its key; `retracts`: the
        rows that would be taken back; `kept_key`: those among them that updates have replaced without a change of the key.
        """
        named = [name for name in cells if name in values]
        empty = np.ones(len(retracts), bool)
        for name in named:
            empty &= _empty(cells[name])
        none = np.zeros(len(retracts), bool)
        if not values:
            return none
        shown = kept_key & ~empty
        known = np.full(len(retracts), True) if events.table in self._whole else np.append(False, np.logical_or.accumulate(shown))
        if shown.any():
            self._whole.add(events.table)
        suspects = retracts & empty
        if not suspects.any():
            return none
        trusted = known[: len(retracts)] | self._sent_whole(events)
        for row in np.flatnonzero(suspects & trusted):  # few: all values of the row are null
            trusted[row] = not events.read.names_before(int(row)).isdisjoint(values)
        return suspects & ~trusted

    def _sent_whole(self, events: TableEvents) -> Flags:
        """Of each row, whether its source always sends whole rows."""
        count, event = len(events.read.event), events.read.event
        if events.format.sends_whole_rows:
            return np.ones(count, bool)
        whole = np.zeros(count, bool)
        for path in events.format.connector:
            names = events.read.part(path)
            if names is not None and pa.types.is_string(names.type):
                known = pc.is_in(names, pa.array(sorted(WHOLE_ROW_CONNECTORS))).to_numpy(zero_copy_only=False)
                whole |= known[event]
        return whole


def lacking_columns(events: TableEvents, old: Mapping[str, pa.Array], new: Mapping[str, pa.Array], updates: Flags) -> Flags:
    """Which updates have an image before that does not name a column of which the image after has a value.

    `old`, `new`: the columns of both images that must be whole. Arrow reads a missing column as null: it is one where the text
    has the name in both images, which shows by counting it, unless a value of the row has keys of its own.
    """
    lacking = np.zeros(len(updates), bool)
    if events.format.images.is_partial:  # completed from the image after
        return lacking
    parts = events.read.parts
    inner = [cells for cells in parts.values() if pa.types.is_struct(cells.type)]
    outside = Counter([*parts, *(one.name for cells in inner for one in cells.type)])
    objects = np.full(len(events.read.lines), 3)  # the event, and both images
    for cells in inner:
        objects += cells.is_valid().to_numpy(zero_copy_only=False)
    for name, cells in old.items():
        doubtful = np.flatnonzero(
            updates & cells.is_null().to_numpy(zero_copy_only=False) & new[name].is_valid().to_numpy(zero_copy_only=False)
        )
        event = events.read.event[doubtful]
        texts = events.read.lines.sharing(event).texts
        is_deep = pc.count_substring(texts, b"{").to_numpy() > objects[event]
        met = pc.count_substring(texts, json.dumps(name, ensure_ascii=False).encode() + b":").to_numpy()
        for row in doubtful[is_deep | (met < 2 + outside[name])]:
            lacking[row] |= name not in events.read.names_before(int(row))
    return lacking


def _empty(cells: pa.Array) -> Flags:
    """Whether a cell is null, or what Debezium writes for a value of a NOT NULL column that it does not know."""
    kind = cells.type
    if pa.types.is_null(kind):
        return np.ones(len(cells), bool)
    if pa.types.is_boolean(kind):
        filled = pc.invert(cells)
    elif pa.types.is_string(kind):
        filled = pc.match_substring_regex(cells, _FILLERS)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        filled = pc.equal(cells, pa.scalar(0, kind))
    else:
        filled = pc.is_null(cells)
    return pc.fill_null(filled, True).to_numpy(zero_copy_only=False)
