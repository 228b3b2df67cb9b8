"""The trash of a warehouse: dropped tables, which can be brought back for a while (FORMAT.md, section 13.9).

    WAREHOUSE/.paimon-cli/trash/ID/entry        what was dropped, and until when it is kept (JSON)
    WAREHOUSE/.paimon-cli/trash/ID/table/...    its files, or its version files

Where directories can be moved, a drop is one rename of the table's directory. A commit that is being published finds itself moved
with the table, or in a directory without schema, and then is not acknowledged (`commit.snapshot_publish`).

On an object store the data stays where it is. The history is ended first, as a drop for good does (`end_of_history`), so that
nothing can be committed; then the version files, without which no reader sees a table, are copied into the trash and deleted. The
end stays: it keeps others from creating a table over the data.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from paimon_cli.errors import CommitUnknown, DamagedFile, NotFound, PaimonError, Refused, StorageUnavailable
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.maintain.drop_table import drop_table
from paimon_cli.maintain.trash_entry import TrashEntry, _if_unreadable
from paimon_cli.maintain.trash_versions import move_versions, return_versions
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import plain_number
from paimon_cli.storage.capabilities import MovesDirectories, directories_of, link_target, remove_empty_directory
from paimon_cli.storage.injected import Clock, RandomSource, SystemClock, SystemRandom
from paimon_cli.storage.storage import Storage

KEPT_DIRECTORY = ".paimon-cli"
"""What is kept for a warehouse lies in this directory of it."""
_ODD_PARTS = frozenset(("", ".", ".."))
_LEFTOVERS_MILLIS = 86_400_000
"""For how long an entry without a table may belong to a drop that is about to move it."""


@dataclass(frozen=True)
class Trash:
    """The trash of the warehouse at `root`. `storage` reaches the whole warehouse; `open_table`: the storage of one table in it,
    which does not follow links out of it.
    """

    storage: Storage
    root: str
    open_table: Callable[[str], Storage]
    clock: Clock = field(default_factory=SystemClock)
    random: RandomSource = field(default_factory=SystemRandom)

    @property
    def directory(self) -> str:
        return f"{self.root.rstrip('/')}/{KEPT_DIRECTORY}/trash"

    # ---- entries ------------------------------------------------------------------------------------------------------------

    def entries(self, on_damage: Callable[[DamagedFile], object] | None = None) -> list[TrashEntry]:
        """The dropped tables, the last one first. `on_damage`: receives the error of each entry that cannot be read; without it,
        the first of them is raised.
        """
        found: list[TrashEntry] = []
        for name in self._ids():
            try:
                entry = self._entry(name)
            except DamagedFile as error:
                if on_damage is None:
                    raise
                on_damage(error)
            else:
                found += [] if entry is None else [entry]
        return sorted(found, key=lambda entry: -entry.dropped)

    def _ids(self) -> list[str]:
        """The names of the entries. A link is one, too: what it leads to is not seen, and what a drop has left is not hidden."""
        self._refuse_links()
        found = self.storage.list_directory(self.directory)
        return [status.name for status in found if status.is_directory or self._is_link(status.path)]

    def _is_link(self, path: str) -> bool:
        return link_target(self.storage, path) is not None

    def _refuse_links(self) -> None:
        """Raise `DamagedFile` if the trash is a link: what is deleted from it would be elsewhere."""
        for path in (self.directory.rpartition("/")[0], self.directory):
            if self._is_link(path):
                raise DamagedFile(f"{path} is a link", "the trash is a directory of its own", "delete the link", path=path)

    def _entry(self, name: str) -> TrashEntry | None:
        """An entry with a table; None if its drop was interrupted, or has been undone."""
        entry = self._read(name)
        return entry if entry is not None and self._holds_table(entry) else None

    def _holds_table(self, entry: TrashEntry) -> bool:
        return entry.is_going or bool(self.storage.list_directory(f"{self.table_directory(entry)}/schema"))

    def _read(self, name: str) -> TrashEntry | None:
        path = f"{self.directory}/{name}/entry"
        if self._is_link(directory := path.rpartition("/")[0]):
            raise DamagedFile(f"{directory} is a link", "no drop makes one", "delete the link", path=directory)
        try:
            entry = TrashEntry.from_json(self.storage.read_bytes(path), path)
        except FileNotFoundError:
            return None
        if entry.id != name:
            raise DamagedFile(f"cannot read {path}", "it is the entry of another directory", _if_unreadable(path), path=path)
        below = entry.url.removeprefix(f"{self.root.rstrip('/')}/")
        if not entry.is_moved and (below == entry.url or _ODD_PARTS.intersection(below.split("/"))):
            why = "the table that it names is outside of the warehouse"
            raise DamagedFile(f"cannot read {path}", why, _if_unreadable(path), path=path)
        if self._is_link(self.table_directory(entry)):
            raise DamagedFile(f"{self.table_directory(entry)} is a link", "no drop makes one", "delete the link", path=path)
        return self._at_home(entry) if entry.is_moved else entry

    def _at_home(self, entry: TrashEntry) -> TrashEntry:
        """An entry whose place is in this warehouse, even if the warehouse was moved since the drop. Nothing is read there."""
        parts = entry.url.split("/")[-2:]
        if len(parts) < 2 or _ODD_PARTS.intersection(parts):
            return entry
        return replace(entry, url="/".join((self.root.rstrip("/"), *parts)))

    def table_directory(self, entry: TrashEntry) -> str:
        return f"{self.directory}/{entry.id}/table"

    def find(self, table: str, url: str) -> TrashEntry:
        """The last dropped table of this name, or at this place. Raises `NotFound`, also if it is being deleted, or if its entry
        cannot be read.
        """
        damaged: list[DamagedFile] = []
        for entry in self.entries(damaged.append):
            if entry.table == table or entry.url == url:
                return self._still_whole(entry)
        why = f"{self.directory} has none of this name"
        if damaged:
            why += f", but nothing is known of {len(damaged):,} of its entries: {damaged[0].what}"
        raise NotFound(f"there is no table {table} in the trash", why, "paimon-cli trash ls")

    def at(self, url: str) -> TrashEntry | None:
        """The dropped table whose data is still at this place; None if there is none."""
        return next((entry for entry in self.entries(lambda _: None) if entry.url == url and not entry.is_moved), None)

    def _still_whole(self, entry: TrashEntry) -> TrashEntry:
        """The entry, as it is now. Raises `NotFound` if its table is being deleted."""
        try:
            now = TrashEntry.from_json(self.storage.read_bytes(self._path(entry)), self._path(entry))
        except FileNotFoundError:
            return entry
        if now.is_going:
            why = "the trash is being emptied, or was until a command was killed, so files of it are gone"
            raise NotFound(f"{entry.table} is being deleted for good", why, "`paimon-cli trash empty` finishes it")
        return entry

    def _path(self, entry: TrashEntry) -> str:
        return f"{self.directory}/{entry.id}/entry"

    def begun(self, url: str) -> TrashEntry | None:
        """The entry of a drop that has ended the history at this place and was interrupted before all version files were copied;
        None if there is none. Nothing of the table has been deleted then.
        """
        found = (self._read(name) for name in self._ids())
        return next((entry for entry in found if entry and self._was_ended(entry) and entry.url == url), None)

    def give_up(self, url: str) -> None:
        """Remove what interrupted drops have copied of the table at this place, before it is deleted for good.

        The next drop of a table at this place would go on with it, and a table that is brought back have versions of this one.
        """
        with suppress(DamagedFile):  # an entry that cannot be read is of no drop that could go on
            for name in self._ids():
                with suppress(DamagedFile):
                    entry = self._read(name)
                    if entry is not None and entry.url == url and self._was_ended(entry):
                        self.storage.delete_directory(self.table_directory(entry))
                        self._forget(entry)

    def _was_ended(self, entry: TrashEntry) -> bool:
        """Whether the drop of this entry was interrupted after it had ended the history: its first step without renames."""
        if entry.is_moved or self._holds_table(entry):
            return False
        return SnapshotHistory(self.open_table(entry.url), TableLayout(entry.url)).is_ended()

    # ---- drop ---------------------------------------------------------------------------------------------------------------

    def take(self, storage: Storage, layout: TableLayout, entry: TrashEntry, stays: Iterable[str]) -> None:
        """Move a table into the trash. `storage`: of the table. `stays`: paths in its directory that do not belong to it, and
        remain there.
        """
        self._refuse_links()
        self.storage.overwrite(self._path(entry), entry.to_json().encode())
        directories = directories_of(self.storage)
        if directories is None:
            move_versions(storage, layout, TableLayout(self.table_directory(entry)), self.clock, self.random)
            return
        try:
            directories.move_directory(layout.root, self.table_directory(entry))
        except (StorageUnavailable, OSError) as error:
            if self.storage.list_directory(self.table_directory(entry)):
                raise CommitUnknown(
                    f"{layout.root} is in the trash, but the storage did not confirm the move",
                    str(error),
                    "`paimon-cli trash ls` shows it; if it does not, run the drop again",
                ) from error
            self._forget(entry)
            if isinstance(error, FileNotFoundError):
                raise NotFound(f"there is no table at {layout.root}", "another job has dropped it") from error
            raise Refused(
                f"{layout.root} cannot be moved to the trash", str(error), "delete it for good: add --purge to the drop"
            ) from error
        for path in stays:
            below = path.rstrip("/").removeprefix(f"{layout.root}/")
            directories.move_directory(f"{self.table_directory(entry)}/{below}", f"{layout.root}/{below}")

    def new_entry(self, table: str, url: str, kept_millis: int, snapshots: int, files: int, size: int) -> TrashEntry:
        """The entry of a table that is about to be dropped."""
        now, is_moved = self.clock.now_millis(), directories_of(self.storage) is not None
        name = f"{now}-{self.random.uuid()[:8]}"
        return TrashEntry(name, table, url, now, now + kept_millis, snapshots, files, size, is_moved)

    # ---- undrop -------------------------------------------------------------------------------------------------------------

    def schema(self, entry: TrashEntry) -> TableSchema:
        """The latest schema of a dropped table. Raises `NotFound` if another job has brought it back, or deleted it."""
        return SchemaHistory(self.storage, TableLayout(self.table_directory(entry))).latest()

    def give_back(self, entry: TrashEntry, root: str) -> None:
        """Bring a table back to `root`. Raises `Refused` if something else is there, or the data would have to be moved."""
        directories = directories_of(self.storage)
        if directories is None or not entry.is_moved:
            if root != entry.url:
                raise Refused(
                    f"{entry.table} cannot be brought back as {root}",
                    f"its data is at {entry.url}, on a store that cannot move it",
                    f"bring it back as {entry.table}, then clone it",
                )
            return_versions(self.open_table(root), TableLayout(self.table_directory(entry)), TableLayout(root))
        else:
            _remove_empty_below(self.storage, root)
            if self.storage.list_directory(root):
                raise _in_use(entry, root)
            try:
                directories.move_directory(self.table_directory(entry), root)
                self._undo_if_going(entry, root, directories)
            except FileNotFoundError as error:
                raise NotFound(f"{entry.table} is not in the trash any more", "another job has brought it back") from error
            except (StorageUnavailable, OSError) as error:
                raise _in_use(entry, root) from error
        self._forget(entry)

    def _undo_if_going(self, entry: TrashEntry, root: str, directories: MovesDirectories) -> None:
        """Move the table into the trash again if its deletion began in the meantime."""
        try:
            self._still_whole(entry)
        except NotFound:
            directories.move_directory(root, self.table_directory(entry))
            raise

    # ---- empty --------------------------------------------------------------------------------------------------------------

    def overdue(self, *, everything: bool = False) -> list[TrashEntry]:
        """The tables whose time is over or whose deletion has begun, or all, without entries that cannot be read."""
        now = self.clock.now_millis()
        return [entry for entry in self.entries(lambda _: None) if everything or entry.is_going or entry.until <= now]

    def delete(self, entry: TrashEntry) -> None:
        """Delete a dropped table for good. Files that do not belong to it remain.

        Can be repeated: the entry is marked first, so that a table of which files are gone is not brought back, and goes last.
        Data that stayed in its place belongs to the entry only while its history is ended, or while nothing but that data is
        left there. If not, the table has been brought back, or another one is there, and only what the trash holds is deleted.
        """
        here, there = TableLayout(self.table_directory(entry)), TableLayout(entry.url)
        schemas = SchemaHistory(self.storage, here)
        if entry.is_going and not schemas.ids():  # all else is deleted before the last schema, or lies beside it in the trash
            self.storage.delete_directory(here.root)
            self._forget(entry)
            return
        schema = schemas.latest()
        self.storage.overwrite(self._path(entry), replace(entry, is_going=True).to_json().encode())
        for layout in (there, here) if self._is_in_place(entry, there) else (here,):
            drop_table(self.open_table(layout.root), layout, schema, self.clock, self.random)
        self._forget(entry)

    def _is_in_place(self, entry: TrashEntry, there: TableLayout) -> bool:
        """Whether what lies where the table was is the data of this entry."""
        if entry.is_moved:
            return False
        storage = self.open_table(there.root)
        is_alive = bool(SchemaHistory(storage, there).ids() or SnapshotHistory(storage, there).ids())
        return SnapshotHistory(storage, there).is_ended() or (entry.is_going and not is_alive)

    def tidy(self) -> None:
        """Remove what drops have left that were interrupted before they moved a table. Entries that cannot be read stay."""
        for name in self._ids():
            digits = name.partition("-")[0]
            dropped = plain_number(digits) if digits.isdigit() else None
            if dropped is None or dropped >= self.clock.now_millis() - _LEFTOVERS_MILLIS:
                continue
            with suppress(DamagedFile):
                entry = self._read(name)
                if self.storage.list_directory(f"{self.directory}/{name}/table"):
                    continue
                if entry is None or not self._was_ended(entry):
                    self.storage.delete_directory(f"{self.directory}/{name}")

    def _forget(self, entry: TrashEntry) -> None:
        self.storage.delete(self._path(entry))
        for path in (f"{self.directory}/{entry.id}", self.directory, self.directory.rpartition("/")[0]):
            if self.storage.list_directory(path):
                return
            remove_empty_directory(self.storage, path)


def empty_trash(trash: Trash, planned: Iterable[TrashEntry]) -> tuple[list[TrashEntry], list[tuple[TrashEntry, PaimonError]]]:
    """Delete these dropped tables for good; returns the tables that were deleted, and the others with the error of each."""
    deleted: list[TrashEntry] = []
    failed: list[tuple[TrashEntry, PaimonError]] = []
    for entry in planned:
        try:
            trash.delete(entry)
            deleted.append(entry)
        except NotFound:  # another job has deleted it, or brought it back
            continue
        except PaimonError as error:
            failed.append((entry, error))
    trash.tidy()
    return deleted, failed


def _in_use(entry: TrashEntry, root: str) -> Refused:
    """Files at `root` are not moved away: once the table is back, the writer that they belong to could commit them."""
    return Refused(
        f"{entry.table} cannot be brought back to {root}",
        "something else is there by now: another table, or files of writers that have not noticed the drop",
        f"wait until they have ended, or give it another name: paimon-cli undrop {shlex.quote(entry.table)} --as NEW",
    )


def _remove_empty_below(storage: Storage, root: str) -> None:
    """Remove directories without files, which writers make again that have not noticed the drop."""
    pending, found = [root], list[str]()
    while pending:
        path = pending.pop()
        found.append(path)
        entries = storage.list_directory(path)
        if any(not entry.is_directory for entry in entries):
            return
        pending += [entry.path for entry in entries]
    for path in reversed(found):
        remove_empty_directory(storage, path)
