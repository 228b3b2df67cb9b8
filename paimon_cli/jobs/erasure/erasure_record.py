"""The record of an erasure that was begun: what a command that was killed has to finish.

    TABLE/removal/removal-UUID    kind, keys, and the files to delete once no version names them (JSON)

It is there before the first new file, and deleted after the last old one. The files in it are those that the erasure replaces and
those that it writes, so none of them belongs to a commit of another job. The keys are in it because the versions of a key that
matched the condition may be gone already, while its other versions are left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from paimon_cli.bucket.stamped_files import new_stamp, uuid_prefix
from paimon_cli.datatypes.arrow_types import arrow_type, values_to_arrow
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.erasure.file_rewrite import RewrittenFile
from paimon_cli.maintain.removed_versions import ERASURE
from paimon_cli.metadata.data_file import DataFileMeta, IndexFileMeta, ManifestEntry
from paimon_cli.metadata.staged_commit import record_from_json, record_to_json
from paimon_cli.metadata.table_layout import is_plain_name
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.threads import in_parallel

_STAMP = re.compile("[0-9a-f]{16}")
_DIRECTORIES = ("manifest", "index", "statistics")


@dataclass(frozen=True)
class RecordedFile:
    """A data file that was written again; see `RewrittenFile`. `erased`: the positions as a serialised bitmap."""

    before: ManifestEntry
    after: DataFileMeta | None
    erased: bytes

    @staticmethod
    def of(file: RewrittenFile) -> RecordedFile:
        return RecordedFile(file.before, file.after, BitMap(file.erased.astype(np.uint32)).serialize())

    def file(self) -> RewrittenFile:
        """Raises `ValueError` if it is not what an erasure writes."""
        erased = np.array(BitMap.deserialize(self.erased).to_array(), dtype=np.int64)
        left = 0 if self.after is None else self.after.row_count
        names = [self.before.file.file_name, *([] if self.after is None else [self.after.file_name, *self.after.extra_files])]
        if self.before.file.row_count - len(erased) != left or not all(map(is_plain_name, names)):
            raise ValueError(f"{names[0]} does not fit to what took its place")
        return RewrittenFile(self.before, self.after, erased)


@dataclass(frozen=True)
class RecordedIndex:
    """An index file of a bucket that was written again, or that nothing is left of."""

    partition: bytes
    bucket: int
    before: IndexFileMeta
    after: IndexFileMeta | None


@dataclass
class ErasureRecord:
    """A record: `keys` as serialised rows of the whole primary key, `files` by path below the table; its tasks write files with
    its `stamp` beside those.

    `rewritten`, `index_files`: what took the place of what. Versions that are replaced before and after a kill must name the same
    files, or the history would show changes that nobody made.
    """

    path: str
    keys: tuple[bytes, ...] = ()
    stamp: str = ""
    files: set[str] = field(default_factory=set)
    rewritten: tuple[RecordedFile, ...] = ()
    index_files: tuple[RecordedIndex, ...] = ()

    @staticmethod
    def new(context: TableContext, keys: Iterable[bytes]) -> ErasureRecord:
        return ErasureRecord(context.layout.removal(context.random.uuid()), tuple(keys), new_stamp(context))

    def all_files(self, context: TableContext) -> set[str]:
        """The `files`, and those that tasks have written in their directories: also what attempts have left that failed."""
        if not self.stamp:
            return set(self.files)
        directories = {path.rpartition("/")[0] for path in self.files if path.split("/")[-2].startswith("bucket-")}
        paths = [f"{context.layout.root}/{path}" for path in sorted(directories)]
        listed = in_parallel(context.storage.list_directory, paths, context.read_threads)
        names = (
            f"{directory}/{status.name}"
            for directory, statuses in zip(sorted(directories), listed, strict=True)
            for status in statuses
            if uuid_prefix(self.stamp) in status.name and is_plain_name(status.name)
        )
        return {*self.files, *names}

    def write(self, context: TableContext) -> None:
        content = {"kind": ERASURE, "keys": [key.hex() for key in self.keys], "stamp": self.stamp, "files": sorted(self.files)}
        content |= {name: [record_to_json(one) for one in getattr(self, name)] for name in ("rewritten", "index_files")}
        context.storage.overwrite(self.path, json.dumps(content).encode())

    def delete(self, context: TableContext) -> None:
        context.storage.delete(self.path)
        remove_empty_directory(context.storage, context.layout.removal_directory)


def unfinished_erasures(context: TableContext) -> list[ErasureRecord]:
    """The records that erasures have left that were killed. One that is incomplete names nothing: nothing was done yet."""
    found = []
    for status in context.storage.list_directory(context.layout.removal_directory):
        if status.is_directory or status.name.startswith("."):
            continue
        try:
            content = json.loads(context.storage.read_bytes(status.path))
            if content["kind"] == ERASURE:
                keys = tuple(bytes.fromhex(key) for key in content["keys"])
                files = {path for path in content["files"] if _is_of_a_table(path)}
                rewritten = tuple(record_from_json(RecordedFile, one) for one in content["rewritten"])
                indexes = tuple(record_from_json(RecordedIndex, one) for one in content["index_files"])
                for one in rewritten:
                    one.file()
                stamp = content["stamp"] if _STAMP.fullmatch(content["stamp"]) else ""
                found.append(ErasureRecord(status.path, keys, stamp, files, rewritten, indexes))
        except (FileNotFoundError, ValueError, TypeError, LookupError, RecursionError, AttributeError):
            continue
    return found


def _is_of_a_table(path: str) -> bool:
    """Whether a path below a table can be one of a data, index, metadata or statistics file: nothing else is ever deleted."""
    *directories, name = path.split("/")
    if not is_plain_name(name) or not all(is_plain_name(part) for part in directories) or not directories:
        return False
    return directories in ([name] for name in _DIRECTORIES) or directories[-1].startswith("bucket-")


def keys_of(context: TableContext, keys: Iterable[bytes]) -> pa.RecordBatch:
    """Serialised keys as columns of the primary key. Raises `ValueError` for one that is none."""
    schema = context.schema
    types, names = schema.types_of(schema.primary_keys), list(schema.primary_keys)
    rows = [deserialize_row(key, types) for key in keys]
    columns = [values_to_arrow(list(values), t) for values, t in zip(zip(*rows, strict=True), types, strict=True)] or [
        pa.nulls(0, arrow_type(t)) for t in types
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)
