"""Deleting files that no version needs any more: with few requests, counting what a storage refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from paimon_cli.history.table_context import TableContext
from paimon_cli.pieces import PIECES
from paimon_cli.storage.deletions import Deletions, delete_each, deleted_together
from paimon_cli.storage.storage import Storage

DeleteFiles = Callable[[Iterable[str]], int]
"""Deletes files by path and returns how many it was given; a missing file is not an error. Raises `FilesLeft` at the end if the
storage refused some.
"""


def delete_files(context: TableContext, on_done: Callable[[int], None] | None = None) -> DeleteFiles:
    """A function that deletes in this process, with few requests or in parallel; `on_done` gets numbers of deleted files."""

    def delete(paths: Iterable[str]) -> int:
        remaining, done = iter(paths), Deletions()
        for portion in iter(lambda: list(islice(remaining, PIECES.deleted_files)), []):
            done.add(delete_portion(context.storage, portion, context.read_threads, on_done))
        return check_deletions(context, done)

    return delete


def check_deletions(context: TableContext, done: Deletions) -> int:
    """The number of deleted files. Raises `FilesLeft` if the storage refused some, with the command that deletes these later."""
    return done.check(how_to_delete_later(context, None if done.first is None else done.first.path))


def how_to_delete_later(context: TableContext, path: str | None = None) -> str:
    """The hint about files that nothing names any more and that are still there, such as `path`."""
    when = "what is left are orphans; once the storage allows it, and they are a day old"
    if path is not None and not path.startswith(f"{context.url}/"):
        return f"{when}, delete them: paimon-cli orphans rm {context.layout.argument} --external-paths --apply --yes"
    return f"{when}, delete them: paimon-cli orphans rm {context.layout.argument} --apply --yes"


def delete_portion(
    storage: Storage, paths: Sequence[str], threads: int = 1, on_done: Callable[[int], None] | None = None
) -> Deletions:
    """Delete files that may go in any order. Those that the storage refuses are counted; any other failure is raised at once."""
    if deleted_together(storage, paths):
        done = Deletions(len(paths))
        if on_done is not None:
            on_done(done.deleted)
        return done
    return delete_each(storage, paths, threads, on_done)
