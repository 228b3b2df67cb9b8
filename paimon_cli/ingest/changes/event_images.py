"""Reads the rows that events carry: their images before and after a change, as columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.event_values import text_of_json
from paimon_cli.ingest.changes.json_shapes import EXACT_INTEGER
from paimon_cli.options.option_text import is_utf8

Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
_DOUBLE = pa.float64()


@dataclass(frozen=True)
class Images:
    """One image of each row. `present`: whether the event has it; `columns`: null where it has none, or none with the key."""

    present: Flags
    columns: Mapping[str, pa.Array]

    def column(self, name: str) -> pa.Array:
        return self.columns[name] if name in self.columns else pa.nulls(len(self.present))

    @property
    def doubles(self) -> list[str]:
        """The columns that were read as DOUBLE."""
        return [name for name, cells in self.columns.items() if cells.type == _DOUBLE]

    def with_texts(self, names: Collection[str], text: Callable[[pa.Array], pa.Array]) -> Images:
        """The images in which these columns, where they are texts, are others."""
        columns = {n: text(one) if n in names and pa.types.is_string(one.type) else one for n, one in self.columns.items()}
        return Images(self.present, columns)

    def slice(self, rows: slice) -> Images:
        """The images of consecutive rows."""
        return Images(self.present[rows], {name: cells[rows] for name, cells in self.columns.items()})


@dataclass(frozen=True)
class ImageKeys:
    """Where the images are. `after`, `before`: keys of an event; the event itself is the image if `after` is ''.

    `is_list`: they hold lists of rows. `is_partial`: `before` has only the columns that have changed. `not_columns`: the
    beginning of keys that are no columns, where the event is the image.
    """

    after: str
    before: str = ""
    is_list: bool = False
    is_partial: bool = False
    not_columns: str = ""


def images_in(columns: Mapping[str, pa.Array], keys: ImageKeys, count: int) -> tuple[Images, Images, Indices] | None:
    """The images after and before of `count` events, and of each row the index of its event; None if there are lists of rows, and
    those of an event do not fit each other.
    """
    after, before = columns.get(keys.after), columns.get(keys.before)
    return _rows_of_lists(after, before) if keys.is_list else (_image(after, count), _image(before, count), np.arange(count))


def _rows_of_lists(rows: pa.Array | None, old: pa.Array | None) -> tuple[Images, Images, Indices] | None:
    if rows is None or not pa.types.is_list(rows.type):
        return None
    sizes = pc.fill_null(pc.list_value_length(rows), 0).to_numpy().astype(np.int64)
    event = np.repeat(np.arange(len(rows)), sizes)
    after = _image(rows.flatten(), len(event))
    if not after.present.all():
        return None
    if old is None or not pa.types.is_list(old.type):
        return after, Images(np.zeros(len(event), bool), {}), event
    old_sizes = pc.fill_null(pc.list_value_length(old), 0).to_numpy().astype(np.int64)
    if ((old_sizes != sizes) & (old_sizes > 0)).any():
        return None
    first = np.cumsum(old_sizes) - old_sizes
    within = np.arange(len(event)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = pa.array(first[event] + within, mask=old_sizes[event] == 0)
    return after, _image(old.flatten().take(places), len(event)), event


def pairs_of(parsed: dict[str, Any], keys: ImageKeys) -> list[tuple[Any, dict[str, Any] | None]] | None:
    """The images (after, before) of an event; None if its lists do not fit each other. A partial image is completed."""
    if not keys.after:
        return [(parsed, None)]
    after, before = parsed.get(keys.after), parsed.get(keys.before)
    if not keys.is_list:
        after, before = [after], [before]
    after = after or []
    before = before or [None] * len(after)
    if len(before) != len(after) or (keys.is_list and not all(isinstance(one, dict) for one in after)):
        return None
    if keys.is_partial:
        before = [None if old is None else {**(new or {}), **old} for new, old in zip(after, before, strict=True)]
    return list(zip(after, before, strict=True))


def surrogate_in(parsed: Mapping[str, Any]) -> str:
    """Why a parsed event holds text that is no Unicode, or ''."""
    texts: Iterator[str] = _texts(parsed)
    return "" if all(map(is_utf8, texts)) else "it holds text that is not valid Unicode"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _image(rows: pa.Array | None, count: int) -> Images:
    if rows is None or not pa.types.is_struct(rows.type):
        return Images(np.zeros(count, bool), {})
    present = rows.is_valid().to_numpy(zero_copy_only=False)
    return Images(present, dict(zip([one.name for one in rows.type], rows.flatten(), strict=True)))


def of_one_type(one: pa.Array, other: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The values of a column in both images, as text if they differ in type."""
    if one.type == other.type:
        return one, other
    if pa.types.is_null(one.type):
        return one.cast(other.type), other
    if pa.types.is_null(other.type):
        return one, other.cast(one.type)
    return text_of_json(one), text_of_json(other)


def overlaid(old: Images, new: Images) -> Images:
    """A partial image completed by the other one, which has the columns that have not changed."""
    none = pa.array(~old.present)
    columns = {}
    for name in {**new.columns, **old.columns}:
        ours, theirs = old.column(name), new.column(name)
        whole = pc.coalesce(*of_one_type(ours, theirs))
        columns[name] = pc.if_else(none, pa.scalar(None, whole.type), whole)
    return Images(old.present, columns)


def rounded_rows(image: Images) -> Flags:
    """The rows with numbers that may have been whole numbers that a DOUBLE does not hold."""
    found = np.zeros(len(image.present), bool)
    with np.errstate(invalid="ignore"):
        for cells in image.columns.values():
            if cells.type == _DOUBLE:
                found |= np.abs(cells.to_numpy(zero_copy_only=False)) >= EXACT_INTEGER
    return found
