"""Which files of a commit that failed may go at once: manifests and lists that no snapshot can name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from paimon_cli.commit.metadata_writer import MetadataWriter
from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.table_context import TableContext


def discard(context: TableContext, paths: Iterable[str]) -> None:
    """Delete metadata files; whatever the storage does not let go is found as an orphan later."""
    for path in paths:
        with contextlib.suppress(StorageUnavailable), context.trace.timed("discard", file=path.rpartition("/")[2]):
            context.storage.delete(path)


@contextlib.contextmanager
def discarded_on(context: TableContext, writer: MetadataWriter, *failures: type[BaseException]) -> Iterator[None]:
    """Delete all files of `writer` if the block raises one of these errors, which mean that no snapshot was published."""
    try:
        yield
    except failures:
        discard(context, writer.written)
        raise
