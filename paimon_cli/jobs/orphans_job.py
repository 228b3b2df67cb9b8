"""`orphans`: find, explain, set aside and delete files that no version names."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.deletion import deletion
from paimon_cli.jobs.engine import Engine, phase
from paimon_cli.jobs.progress import Progress
from paimon_cli.maintain.orphan_origin import origins
from paimon_cli.maintain.orphans import Orphans, SetAside, find_orphans, remove_orphans
from paimon_cli.storage.storage_for_url import storage_for_url

_BLOCK = 8 << 20


@dataclass(frozen=True)
class OrphanRow:
    """`path` below the table, `modified` in epoch millis; `origin` only where it was asked for."""

    path: str
    kind: str
    size: int
    modified: int
    origin: str | None = None


def search_orphans(context: TableContext, older_than: int, force: bool, progress: Progress) -> Orphans:
    with phase(progress, "Looking for orphans", None):
        return find_orphans(context, older_than, force)


def orphan_rows(context: TableContext, orphans: Orphans, explain: bool) -> list[OrphanRow]:
    """Files first, then empty directories."""
    texts = origins(context, orphans.files, orphans.used) if explain else {}
    root = context.url + "/"
    rows = [OrphanRow(f.path.removeprefix(root), f.kind, f.size, f.modified_millis, texts.get(f.path)) for f in orphans.files]
    empty = [path for path in sorted(orphans.empty_directories) if not context.storage.list_directory(path)]
    return [*rows, *(OrphanRow(path.removeprefix(root) + "/", "empty directory", 0, orphans.older_than) for path in empty)]


def clean_orphans(
    context: TableContext, orphans: Orphans, quarantine: str | None, engine: Engine | None, progress: Progress
) -> tuple[int, int]:
    """Delete them, copies kept below `quarantine` if given; how many files went, and their bytes."""
    keep = None if quarantine is None else _set_aside(context, quarantine)
    gone = remove_orphans(context, orphans, deletion(context, engine, progress), keep)
    return len(gone), sum(file.size for file in gone)


def _set_aside(context: TableContext, quarantine: str) -> SetAside:
    """Copies keep their path below the table; one of an earlier run is replaced. `UsageError` if they were in the table again."""
    storage, directory = storage_for_url(quarantine)
    if f"{directory.rstrip('/')}/".startswith(f"{context.url}/"):
        raise UsageError(f"{quarantine} is inside the table", "copies there would be orphans again", "choose another directory")

    def copy(path: str) -> None:
        target = directory + path.removeprefix(context.url)
        storage.delete(target)
        try:
            source = context.storage.open_input(path)
        except FileNotFoundError:
            return
        with source, storage.open_output(target) as sink:
            while block := source.read(_BLOCK):
                sink.write(block)

    return copy
