"""`adopt --primary-key`: the rows of a source are written into a table with a primary key, in one commit.

The rows take the write path, in this process or as tasks on Spark; rows with the same key are merged as the table's options say.
The source counts as read only if none of its files has changed until the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import BadInput, DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import RowSource, columnar_batches
from paimon_cli.ingest.source_files import RawRows, SourceSplit, row_group_pieces
from paimon_cli.ingest.text_form import PLAIN, TextForm
from paimon_cli.jobs.adoption.adopt_job import delete_source, new_table
from paimon_cli.jobs.adoption.adoption_plan import Adopted, Adoption
from paimon_cli.jobs.adoption.footers import FileFooter
from paimon_cli.jobs.adoption.hive import renamed_columns
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.jobs.write_job import commit_rows, work_of, write_input
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import overlapping_writes
from paimon_cli.storage.storage_for_url import storage_for_url


@dataclass(frozen=True)
class AdoptedSplit(SourceSplit):
    """Rows of one file. `values`: of the partition columns."""

    values: tuple[pa.Scalar, ...] = ()


@dataclass(frozen=True)
class AdoptedRows(RowSource):
    """The rows of a source: the columns of its files, and those partition columns that the files lack.

    `root`: the directory in which the files are; `options`: of its store. `values`: of the partition columns, by file.
    `renamed`: columns of the files that have other names in the table. Tasks get no `footers` and `values`: what one needs of
    them is in its splits, and there may be tens of thousands of files.
    """

    root: str
    options: Mapping[str, str] = field(repr=False)
    footers: tuple[FileFooter, ...] = field(repr=False)
    names: tuple[str, ...]
    values: Mapping[str, tuple[pa.Scalar, ...]] = field(repr=False)
    renamed: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "footers": (), "values": {}}

    @property
    def form(self) -> TextForm:
        return PLAIN

    @property
    def paths(self) -> Sequence[str]:
        return [self.root]

    def plan(self, *, allow_empty: bool = False) -> list[SourceSplit]:
        """Rows of later files, in the order of their paths, arrive later."""
        splits: list[SourceSplit] = []
        order = 0
        for footer in self.footers:
            path, size = footer.file.path, footer.file.size
            pieces = self._pieces(footer)
            for start, length, first_row, rows in pieces:
                share = size // len(pieces)
                values = self.values[path]
                splits.append(
                    AdoptedSplit(path, footer.format, start, length, first_row, order, path, share, rows, values=values)
                )
                order += rows
        return splits

    def _pieces(self, footer: FileFooter) -> list[tuple[int, int | None, int, int]]:
        if footer.format != "parquet" or footer.file.size <= PIECES.parquet_split_bytes:
            return [(0, None, 0, footer.rows)]
        storage, root = storage_for_url(self.root, self.options, confined=True)
        with storage.open_input(f"{root}/{footer.file.path}") as stream:
            return list(row_group_pieces(pq.read_metadata(stream)))

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        storage, root = storage_for_url(self.root, self.options, confined=True)
        assert isinstance(split, AdoptedSplit)
        values = dict(zip(self.names, split.values, strict=True))
        with storage.open_input(f"{root}/{split.path}") as stream:
            for raw in columnar_batches(stream, split):
                batch = raw.batch
                if self.renamed:
                    batch = batch.rename_columns([self.renamed.get(name, name) for name in batch.schema.names])
                for name, value in values.items():
                    if name not in batch.schema.names:
                        batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
                yield RawRows(batch, raw.rows, raw.faults)


def rewrite(adoption: Adoption, store: Mapping[str, str], engine: Engine, progress: Progress) -> Adopted:
    """Create the table, write the rows, and commit them. `store`: the options of the source's store.

    After a failure there is no table, unless the outcome of the commit is unknown. If the source is to go, its files are deleted
    last; see `delete_source`. Raises `BadInput` for rows that do not fit, such as a null in a key.
    """
    with new_table(adoption) as context, overlapping_writes(context.storage):
        request = WriteRequest(source=_rows_of(adoption, store, context))
        identity = fresh_identity(context)
        plan = plan_write(context, request, identity.user)
        engine.prepare(work_of(request.source, plan.splits), progress)
        try:
            written, found = write_input(plan, request, engine, progress)
        except BadInput as bad:
            bad.set_hint("nothing was adopted; choose a key that each row has, or repair the rows in the source")
            raise
        with NewFiles(context, plan.file_stamp).deleted_on_failure():
            adoption.expect_unchanged(context.read_threads)
            if found.rows != adoption.rows:
                why = f"{found.rows:,} rows were read, and the footers of its files say {adoption.rows:,}"
                raise DamagedFile(f"{adoption.source.root} is not what its footers say", why, "look for the damaged file")
        result, _ = commit_rows(Committer(context), plan, written.messages, request, identity)
    done = adoption.done(result.snapshots[-1].id, _duplicates(context, adoption.rows))
    delete_source(adoption, context.read_threads)
    return done


def _rows_of(adoption: Adoption, store: Mapping[str, str], context: TableContext) -> AdoptedRows:
    names = adoption.source.keys
    types = [context.schema.field(name).type for name in names]
    known = {
        texts: tuple(values_to_arrow([value], t)[0] for value, t in zip(found, types, strict=True))
        for texts, found in adoption.values.items()
    }
    values = {file.path: known[file.partition] for file in adoption.source.files}
    renamed = renamed_columns(adoption.source, adoption.footers[0].fields)
    return AdoptedRows(adoption.source.root, store, tuple(adoption.footers), names, values, renamed)


def _duplicates(context: TableContext, rows: int) -> int | None:
    """How many of the rows were merged into others; None if rows wait for a compaction."""
    scan = plan_rows(context, ReadRequest())
    return None if scan.plan.counts.waiting_records else rows - scan.count()
