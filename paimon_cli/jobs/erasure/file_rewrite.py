"""Tasks on single data files: which keys match, how many rows are erased, and the same file without them.

A file without its erased rows is a file of its own, with another name: rows keep their order, sequence numbers and kinds, the
file its level, schema and format. Its metadata and indexes are built from the rows that are left. Ids of rows that followed
from their positions are stored from then on, as in files that an update writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import file_format, read_data_file
from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.file_encoders import codec_of
from paimon_cli.bucket.file_indexes import INDEX_KINDS, SUFFIX
from paimon_cli.bucket.stamped_files import DataFileNames, stamped_uuid
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.erasure.erased_rows import ErasedRows, Mask
from paimon_cli.jobs.erasure.inventory import StoredFile
from paimon_cli.maintain.named_files import FileKey, key_of_file
from paimon_cli.metadata.data_file import SOURCE_APPEND, SOURCE_COMPACT, DataFileMeta, ManifestEntry, SimpleStats
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, TRACKING_COLUMNS, merge_schema, tracked_rows
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import SNAPSHOT_ORDERING, TableOptions
from paimon_cli.pieces import PIECES
from paimon_cli.sql.predicate import Predicate

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_STATS = SimpleStats()
_ONE_FILE = {"target-file-size": f"{2**62} b"}
_OF_THE_TABLE = ("file.format.per.level", "target-file-row-num", SNAPSHOT_ORDERING)
"""Options that say how the table's next files are written, or that replace stored sequence numbers in reads."""


@dataclass(frozen=True)
class Histories:
    """The branches of a table, as tasks need them. Picklable."""

    branches: Mapping[str, TableContext]
    rows: ErasedRows | None = None
    predicates: Mapping[str, Predicate] = field(default_factory=dict)

    def matching_keys(self, file: StoredFile) -> list[pa.RecordBatch]:
        """The keys of the rows of a file that match the condition: any stored version counts."""
        context, predicate = self.branches[file.branch], self.predicates[file.branch]
        names = context.schema.primary_keys
        columns = tuple(dict.fromkeys((*names, *predicate.columns)))
        found = (predicate.filtered(batch).select(list(names)) for batch in _read(context, file.entry, columns))
        return [_distinct(batch) for batch in found if batch.num_rows]

    def count(self, file: StoredFile) -> int:
        """The number of erased rows in a file."""
        return sum(int(np.count_nonzero(mask)) for mask in self._masks(file))

    def count_if_there(self, file: StoredFile) -> int:
        """The number of erased rows in a file; none in one that was removed, and that only manifests remember."""
        context, entry = self.branches[file.branch], file.entry
        return self.count(file) if context.storage.exists(context.data_file_path(*entry.bucket_id, entry.file)) else 0

    def _masks(self, file: StoredFile) -> Iterator[Mask]:
        assert self.rows is not None
        columns = self.rows.columns(file.branch)
        context = self.branches[file.branch]
        if not columns:  # a condition without columns, such as TRUE
            columns = context.schema.field_names[:1]
        for batch in _read(context, file.entry, tuple(columns)):
            yield self.rows.mask(file.branch, batch)

    def rewrite(self, task: RewriteTask) -> RewrittenFile:
        """Write the file again without its erased rows; if none is left, no file is written."""
        file = task.file
        is_erased = np.concatenate([np.zeros(0, bool), *self._masks(file)])
        branch = self.branches[file.branch]
        writer = _writer(branch, file.entry, new_name(branch, file.entry.file.file_name, task.stamp))
        try:
            position = 0
            for batch in _stored_rows(writer.context, file.entry):
                kept = batch.filter(pa.array(~is_erased[position : position + batch.num_rows]))
                position += batch.num_rows
                if kept.num_rows:
                    writer.files.write(kept)
            files = writer.files.close()
        except BaseException:
            writer.files.abort()
            raise
        return RewrittenFile(file.entry, files[0] if files else None, np.flatnonzero(is_erased))


def _distinct(batch: pa.RecordBatch) -> pa.RecordBatch:
    grouped = pa.Table.from_batches([batch]).group_by(batch.schema.names).aggregate([]).combine_chunks()
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in grouped.columns], schema=batch.schema)


@dataclass(frozen=True)
class RewriteTask:
    """A file to write again. Its new name has the `stamp` of the erasure: each attempt of the task makes a file of its own."""

    file: StoredFile
    stamp: str


