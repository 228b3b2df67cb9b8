"""Version files that cannot be read: nothing goes on before they are set aside, as a copy below `damaged/` of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from paimon_cli.errors import Conflict, DamagedFile
from paimon_cli.history.changelog_history import ChangelogHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.storage.directories import keep_deleted

DIRECTORY = "damaged"


@dataclass(frozen=True)
class DamagedVersion:
    """A file of `snapshot/`, `tag/` or `changelog/`; `snapshot_id` only of those in `snapshot/`. `loss`: what goes with it."""

    path: str
    why: str
    loss: str
    snapshot_id: int | None = None


def damaged_versions(context: TableContext, ids: Sequence[int]) -> list[DamagedVersion]:
    """Snapshots of these ids, then tags, then changelogs."""
    changelogs = ChangelogHistory(context.storage, context.layout)
    found: list[DamagedVersion] = []
    for number in ids:
        loss = "what only this snapshot records"
        found += _look(context.layout.snapshot(number), loss, lambda n=number: context.snapshots.find(n), number)  # type: ignore[misc]
    for name in context.tags.names():
        loss = f"tag {name}; files that only it needs are orphans then"
        found += _look(context.layout.tag(name), loss, lambda n=name: context.tags.find(n))  # type: ignore[misc]
    for number in changelogs.ids():
        loss = f"the changes of snapshot {number}; files that only they need are orphans then"
        found += _look(context.layout.changelog(number), loss, lambda n=number: changelogs.find(n))  # type: ignore[misc]
    return found


def _look(path: str, loss: str, read: Callable[[], object], number: int | None = None) -> Iterator[DamagedVersion]:
    try:
        read()
    except DamagedFile as error:
        yield DamagedVersion(path, error.why or error.what, loss, number)


def set_aside(context: TableContext, damaged: DamagedVersion) -> None:
    """Copy it, then delete it. `Conflict` if it is not what it was when it was planned: then the whole plan is wrong."""
    if damaged not in damaged_versions(context, context.snapshots.ids()):
        raise Conflict(
            f"{damaged.path} is no longer damaged, or damaged in another way",
            "it was misread, or has changed since",
            "plan again",
        )
    directory, _, name = damaged.path.rpartition("/")
    content = context.storage.read_bytes(damaged.path)
    context.storage.write_new(f"{context.layout.root}/{DIRECTORY}/{name}-{context.names.uuid()}", content)
    context.storage.delete(damaged.path)
    keep_deleted(context.storage, directory)
