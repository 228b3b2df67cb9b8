"""Infers the columns of a table from existing files, for `create --from-file`. A write with the same options accepts those files.

A column of texts gets the first type that fits all of them, checked by the functions that a write uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.datatypes.arrow_types import type_from_arrow
from paimon_cli.datatypes.data_type import STRING, DataField, DataType, TimestampType
from paimon_cli.errors import BadInput
from paimon_cli.ingest.csv_rows import csv_batches
from paimon_cli.ingest.faults import Fault, converted, suggested_options
from paimon_cli.ingest.json_rows import json_blocks, parsed_line
from paimon_cli.ingest.source_files import SourceSplit, arrow_file, plan_sources
from paimon_cli.ingest.text_blocks import line_bounds, text_stream
from paimon_cli.ingest.text_form import PLAIN, TEXT_FORMATS, TextForm
from paimon_cli.ingest.text_values import text_of_cells
from paimon_cli.ingest.type_evidence import ValueEvidence, type_note, values_by_key
from paimon_cli.storage.storage_for_url import storage_for_url

NANOSECONDS = 9
DECLARE = "correct the input, or declare the columns with -C and write with --on-error FILE, which lists the rows left out"


@dataclass(frozen=True)
class InferredColumns:
    """Inferred columns, and notes for the user. `rows`: how many rows were examined; None if the file states its types."""

    fields: tuple[DataField, ...]
    rows: int | None = None
    warnings: tuple[str, ...] = ()


def columns_of_file(
    source: str,
    format: str | None = None,
    form: TextForm = PLAIN,
    storage_options: Mapping[str, str] | None = None,
    declared: Mapping[str, DataType] | None = None,
) -> InferredColumns:
    """Infer columns, with the names in the files. All rows of text files are read, so that the types fit each of them.

    `source`: a file, glob or directory, as for a write. `declared`: types by column name; these columns of text files are not
    inferred. Raises `NotFound`, `UsageError`, `BadInput`.
    """
    splits = plan_sources([source], format, storage_options, form)
    formats = {split.format for split in splits}
    if len(formats) > 1 or (len({split.path for split in splits}) > 1 and not formats <= set(TEXT_FORMATS)):
        raise BadInput(f"{source} is several files", "columns are inferred from one file, or from text files of one format")
    scan = _Scan(form, storage_options, declared or {})
    for split in splits:
        scan.add(split)
    return scan.columns()


class _Scan:
    """What was observed in the files so far."""

    def __init__(self, form: TextForm, storage_options: Mapping[str, str] | None, declared: Mapping[str, DataType]) -> None:
        self._form = form
        self._declared = declared
        self._storage_options = storage_options
        self._evidence: dict[str, ValueEvidence] = {}
        self._stated_schema: pa.Schema | None = None
        self._rows = 0

    def add(self, split: SourceSplit) -> None:
        storage, path = storage_for_url(split.path, self._storage_options)
        open_source = partial(storage.open_input, path)
        if split.format == "csv":
            self._add_csv(split, open_source)
            return
        with open_source() as stream:
            if split.format == "json":
                self._add_json(split, text_stream(stream, split.path, split.name, self._form.encoding))
            else:
                self._stated_schema = _stated_schema(split, stream)

    def _add_csv(self, split: SourceSplit, open_source: Callable[[], BinaryIO]) -> None:
        for raw in csv_batches(open_source, split, self._form):
            if raw.faults:
                raise _bad_row(raw.faults[0])
            self._rows += raw.batch.num_rows
            for name, cells in zip(raw.batch.schema.names, raw.batch.columns, strict=True):
                evidence = self._evidence.setdefault(name, ValueEvidence.of_csv(self._form))
                if name in self._declared:
                    continue
                texts, undecodable = converted(cells, text_of_cells)
                for cell in undecodable[:1]:
                    raise _bad_row(split.fault(int(raw.rows[cell.row]), cell.why, name, cell.value))
                evidence.texts.add(texts)

    def _add_json(self, split: SourceSplit, stream: BinaryIO) -> None:
        before = self._rows  # of other files
        for block in json_blocks(stream, split):
            objects: list[dict[str, Any]] = []
            for start, end in zip(*line_bounds(block), strict=True):
                parsed, problem = parsed_line(block[start:end], parse_constant=Decimal)
                if problem:
                    raise _bad_row(split.fault(self._rows - before, problem))
                objects.append(parsed)
                self._rows += 1
            for key, values in values_by_key(objects).items():
                evidence = self._evidence.setdefault(key, ValueEvidence.of_json(self._form))
                try:
                    evidence.add([] if key in self._declared else values)
                except UnicodeEncodeError as problem:
                    what = f"{split.name}: column '{key}' holds text that is not valid Unicode"
                    raise BadInput(what, str(problem), DECLARE) from problem

    def columns(self) -> InferredColumns:
        notes: list[str] = []
        if self._stated_schema is not None:
            return InferredColumns(tuple(_stated_field(column, notes) for column in self._stated_schema), None, tuple(notes))
        if not self._evidence:
            raise BadInput("the input has no columns", "it is empty", "declare the columns with -C")
        types = self._same_precision(self._inferred_types(notes), notes)
        fields = tuple(DataField(0, name, types.get(name) or self._declared[name]) for name in self._evidence)
        return InferredColumns(fields, self._rows, tuple(notes))

    def _inferred_types(self, notes: list[str]) -> dict[str, DataType]:
        ids = count()
        inferred = {name: evidence for name, evidence in self._evidence.items() if name not in self._declared}
        return {name: evidence.conclusion(name, notes, ids) for name, evidence in inferred.items()}

    def _same_precision(self, types: dict[str, DataType], notes: list[str]) -> dict[str, DataType]:
        """The types with nine digits for all timestamps if one has them, because a Parquet file stores all in one way.

        If the years of a column do not allow nine digits, the columns that need them become text.
        """
        timestamps = {name: t for name, t in types.items() if isinstance(t, TimestampType)}
        precise = [name for name, t in timestamps.items() if t.precision == NANOSECONDS]
        if not precise:
            return types
        wide = next((name for name in timestamps if not self._evidence[name].texts.accepts_nanoseconds), None)
        if wide is None:
            return {**types, **{name: TimestampType(t.root, NANOSECONDS) for name, t in timestamps.items()}}
        reason = f"its nine digits cannot be combined with the years of '{wide}'"
        notes += (type_note(name, STRING, reason) for name in precise)
        return {**types, **dict.fromkeys(precise, STRING)}


def _bad_row(fault: Fault) -> BadInput:
    return BadInput(fault.what, fault.why, suggested_options([fault]) or DECLARE)


def _stated_schema(split: SourceSplit, stream: BinaryIO) -> pa.Schema:
    try:
        if split.format == "parquet":
            return pq.read_schema(stream).remove_metadata()
        return OrcFile(stream).schema if split.format == "orc" else arrow_file(stream)[0].remove_metadata()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise BadInput(f"cannot read {split.name} as {split.format}", str(error).split("\n")[0]) from error


def _stated_field(column: pa.Field, notes: list[str]) -> DataField:
    if pa.types.is_null(column.type):
        notes.append(type_note(column.name, STRING, "it has no values"))
        return DataField(0, column.name, STRING)
    return DataField(0, column.name, type_from_arrow(column.type, column.nullable))
