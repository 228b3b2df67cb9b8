"""Reads and publishes the schemas of a table (FORMAT.md, section 2; Java SchemaManager)."""

from __future__ import annotations

from dataclasses import dataclass, field

from paimon_cli.errors import CommitUnknown, DamagedFile, NotFound, PaimonError, TableNotFound, UnfinishedCopy, UsageError
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.metadata.table_layout import (
    BRANCH_PREFIX,
    CHANGELOG_PREFIX,
    MAIN_BRANCH,
    SCHEMA_PREFIX,
    SNAPSHOT_PREFIX,
    TAG_PREFIX,
    TableLayout,
    parse_numbered,
)
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.capabilities import first_entries
from paimon_cli.storage.directories import first_named, why_missing
from paimon_cli.storage.storage import Storage, Verified, put_and_verify
from paimon_cli.storage.threads import together


@dataclass(frozen=True)
class SchemaHistory:
    """Reads the directory `schema/`, and adds schemas. Schema files never change: `known` are those that were read, by id."""

    storage: Storage
    layout: TableLayout
    known: dict[int, TableSchema] = field(default_factory=dict, compare=False, repr=False)

    def ids(self) -> list[int]:
        """All ids, ascending; empty if there is no table."""
        entries = self.storage.list_directory(self.layout.schema_directory)
        return sorted(number for entry in entries if (number := parse_numbered(SCHEMA_PREFIX, entry.name)) is not None)

    def at_opening(self) -> TableSchema | None:
        """The newest schema when a table is opened, if two requests can show it; None if the directory must be listed.

        Most tables still have the schema that they were created with, and ids have no gaps.
        """
        if not self.storage.is_remote:
            return None
        try:
            first, second = together([lambda: self.find(0), lambda: self.find(1)])
        except DamagedFile:
            return None
        return first if second is None else None

    def latest_id(self) -> int | None:
        """The id of the newest schema, even if a stale listing does not show it; None if there is no table."""
        newest = max(self.ids(), default=None)
        return None if newest is None else self._from(newest)

    def _from(self, newest: int) -> int:
        while self.storage.exists(self.layout.schema(newest + 1)):
            newest += 1
        return newest

    def latest(self) -> TableSchema:
        """The newest schema. Raises `NotFound` if there is no table, `DamagedFile` if it has lost its schema files."""
        return self.get(self.newest_id())

    def newest_id(self, known: int | None = None) -> int:
        """The id of the newest schema, searched from a `known` id on if given. Raises like `latest`."""
        newest = self.latest_id() if known is None else self._from(known)
        if newest is None:
            raise self.missing()
        return newest

    def missing(self) -> PaimonError:
        """Why there is no schema: `NotFound` if there is no table, `UnfinishedCopy` or `BeingDropped` if there is none yet or no
        more, and `DamagedFile` if the schema files of a table with versions are lost.
        """
        if (unfinished := self.unfinished_copy()) is not None:
            return unfinished
        if (left := self.left_without_schema()) is None:
            root, why = self.layout.root, why_missing(self.storage, self.layout.root)
            if why is None and (names := [entry.name for entry in first_entries(self.storage, root, 1)]):
                why = f"its directory has no schema/schema-* file, but other content, such as {names[0]}"
                return TableNotFound(f"no table at {root}", why, "check the path; a new table needs an empty directory")
            why = why or "its directory has no schema/schema-* file"
            return TableNotFound(f"no table at {root}", why, self._how_to_create())
        try:
            latest = SnapshotHistory(self.storage, self.layout).latest()
        except DamagedFile:
            latest = None
        except NotFound as dropped:
            return dropped
        number = "*" if latest is None else latest.schema_id
        wanted = f"{self.layout.schema_directory}/{SCHEMA_PREFIX}{number}"
        return DamagedFile(
            f"the schema files of {self.layout.version_root} are lost",
            f"{left} is there, but no schema/{SCHEMA_PREFIX}* file, and nothing else says what its columns are",
            f"restore {wanted} from a backup; what is left: paimon-cli verify {self.layout.argument} --all-snapshots",
            path=self.layout.schema_directory,
        )

    def unfinished_copy(self) -> UnfinishedCopy | None:
        """The error for a table that a restore or copy has not finished: its schemas come last, and the first one at the very
        end. None if there is no such copy, or only its claim is left.
        """
        root, last = self.layout.root, self.layout.of_branch(MAIN_BRANCH).schema(0)
        if not self.storage.exists(self.layout.unfinished_copy) or self.storage.exists(last):
            return None
        why = "a restore or copy into it is running, or was killed"
        return UnfinishedCopy(f"no table at {root}", why, "run it again to finish it; to give it up, delete the directory")

    def _how_to_create(self) -> str:
        return f"check the path, or create the table: paimon-cli create {self.layout.argument} -C 'id BIGINT'"

    def left_without_schema(self) -> str | None:
        """A file or directory which shows that there is a table or branch, even if it has no schema; None if there is none."""
        layout = self.layout
        kinds = {
            layout.snapshot_directory: SNAPSHOT_PREFIX,
            layout.tag_directory: TAG_PREFIX,
            layout.changelog_directory: CHANGELOG_PREFIX,
        }
        if layout.version_root == layout.root:
            kinds[layout.branches_directory] = BRANCH_PREFIX
        found = first_named(self.storage, kinds)
        return None if found is None else found.removeprefix(f"{layout.version_root}/")

    def newest_readable(self) -> TableSchema | None:
        """The newest schema that can be read; None if there is none. For commands that examine damaged tables."""
        for number in reversed(self.ids()):
            try:
                return self.get(number)
            except (DamagedFile, NotFound):
                continue
        return None

    def named(self, schema_id: int) -> TableSchema:
        """The schema that a snapshot or a data file names, and that therefore must exist. Raises `DamagedFile`."""
        schema = self.find(schema_id)
        if schema is None:
            path = self.layout.schema(schema_id)
            why = f"a snapshot or a data file has schema {schema_id}"
            raise DamagedFile(f"{path} is missing", why, self.layout.if_damaged, path=path)
        return schema

    def get(self, schema_id: int) -> TableSchema:
        """The schema with this id. Raises `NotFound` if it does not exist, `DamagedFile` if its file holds something else."""
        schema = self.find(schema_id)
        if schema is None:
            path = self.layout.schema(schema_id)
            listed = f"paimon-cli schemas ls {self.layout.argument}"
            raise NotFound(f"no schema {schema_id} in {self.layout.root}", f"{path} does not exist", listed)
        return schema

    def find(self, schema_id: int) -> TableSchema | None:
        """The schema with this id; None if it does not exist. Raises `DamagedFile` if its file holds something else."""
        if schema_id not in self.known:
            path = self.layout.schema(schema_id)
            try:
                schema = TableSchema.from_json(self.storage.read_bytes(path), path)
            except FileNotFoundError:
                return None
            except DamagedFile as error:
                error.set_hint(self.layout.if_damaged)
                raise
            if schema.id != schema_id:
                why = f"it holds the id {schema.id}"
                raise DamagedFile(f"schema file {path} is damaged", why, self.layout.if_damaged, path=path)
            self.known[schema_id] = schema
        return self.known[schema_id]

    def commit(self, schema: TableSchema) -> bool:
        """Publish a new schema. Returns false if another writer has taken its id. Raises `CommitUnknown`."""
        path = self.layout.schema(schema.id)
        content = schema.to_json().encode()
        _check_readable(content, self.layout.root)
        published = put_and_verify(self.storage, path, content)
        if published in (Verified.OURS, Verified.THEIRS):
            return published is Verified.OURS
        raise CommitUnknown(
            f"schema {schema.id} of {self.layout.root} may or may not have been written",
            "the storage gave no clear answer",
            f"before trying again: paimon-cli schemas ls {self.layout.argument}",
            path=path,
        )


def _check_readable(content: bytes, root: str) -> None:
    """Raise `UsageError` for a schema that cannot be read again: once it is published, nobody could open the table."""
    try:
        TableSchema.from_json(content)
    except DamagedFile as error:
        raise UsageError(f"{root} cannot have this schema", error.why or error.what, "choose other names and types") from error
