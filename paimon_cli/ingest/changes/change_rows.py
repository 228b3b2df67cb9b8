"""The rows that events write to a table: which images, in which order, and of which kinds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.event_formats import EventKind
from paimon_cli.ingest.changes.event_images import Images, Indices, of_one_type
from paimon_cli.ingest.changes.event_lines import BadEvent
from paimon_cli.ingest.changes.key_images import KEY_ONLY, LACKS_COLUMN, ChangeKey, KeyImages, lacking_columns
from paimon_cli.ingest.changes.table_events import TableEvents
from paimon_cli.metadata.data_file_schema import RowKind

UNCHANGED = "__debezium_unavailable_value"
"""What Debezium writes for a large value that an update did not change, and that the log of PostgreSQL therefore lacks."""
NO_IMAGE = "it has no image of the row before, and its operation needs one: REPLICA IDENTITY FULL makes PostgreSQL send it"
NO_AFTER = "it has no image of the row after"
LACKS_VALUE = "it lacks an unchanged large value: REPLICA IDENTITY FULL makes PostgreSQL send it"
NOTHING_REFUSED: Mapping[int, str] = MappingProxyType({})
LACKS_KEY = "its row lacks a value of the primary key"
OLD_KEY = (
    "its row before does not tell {names}, of the table's primary key, which can change while the key of the source stays, so "
    "that the old row cannot be found: REPLICA IDENTITY FULL makes PostgreSQL send it"
)


@dataclass(frozen=True)
class ChangeRows:
    """Rows in the order of their events. `cells`: by column, as read from JSON; `kinds`: `RowKind` of each; `event`: of each, the
    index of its event. `incomplete`: how many updates came without the row before.
    """

    cells: Mapping[str, pa.Array]
    kinds: npt.NDArray[np.int8]
    event: Indices
    incomplete: int = 0

    def __len__(self) -> int:
        return len(self.kinds)

    def without(self, flags: npt.NDArray[np.bool_]) -> ChangeRows:
        """The rows without those that are flagged."""
        cells = {name: one.filter(pa.array(~flags)) for name, one in self.cells.items()}
        return replace(self, cells=cells, kinds=self.kinds[~flags], event=self.event[~flags])


def rows_of(
    events: TableEvents,
    key: ChangeKey,
    *,
    needs_before: bool,
    bad: list[BadEvent],
    retracted: Collection[str] = (),
    key_images: KeyImages | None = None,
    refused: Mapping[int, str] = NOTHING_REFUSED,
) -> ChangeRows:
    """The rows of events: +I for an insert, -D for a delete, +U for an update, after -D if its key has changed.

    `needs_before`: the table does not just keep the newest row of a key, so that updates also retract the row before (-U).
    `retracted`: the columns whose values the table takes back; events whose row before has none of them are found by
    `key_images`. `refused`: kinds of rows that the table does not take, and why not. Events that cannot be applied are added to
    `bad`, and left out.
    """
    read, operations, keys = events.read, events.operations, key.columns
    before, after = read.before, read.after
    if events.read.event.size and not before.columns and (operations == EventKind.DELETE).any() and not before.present.any():
        before = _deleted(after, operations)  # events whose deletions have the row where others have the new one
    elif ((operations == EventKind.DELETE) & ~before.present & after.present).any():
        before = _merged(before, after, (operations == EventKind.DELETE) & ~before.present & after.present)
    problem = np.full(len(operations), "", object)
    problem[(operations != EventKind.DELETE) & ~after.present] = NO_AFTER
    problem[(operations == EventKind.DELETE) & ~before.present] = NO_IMAGE
    has_old = (operations == EventKind.UPDATE) & before.present & after.present
    if needs_before:
        problem[(operations == EventKind.UPDATE) & ~before.present & (problem == "")] = NO_IMAGE
    names = list(dict.fromkeys((*after.columns, *before.columns)))
    columns: Mapping[str, pa.Array] = {name: _both(before.column(name), after.column(name)) for name in names}
    count = len(operations)
    moved = has_old & _differs(columns, [name for name in keys if name in columns], count)
    columns = _with_unchanged(columns, has_old, problem, operations != EventKind.DELETE, count)
    if key.moving:
        untold = _untold(columns, before, key.moving, operations, count)
        if key_images is not None:
            old = {name: cells.slice(0, count) for name, cells in columns.items() if name in key.beside}
            finds = (has_old | (operations == EventKind.DELETE)) & (problem == "")
            untold |= key_images.among(events, old, key.beside, finds, has_old & ~moved & (problem == ""))
        problem[untold & (problem == "")] = OLD_KEY.format(names=" and ".join(f"'{name}'" for name in key.moving))
    _check_keys(columns, keys, operations, moved | (needs_before & has_old), problem, count)
    if retracted and key_images is not None:
        old = {name: cells.slice(0, count) for name, cells in columns.items() if name in retracted}
        new = {name: columns[name].slice(count) for name in old}
        taken_back = (has_old | (operations == EventKind.DELETE)) & (problem == "")
        problem[taken_back & _left_out(old)] = LACKS_VALUE
        problem[key_images.among(events, old, retracted, taken_back, has_old & ~moved & (problem == ""))] = KEY_ONLY
        problem[lacking_columns(events, old, new, has_old & (problem == ""))] = LACKS_COLUMN
    for kind, why in refused.items():
        concerned = moved | (operations == EventKind.DELETE) if kind == RowKind.DELETE else has_old & needs_before & ~moved
        problem[concerned & (problem == "")] = why
    usable = problem == ""
    for row in np.flatnonzero(~usable):
        index = int(read.event[row])
        bad.append(read.lines.bad(index, str(problem[row]), events.table.name))
    retracts = usable & (moved | (has_old & needs_before))
    incomplete = int(((operations == EventKind.UPDATE) & ~before.present & usable).sum())
    return _ordered(columns, operations, usable, retracts, moved, read.event, incomplete)


def has_rows(events: TableEvents, bad: list[BadEvent]) -> bool:
    """Whether any of these events has a row. If not, they are added to `bad`: they say nothing of their table."""
    before, after, deletes = events.read.before, events.read.after, events.operations == EventKind.DELETE
    if (after.present | (deletes & before.present)).any():
        return True
    rows_of(events, ChangeKey(()), needs_before=False, bad=bad)
    return False


def _ordered(
    columns: Mapping[str, pa.Array],
    operations: npt.NDArray[np.integer],
    usable: npt.NDArray[np.bool_],
    retracts: npt.NDArray[np.bool_],
    moved: npt.NDArray[np.bool_],
    event: Indices,
    incomplete: int,
) -> ChangeRows:
    """One row for each usable event, and before it the row that it retracts."""
    count = len(operations)
    sizes = usable.astype(np.int64) + retracts
    row = np.repeat(np.arange(count), sizes)
    is_first = np.append(True, row[1:] != row[:-1]) if len(row) else np.empty(0, bool)
    retraction = is_first & retracts[row]
    deletion = operations[row] == EventKind.DELETE
    place = np.where(retraction | deletion, row, count + row)
    kinds = np.full(len(row), RowKind.UPDATE_AFTER, np.int8)
    kinds[operations[row] == EventKind.CREATE] = RowKind.INSERT
    kinds[moved[row] & ~retraction] = RowKind.INSERT
    kinds[retraction] = RowKind.UPDATE_BEFORE
    kinds[(retraction & moved[row]) | deletion] = RowKind.DELETE
    cells = pa.RecordBatch.from_arrays(list(columns.values()), list(columns)).take(pa.array(place)).columns if columns else ()
    return ChangeRows(dict(zip(columns, cells, strict=True)), kinds, event[row], incomplete)


def _both(before: pa.Array, after: pa.Array) -> pa.Array:
    """The values of both images, one after the other."""
    return pa.concat_arrays(of_one_type(before, after))


def _differs(columns: Mapping[str, pa.Array], keys: Sequence[str], count: int) -> npt.NDArray[np.bool_]:
    """Whether a column of the key differs between both images."""
    changed = np.zeros(count, bool)
    for key in keys:
        before, after = columns[key].slice(0, count), columns[key].slice(count)
        if pa.types.is_null(before.type):
            continue
        same = pc.fill_null(pc.equal(before, after), False).to_numpy(zero_copy_only=False)
        changed |= ~same & before.is_valid().to_numpy(zero_copy_only=False)
    return changed


def _with_unchanged(
    columns: Mapping[str, pa.Array],
    has_old: npt.NDArray[np.bool_],
    problem: npt.NDArray[np.object_],
    has_new: npt.NDArray[np.bool_],
    count: int,
) -> Mapping[str, pa.Array]:
    """Large values that Debezium left out are taken from the row before; without one the event is a problem."""
    result = dict(columns)
    for name, cells in columns.items():
        if not pa.types.is_string(cells.type):
            continue
        before, after = cells.slice(0, count), cells.slice(count)
        left_out = pc.fill_null(pc.equal(after, UNCHANGED), False)
        flags = left_out.to_numpy(zero_copy_only=False) & has_new
        if not flags.any():
            continue
        kept = pc.fill_null(pc.not_equal(before, UNCHANGED), False).to_numpy(zero_copy_only=False) & has_old
        problem[flags & ~kept & (problem == "")] = LACKS_VALUE
        result[name] = pa.concat_arrays([before, pc.if_else(pa.array(flags & kept), before, after)])
    return result


def _untold(
    columns: Mapping[str, pa.Array], before: Images, moving: Sequence[str], operations: npt.NDArray[np.integer], count: int
) -> npt.NDArray[np.bool_]:
    """Which updates and deletions have no image before with a value of these columns."""
    told = before.present.copy()
    for name in moving:
        if name not in columns:
            return operations != EventKind.CREATE
        cells = columns[name].slice(0, count)
        told &= cells.is_valid().to_numpy(zero_copy_only=False) & ~_left_out({name: cells})
    return (operations != EventKind.CREATE) & ~told


def _left_out(columns: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
    """Whether one of these columns has no value because Debezium left it out."""
    texts = [cells for cells in columns.values() if pa.types.is_string(cells.type)]
    flags = [pc.fill_null(pc.equal(cells, UNCHANGED), False).to_numpy(zero_copy_only=False) for cells in texts]
    return np.logical_or.reduce(flags) if flags else np.zeros(1, bool)


def _check_keys(
    columns: Mapping[str, pa.Array],
    keys: Sequence[str],
    operations: npt.NDArray[np.integer],
    retracts: npt.NDArray[np.bool_],
    problem: npt.NDArray[np.object_],
    count: int,
) -> None:
    """Note the events whose rows have no value for a column of the key."""
    for key in keys:
        if key not in columns:
            problem[problem == ""] = LACKS_KEY
            return
        valid = columns[key].is_valid().to_numpy(zero_copy_only=False)
        old, new = ~valid[:count], ~valid[count:]
        lacking = np.where(operations == EventKind.DELETE, old, new | (old & retracts))
        problem[lacking & (problem == "")] = LACKS_KEY


def _deleted(after: Images, operations: npt.NDArray[np.integer]) -> Images:
    """The image of deletions that come with the deleted row as their only one."""
    return Images((operations == EventKind.DELETE) & after.present, after.columns)


def _merged(before: Images, after: Images, from_after: npt.NDArray[np.bool_]) -> Images:
    """The image before, with that after where events have none before."""
    mask = pa.array(from_after)
    columns = {}
    for name in {**before.columns, **after.columns}:
        both = _both(before.column(name), after.column(name))
        old, new = both.slice(0, len(from_after)), both.slice(len(from_after))
        columns[name] = pc.if_else(mask, new, old)
    return Images(before.present | from_after, columns)