@dataclass(frozen=True, eq=False)
class RewrittenFile:
    """A data file (`before`), what takes its place, and the positions of the erased rows (ascending). `after`: None if no row is
    left, or if the file itself is gone and only metadata remembered it.
    """

    before: ManifestEntry
    after: DataFileMeta | None
    erased: np.ndarray

    @property
    def key(self) -> FileKey:
        return key_of_file(self.before)

    @property
    def rows(self) -> int:
        """How many rows of the file are gone."""
        return self.before.file.row_count - (0 if self.after is None else self.after.row_count)

    def entry(self, entry: ManifestEntry) -> ManifestEntry | None:
        """A manifest entry of the file as one of the new file; None if there is none.

        Level, source, time and range of sequence numbers stay what they are in the entry. Files are ordered by them.
        """
        if self.after is None:
            return None
        old, new = entry.file, self.after
        has_index = old.embedded_file_index is not None or any(name.endswith(SUFFIX) for name in old.extra_files)
        file = replace(
            old,
            file_name=new.file_name,
            file_size=new.file_size,
            row_count=new.row_count,
            min_key=new.min_key,
            max_key=new.max_key,
            key_stats=_NO_STATS if old.key_stats == _NO_STATS else new.key_stats,
            value_stats=_NO_STATS if old.value_stats == _NO_STATS else new.value_stats,
            value_stats_cols=old.value_stats_cols if old.value_stats == _NO_STATS else new.value_stats_cols,
            delete_row_count=None if old.delete_row_count is None else new.delete_row_count,
            extra_files=new.extra_files if has_index else (),
            embedded_file_index=new.embedded_file_index if has_index else None,
            first_row_id=None if new.stores_row_ids else old.first_row_id,
            write_cols=new.write_cols,
        )
        return replace(entry, file=file)


def new_name(context: TableContext, old: str, stamp: str) -> str:
    """The name of the file that takes the place of another: with another UUID, which begins with the stamp. It keeps the writer
    of a postponed file.
    """
    uuid = stamped_uuid(context, stamp)
    found = list(_UUID.finditer(old))
    if found:
        return old[: found[-1].start()] + uuid + old[found[-1].end() :]
    stem, dot, suffix = old.partition(".")
    return f"{stem}-{uuid}{dot}{suffix}"


def _read(context: TableContext, entry: ManifestEntry, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    return read_data_file(context, entry.bucket_id, entry.file, columns, PIECES.batch_rows)


def _stored_rows(context: TableContext, entry: ManifestEntry) -> Iterator[pa.RecordBatch]:
    """All rows of a file as its writer takes them, in its own schema. In append tables only rows with ids have numbers."""
    if _has_row_ids(context, entry.file):
        for batch in _read(context, entry, (*TRACKING_COLUMNS, *context.schema.field_names)):
            yield tracked_rows(context.schema, dict(zip(batch.schema.names, batch.columns, strict=True)))
        return
    schema, keyed = merge_schema(context.schema), bool(context.schema.primary_keys)
    names = [name for name in schema.names if keyed or name != SEQUENCE_NUMBER]
    arrival = entry.file.min_sequence_number
    for batch in read_data_file(context, entry.bucket_id, entry.file, names, PIECES.batch_rows):
        columns = dict(zip(names, batch.columns, strict=True))
        if not keyed:
            columns[SEQUENCE_NUMBER] = pa.array(np.arange(arrival, arrival + batch.num_rows, dtype=np.int64))
            arrival += batch.num_rows
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _has_row_ids(context: TableContext, file: DataFileMeta) -> bool:
    """Whether the rows have ids, which the file stores, or which follow from their positions (FORMAT.md, section 7.5)."""
    follows = file.first_row_id is not None or file.file_source == SOURCE_COMPACT
    return context.mode.tracks_rows and (file.stores_row_ids or follows)


@dataclass(frozen=True)
class _Writer:
    context: TableContext
    files: DataFileWriter


class _OneName(DataFileNames):
    """The name of the only file of a writer, which takes the place of the file `old`."""

    def __init__(self, name: str, old: str) -> None:
        self._name = name
        self._old = old
        self._is_taken = False

    def next(self, file_format: str) -> str:
        if self._is_taken:
            why = "its rows do not fit into one file of its form, and positions of its rows refer to one file"
            raise NotSupported(f"erase cannot write {self._old} again", why, "compact the table, and expire its snapshots")
        self._is_taken = True
        return self._name


def _writer(branch: TableContext, entry: ManifestEntry, name: str) -> _Writer:
    """A writer of one file with the schema, format and level of another."""
    file = entry.file
    context = branch.at_schema(file.schema_id)
    options = context.options.of_changelog_files if name.startswith(context.options.changelog_file_prefix) else context.options
    context = context.redefined(options=_options_of_file(options, file, context.schema))
    source = SOURCE_APPEND if file.file_source is None else file.file_source
    names, tracks = _OneName(name, file.file_name), _has_row_ids(context, file)
    return _Writer(
        context, DataFileWriter(context, entry.bucket_id, level=file.level, source=source, names=names, tracks_rows=tracks)
    )


def _options_of_file(options: TableOptions, file: DataFileMeta, schema: TableSchema) -> TableOptions:
    """The options with which a file is written as one of its form: the table may have others by now."""
    form = file_format(file.file_name)
    own = {key: value for key, value in options.raw.items() if key not in _OF_THE_TABLE}
    own.update({"file.format": form, **_ONE_FILE})
    try:
        codec_of(form, options.compression_at(file.level))
    except UsageError:
        own["file.compression"] = "zstd"
        own.pop("file.compression.per.level", None)
    has_index = file.embedded_file_index is not None or any(name.endswith(SUFFIX) for name in file.extra_files)
    for kind in INDEX_KINDS:
        columns = [name.strip() for name in own.pop(kind.columns_option, "").split(",")]
        known = [name for name in columns if name in schema.field_names]
        if has_index and known:
            own[kind.columns_option] = ",".join(known)
    if file.value_stats == _NO_STATS:
        own["metadata.stats-mode"] = "none"
        own.pop("metadata.stats-mode.per.level", None)
    return TableOptions(own)
