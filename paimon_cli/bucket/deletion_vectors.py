"""The deletion vectors of one bucket at one snapshot, read from its index files (FORMAT.md, section 8)."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DELETION_VECTORS
from paimon_cli.metadata.index_files import DeletionVector, decode_deletion_vector


@dataclass(frozen=True)
class BucketVectors:
    """Data file name -> its deletion vector; a file without an entry has no deleted rows."""

    by_file: dict[str, DeletionVector]

    def of(self, file_name: str) -> DeletionVector | None:
        return self.by_file.get(file_name)


NO_VECTORS = BucketVectors({})


def load_vectors(context: TableContext, bucket: BucketFiles) -> BucketVectors:
    """Every vector of the bucket's index files; one that several splits need is read once by a context."""
    vectors: dict[str, DeletionVector] = {}
    for index in bucket.index_files:
        if index.index_type != DELETION_VECTORS:
            continue
        if index.external_path is not None:
            why = "external paths are not supported"
            raise NotSupported(f"index file {index.file_name} of {context.url} lies outside of the table", why)
        path = context.layout.index(index.file_name)
        ranges = index.deletion_vector_ranges or ()
        place = context.bucket_path(bucket.partition, bucket.bucket)
        content = context.known_index_files.content(path, functools.partial(_read, context, place, path, len(ranges)))
        for listed in ranges:
            vectors[listed.data_file_name] = decode_deletion_vector(content, listed.offset, listed.length, path)
    return BucketVectors(vectors)


def _read(context: TableContext, place: str, path: str, vectors: int) -> bytes:
    with context.trace.timed("deletion_vectors", bucket=place, file=path.rpartition("/")[2], vectors=vectors) as facts:
        try:
            content = context.storage.read_bytes(path)
        except FileNotFoundError as error:
            raise DamagedFile(f"index file {path} is missing", "the snapshot's index manifest names it", path=path) from error
        facts["bytes"] = len(content)
    return content
