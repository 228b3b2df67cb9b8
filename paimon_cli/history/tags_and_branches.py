"""Reads branches, tags and long-lived changelogs, which keep snapshots outside of the history.

See FORMAT.md, sections 1.5, 13.2 and 13.4 (Java FileSystemBranchManager, TagManager, ChangelogManager).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from paimon_cli.errors import DamagedFile, NotFound, UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory, read_snapshot
from paimon_cli.metadata.snapshot import Snapshot, Tag
from paimon_cli.metadata.table_layout import (
    BRANCH_PREFIX,
    CHANGELOG_PREFIX,
    MAIN_BRANCH,
    TAG_PREFIX,
    TableLayout,
    is_plain_name,
    parse_numbered,
)
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import in_parallel


@dataclass(frozen=True)
class BranchList:
    """Reads the directory `branch/`. A branch without a schema does not exist: its creation was not finished."""

    storage: Storage
    layout: TableLayout

    def directories(self) -> list[str]:
        """The names of all branches except main, including unfinished ones, whose files are protected, too."""

        found = self.storage.list_directory(self.layout.branches_directory)
        names = (s.name.removeprefix(BRANCH_PREFIX) for s in found if s.name.startswith(BRANCH_PREFIX))
        return sorted(name for name in names if name)

    def names(self) -> list[str]:
        """The names of all finished branches except main, sorted."""
        return [name for name in self.directories() if self.exists(name)]

    def exists(self, name: str) -> bool:
        return bool(SchemaHistory(self.storage, self.layout.of_branch(name)).ids())

    def newest(self, name: str) -> tuple[TableSchema, Snapshot | None] | None:
        """The newest schema and snapshot of a branch; None for an unfinished one, and for one that is being deleted. Raises
        `NotFound` if the table itself is, and `DamagedFile` if one of them, or the schema of the snapshot, is damaged or lost.
        """
        layout = self.layout.of_branch(name)
        schemas, snapshots = SchemaHistory(self.storage, layout), SnapshotHistory(self.storage, layout)
        try:
            schema, snapshot = schemas.latest(), snapshots.latest()
        except NotFound:
            if name == MAIN_BRANCH:
                raise
            return None
        if snapshot is None:
            snapshots.expect_kept()
        else:
            schemas.named(snapshot.schema_id)
        return schema, snapshot

    def missing(self, name: str) -> NotFound:
        """The error for a branch that does not exist."""
        names = self.names()
        why = f"its branches are {', '.join([MAIN_BRANCH, *names])}" if names else "it has no branches"
        return NotFound(
            f"no branch '{name}' in {self.layout.root}",
            why,
            f"{did_you_mean(name, (MAIN_BRANCH, *names))}paimon-cli branches ls {shlex.quote(self.layout.root)}",
            branch=name,
        )


def check_branch_name(name: str) -> None:
    """Raise `UsageError` for a name that is not a file name, or that Paimon refuses: main, blank, or only digits."""
    if name == MAIN_BRANCH or name.isdigit() or not is_plain_name(name) or not name.strip() or "$" in name:
        why = f"a branch name is a file name without $, other than {MAIN_BRANCH}, and not all digits"
        raise UsageError(f"'{name}' cannot be the name of a branch", why)


@dataclass(frozen=True)
class TagHistory:
    """Reads the directory `tag/`. Nothing is cached."""

    storage: Storage
    layout: TableLayout

    def names(self) -> list[str]:
        """The names of all tags, sorted. Foreign files are ignored."""
        found = self.storage.list_directory(self.layout.tag_directory)
        return sorted(s.name.removeprefix(TAG_PREFIX) for s in found if s.name.startswith(TAG_PREFIX) and not s.is_directory)

    def newest(self) -> Tag | None:
        """The tag that was written last; None without tags, or if it cannot be read."""
        found = [
            status
            for status in self.storage.list_directory(self.layout.tag_directory)
            if status.name.startswith(TAG_PREFIX) and not status.is_directory
        ]
        if not found:
            return None
        try:
            return self.find(max(found, key=lambda status: status.modified_millis).name.removeprefix(TAG_PREFIX))
        except DamagedFile:
            return None

    def content(self, name: str) -> bytes | None:
        """The content of the tag file; None if there is no such tag. The name may come from an option of the table."""
        if not is_plain_name(name):
            return None
        try:
            return self.storage.read_bytes(self.layout.tag(name))
        except FileNotFoundError:
            return None

    def find(self, name: str) -> Tag | None:
        content = self.content(name)
        try:
            return None if content is None else Tag.from_json(content, self.layout.tag(name))
        except DamagedFile as error:
            error.set_hint(self.layout.if_damaged)
            raise

    def get(self, name: str) -> Tag:
        """The tag with this name. Raises `NotFound`, which lists the existing tags."""
        tag = self.find(name)
        if tag is None:
            names = self.names()
            why = f"its tags are {', '.join(names)}" if names else "it has no tags"
            hint = f"{did_you_mean(name, names)}paimon-cli tags ls {self.layout.argument}"
            raise NotFound(f"no tag '{name}' in {self.layout.version_root}", why, hint, tag=name)
        return tag

    def all(self, on_damage: Callable[[DamagedFile], object] | None = None) -> dict[str, Tag]:
        """Name -> tag, for all tags. A tag that is deleted in the meantime may be missing.

        `on_damage`: receives the errors of tags that cannot be read, which are left out; without it they are raised.
        """
        found: dict[str, Tag] = {}
        for name in self.names():
            try:
                tag = self.find(name)
            except DamagedFile as damage:
                if on_damage is None:
                    raise
                on_damage(damage)
                continue
            if tag is not None:
                found[name] = tag
        return found


@dataclass(frozen=True)
class ChangelogHistory:
    """Reads the directory `changelog/`. Nothing is cached."""

    storage: Storage
    layout: TableLayout

    def ids(self) -> list[int]:
        """The ids of all long-lived changelogs, ascending. Foreign files are ignored."""
        entries = self.storage.list_directory(self.layout.changelog_directory)
        return sorted(number for entry in entries if (number := parse_numbered(CHANGELOG_PREFIX, entry.name)) is not None)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """The changelog of this snapshot; None if there is none. Raises `DamagedFile` if its file holds something else."""
        return read_snapshot(self.storage, self.layout, snapshot_id, "changelog")

    def damage(self, threads: int, most: int | None = None) -> list[DamagedFile]:
        """The errors of the changelogs, or of the newest `most`, that cannot be read."""

        def look(number: int) -> DamagedFile | None:
            try:
                self.find(number)
            except DamagedFile as error:
                return error
            return None

        newest = self.ids()[-most:] if most else self.ids()
        return [error for error in in_parallel(look, newest, threads) if error is not None]

    def all(self) -> list[Snapshot]:
        """All long-lived changelogs, oldest first. One that expires in the meantime may be missing."""
        return [found for number in self.ids() if (found := self.find(number)) is not None]
