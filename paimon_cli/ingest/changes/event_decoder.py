"""Events of a change stream as rows of tables: which table, what happened, and the images before and after.

Arrow reads the names of tables and the kinds of events of a block of lines, and then the rows, of all tables that look the same
at once. What of an event was cut out for its rows is not parsed before; other events are parsed twice (`event_cuts`). Only events
that differ from all before are parsed by Python.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.debezium_types import declared_columns
from paimon_cli.ingest.changes.event_formats import NO_TEXT, EventFormat, EventKind, Path, Unchanging
from paimon_cli.ingest.changes.event_frames import FramedEvents, FrameReader, text_at
from paimon_cli.ingest.changes.event_images import Indices, one_array
from paimon_cli.ingest.changes.event_lines import BadEvent, EventLines
from paimon_cli.ingest.changes.event_payloads import payloads_of
from paimon_cli.ingest.changes.table_events import Codes, SourceTable, TableEvents, Wanted
from paimon_cli.ingest.changes.table_reader import TablePart, TableReader
from paimon_cli.ingest.faults import NOT_JSON
from paimon_cli.ingest.json_rows import parsed_line

_SEPARATOR = "\0"
DEAD_LETTER = b'{"dead_letter":'
_NULL = b"null"


@dataclass
class Decoded:
    """What a block of events holds. `bad`: events whose table cannot be told. `others`: how many events of each kind change no
    rows.
    """

    events: list[TableEvents] = field(default_factory=list)
    bad: list[BadEvent] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)


@dataclass
class EventDecoder:
    """Decodes the blocks of a stream. `wanted`: None for a table whose events are left out; `skips`: up to which position of the
    source the events of a table are left out, because they were applied before.
    """

    format: EventFormat
    wanted: Callable[[SourceTable], Wanted | None] = lambda table: Wanted()
    skips: Callable[[SourceTable], int] = lambda table: 0

    def __post_init__(self) -> None:
        self._tables, self._frames = TableReader(self.format), FrameReader(self.format)

    def decode(self, lines: EventLines) -> Decoded:
        """The rows of a block of events, in the order of the events of each table."""
        found = Decoded()
        lines = _objects(_unpacked(lines, found), found)
        if not len(lines):
            return found
        schemas, schema_of = list[bytes](), np.full(len(lines), -1)
        if self.format.wraps:
            payloads, schemas, schema_of = payloads_of(lines, self.format)
            lines = _objects(payloads, found)  # a payload may be null
            if len(lines) < len(payloads):
                schema_of = schema_of[np.isin(payloads.positions, lines.positions)]
        framed = self._frames.framed(lines.texts)
        texts, kept = self._texts(lines, framed, found)
        if len(kept) < len(lines):
            lines, schema_of = lines.take(kept), schema_of[kept]
            framed = None if framed is None else framed.take(kept)
        operations, unknown = self._operations(texts, lines, framed, found)
        names = self._names(texts, len(lines))
        self._refuse_nameless(names, lines, operations, unknown, found)
        for table, places in _groups(names, np.array(sorted(unknown), np.int64)):
            places = self._asked(table, self.wanted(table), lines, places)
            if len(places):
                bad = tuple(lines.bad(int(index), unknown[int(index)], table.name) for index in places)
                found.events.append(self._tables.refused(table, lines, bad))
        parts = list[TablePart]()
        for table, places in _groups(names, np.flatnonzero(operations >= 0)):
            parts += self._parts(table, lines, places, operations, (schemas, schema_of))
        read = {} if framed is None else self._tables.read_cut(parts, lines, framed)
        for index, part in enumerate(parts):
            if index in read:
                found.events += self._tables.cut_by_types(read[index])
            elif (whole := self._whole(part, lines, framed, found)) is not None:
                found.events += self._tables.cut_by_types(self._tables.read(whole, lines.take(whole.places)))
        return found

    def _asked(self, table: SourceTable, wanted: Wanted | None, lines: EventLines, places: Indices) -> Indices:
        """Those of the events of a table that are not left out."""
        if wanted is None:
            return places[:0]
        begin = self.skips(table)
        return places if begin <= lines.positions[0] else places[lines.positions[places] >= begin]

    def _parts(
        self, table: SourceTable, lines: EventLines, places: Indices, operations: Codes, schemas: tuple[list[bytes], Codes]
    ) -> list[TablePart]:
        """The events of one table, cut where a truncation or another schema begins."""
        wanted = self.wanted(table)
        places = self._asked(table, wanted, lines, places)
        if wanted is None or not len(places):
            return []
        texts, schema_of = schemas
        of_events, ours = schema_of[places], operations[places]
        cuts = np.empty(0, np.int64)
        if (of_events != of_events[0]).any() or (ours == EventKind.TRUNCATE).any():
            truncates = ours == EventKind.TRUNCATE
            cuts = np.flatnonzero((np.diff(of_events * 2 + truncates) != 0) | truncates[1:]) + 1
        found = list[TablePart]()
        for part in np.split(places, cuts) if len(cuts) else [places]:
            number = int(schema_of[part[0]])
            schema = None if number < 0 else declared_columns(texts[number])
            found.append(TablePart(table, part, operations[part], schema, wanted))
        return found

    def _whole(self, part: TablePart, lines: EventLines, framed: FramedEvents | None, found: Decoded) -> TablePart | None:
        """The part without events that are no JSON, which cutting did not show; None if nothing is left."""
        if framed is None or not (cut := framed.at[part.places] >= 0).any():
            return part
        asked = part.places[cut]
        _, kept = self._texts(lines.take(asked), None, found)
        if len(kept) == len(asked):
            return part
        keep = ~cut
        keep[np.flatnonzero(cut)[kept]] = True
        return replace(part, places=part.places[keep], operations=part.operations[keep]) if keep.any() else None

    def _texts(self, lines: EventLines, framed: FramedEvents | None, found: Decoded) -> tuple[Mapping[Path, pa.Array], Indices]:
        """The texts at the paths of the format, and the indices of the events that could be read."""
        paths = self.format.paths
        if framed is None:
            return self._texts_of_whole(lines, found)
        count = len(framed.cut.chosen)
        texts = {path: text_at(framed.columns, path) for path in paths}
        ours = {path: pa.nulls(count, pa.string()) if cells is None else cells for path, cells in texts.items()}
        others = np.flatnonzero(framed.at < 0)
        if not len(others):
            return ours, np.arange(len(lines))
        theirs, kept = self._texts_of_whole(lines.take(others), found)
        indices = np.concatenate([framed.cut.chosen, others[kept]])
        order = np.argsort(indices)
        both = {path: pa.concat_arrays([ours[path], theirs[path]]).take(pa.array(order)) for path in paths}
        return both, indices[order]

    def _texts_of_whole(self, lines: EventLines, found: Decoded) -> tuple[Mapping[Path, pa.Array], Indices]:
        paths = self.format.paths
        everything = np.arange(len(lines))
        if not paths:
            return {}, everything
        table = lines.parsed(_schema_of(paths), "ignore")
        if table is not None:
            return {path: _at(table, path) for path in paths}, everything
        rows, kept = list[dict[Path, str | None]](), list[int]()
        for index in range(len(lines)):  # an event in this block is malformed
            parsed, problem = parsed_line(lines.text(index))
            try:
                texts = {} if problem else {path: _text_at(parsed, path, path == self.format.operation) for path in paths}
            except ValueError as why:
                problem = str(why)
            if problem:
                found.bad.append(lines.bad(index, problem))
            else:
                rows.append(texts)
                kept.append(index)
        return {path: pa.array([row[path] for row in rows], pa.string()) for path in paths}, np.array(kept, np.int64)

    def _operations(
        self, texts: Mapping[Path, pa.Array], lines: EventLines, framed: FramedEvents | None, found: Decoded
    ) -> tuple[Codes, dict[int, str]]:
        """What each event does; -1 for events without rows, which are counted, and for others of no known kind, with why."""
        format, unknown = self.format, dict[int, str]()
        if not format.operation:
            return np.full(len(lines), EventKind.CREATE), unknown
        named = pc.fill_null(texts[format.operation], NO_TEXT)
        known = list(format.operations)
        codes = np.array([*format.operations.values(), -1])
        places = pc.fill_null(pc.index_in(named, pa.array(known)), len(known)).to_numpy()
        operations = codes[places]
        if format.deleted:
            is_deleted = pc.fill_null(pc.equal(texts[format.deleted], "true"), False)
            operations = np.where(is_deleted.to_numpy(zero_copy_only=False), EventKind.DELETE, operations)
        for index in np.flatnonzero(operations < 0).tolist():
            is_cut = framed is not None and framed.at[index] >= 0
            if is_cut and (problem := parsed_line(lines.text(index))[1]):  # nobody parses its images
                found.bad.append(lines.bad(int(index), problem))
                continue
            operation = named[int(index)].as_py()
            kind = self._kind_of_other(int(index), operation, texts, lines)
            if kind is not None:
                found.others[kind] += 1
                continue
            key = ".".join(format.operation)
            why = f"its '{key}' is '{operation[:60]}'" if operation else f"it has no '{key}'"
            unknown[int(index)] = f"{why}, so that it is no change that {format.name} knows"
        return operations, unknown

    def _kind_of_other(self, index: int, operation: str, texts: Mapping[Path, pa.Array], lines: EventLines) -> str | None:
        """The kind of an event without rows; None if it is none that is known. These are few."""
        kind = self.format.others.get(operation)
        for path, of_mark in self.format.marks.items():
            if kind is None and not operation and texts[path][index].is_valid:
                kind = of_mark
        if kind is None and not operation and _is_heartbeat(lines.text(index)):
            kind = Unchanging.HEARTBEAT
        return kind

    def _names(self, texts: Mapping[Path, pa.Array], count: int) -> pa.Array:
        """Database, schema and table of each event, in one text."""
        parts = []
        for paths in (self.format.database, self.format.schema, self.format.table):
            part = pa.repeat("", count) if not paths else pc.fill_null(pc.coalesce(*(texts[path] for path in paths)), "")
            parts.append(part)
        return pc.binary_join_element_wise(*parts, _SEPARATOR)

    def _refuse_nameless(
        self, names: pa.Array, lines: EventLines, operations: Codes, unknown: dict[int, str], found: Decoded
    ) -> None:
        """Add events without a table to the bad ones, and those whose names hold the separator. `unknown`: why others
        are of no known kind, without these afterwards.
        """
        part, many = f"[^{_SEPARATOR}]", "+" if self.format.names_tables else "*"
        codes = pc.dictionary_encode(names)
        has_table = pc.match_substring_regex(codes.dictionary, f"^{part}*{_SEPARATOR}{part}*{_SEPARATOR}{part}{many}$")
        lacks = ~has_table.to_numpy(zero_copy_only=False)
        named = operations >= 0
        named[list(unknown)] = True
        for index in np.flatnonzero(lacks[codes.indices.to_numpy()] & named):
            problem = unknown.pop(int(index), "") or parsed_line(lines.text(int(index)))[1]  # nobody has parsed all of it
            found.bad.append(lines.bad(int(index), problem or "it names no table"))
            operations[index] = -1


def _unpacked(lines: EventLines, found: Decoded) -> EventLines:
    """The events without tombstones, and with those that `--on-error FILE` has set apart as they were."""
    tombstones = pc.equal(lines.texts, pa.scalar(_NULL, pa.large_binary())).to_numpy(zero_copy_only=False)
    if tombstones.any():
        found.others[Unchanging.TOMBSTONE] += int(tombstones.sum())
        lines = lines.take(np.flatnonzero(~tombstones))
    letters = pc.starts_with(lines.texts, DEAD_LETTER).to_numpy(zero_copy_only=False)
    if not letters.any():
        return lines
    texts = lines.texts.to_pylist()
    for index in np.flatnonzero(letters):
        parsed, problem = parsed_line(texts[index])
        if not problem and isinstance(parsed.get("event"), str):
            with contextlib.suppress(UnicodeEncodeError):
                texts[index] = parsed["event"].encode(errors="surrogateescape")
    return lines.with_texts(pa.array(texts, pa.large_binary()))


def _objects(lines: EventLines, found: Decoded) -> EventLines:
    """The lines that look like JSON objects. Arrow must not see others: a block of nulls crashes its parser."""
    looks = pc.and_(pc.starts_with(lines.texts, b"{"), pc.ends_with(lines.texts, b"}")).to_numpy(zero_copy_only=False)
    if looks.all():
        return lines
    texts = list[bytes]()
    kept = list[int]()
    for index in range(len(lines)):
        text = lines.text(index).strip(b" \t\r\n")
        if text.startswith(b"{") and text.endswith(b"}"):
            kept.append(index)
            texts.append(text)
        elif text == _NULL:
            found.others[Unchanging.TOMBSTONE] += 1
        elif text:
            found.bad.append(lines.bad(index, f"{NOT_JSON}an event is an object on a line of its own"))
    return lines.take(np.array(kept, np.int64)).with_texts(pa.array(texts, pa.large_binary()))


def _schema_of(paths: tuple[Path, ...]) -> pa.Schema:
    """Text columns at these paths, which have one or two parts."""
    top: dict[str, list[str]] = {}
    for path in paths:
        top.setdefault(path[0], []).extend(path[1:])
    return pa.schema(
        [(key, pa.struct([(one, pa.string()) for one in inner]) if inner else pa.string()) for key, inner in top.items()]
    )


def _at(table: pa.Table, path: Path) -> pa.Array:
    cells = one_array(table[path[0]])
    return cells if len(path) == 1 else pc.struct_field(cells, path[1])


def _text_at(parsed: Mapping[str, Any], path: Path, is_kind: bool) -> str | None:
    """The text at a path. Raises `ValueError` for another value; of the kind of an event it is the JSON, as that of no kind."""
    value: Any = parsed
    for key in path:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError(f"its '{key}' is in no object")
        value = value.get(key)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is not None and not isinstance(value, str) and is_kind:
        return json.dumps(value)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"its '{'.'.join(path)}' is no text")
    if value is not None:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it holds text that is not valid Unicode") from None
    return value


def _is_heartbeat(text: bytes) -> bool:
    parsed, problem = parsed_line(text)
    return not problem and bool(parsed) and parsed.keys() <= {"ts_ms", "ts_us", "ts_ns"}


def _groups(names: pa.Array, chosen: Indices) -> Iterator[tuple[SourceTable, Indices]]:
    """The chosen events of each table, in the order in which the tables first occur."""
    codes = pc.dictionary_encode(names.take(pa.array(chosen)))
    numbers = codes.indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(codes.dictionary) + 1))
    for number, name in enumerate(codes.dictionary.to_pylist()):
        database, schema, table = name.split(_SEPARATOR)
        yield SourceTable(database, table, schema), chosen[order[bounds[number] : bounds[number + 1]]]
