"""Copies row groups into the files that a compaction writes, with what its metadata needs of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from paimon_cli.bucket.data_file_reader import FilePart, read_part
from paimon_cli.bucket.data_file_writer import CopiedFile, DataFileWriter
from paimon_cli.bucket.decoding import decoding
from paimon_cli.bucket.file_index import FileIndex
from paimon_cli.bucket.file_indexes import IndexBuilder, IndexedColumn, indexed_columns
from paimon_cli.bucket.key_range import RangeReader
from paimon_cli.bucket.stitched_files import StoredGroups
from paimon_cli.compact.append_rewriter import columns_without_bounds
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.compact.untouched_groups import UntouchedGroup
from paimon_cli.history.table_context import TableContext
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import open_sized


@dataclass
class GroupCopier:
    """Copies row groups of one file after the other, which is open until the `with` block ends."""

    context: TableContext
    task: CompactionTask
    writer: DataFileWriter
    range: RangeReader | None
    _opened: ExitStack = field(default_factory=ExitStack)
    _name: str = ""
    _file: CopiedFile | None = None

    def __enter__(self) -> GroupCopier:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def copy(self, group: UntouchedGroup) -> None:
        path = self.context.data_file_path(*self.task.bucket_id, group.file)
        with decoding(path):
            if self._file is None or self._name != group.file.file_name:
                self._opened.close()
                source = self._opened.enter_context(open_sized(self.context.storage, path, group.file.file_size))
                stored = StoredGroups(source, self.writer.frame)
                self._file = CopiedFile(stored, columns_without_bounds(self.context.schema, group.file), {})
                self._name = group.file.file_name
            copied = self._file.stored.groups[group.number]
            file = replace(self._file, indexes=self._indexes(group))
            self.writer.copy_group(file, copied, group.sequences, group.bounds)
        if self.range is not None:
            self.range.counts[group.file.file_name] += copied.rows

    def _indexes(self, group: UntouchedGroup) -> Mapping[IndexedColumn, FileIndex]:
        """The file indexes of this group only: that of its file also has values which newer rows have replaced."""
        columns = indexed_columns(self.context.schema, self.context.options)
        builder = IndexBuilder(columns, self.context.options)
        if columns:
            names = list(dict.fromkeys(column.field.name for column in columns))
            only = FilePart(keeps=lambda _, number: number == group.number)
            for _, rows in read_part(self.context, self.task.bucket_id, group.file, names, PIECES.batch_rows, only):
                builder.add(rows)
        return builder.indexes
