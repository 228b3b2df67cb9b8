"""The client of a REST catalog: the server stores names, creates and drops tables, and publishes their snapshots."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paimon_cli.catalog.metastore.metastore import (
    Database,
    Metastore,
    OnDamage,
    RegisteredTable,
    TableIdentifier,
    is_absolute,
    plain_path,
    readable,
)
from paimon_cli.catalog.metastore.rest_client import NoClearAnswer, RequestConflict, RestClient, part
from paimon_cli.errors import CommitUnknown, DamagedFile, NotFound, NotSupported, Refused
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import BRANCH_PREFIX, MAIN_BRANCH
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import shortened
from paimon_cli.storage.capabilities import WrappedStorage, settle
from paimon_cli.storage.catalog_options import store_options
from paimon_cli.storage.storage import PutOutcome, Storage
from paimon_cli.storage.threads import cached_property

if TYPE_CHECKING:
    from paimon_cli.maintain.mark_done import DonePartition, PartitionMarks

DATABASES, _TABLES = "databases", "tables"
CHECK_SERVER = "check the server"
_WRITES = {"put_if_absent", "overwrite", "write_new", "open_output", "delete", "delete_directory"}
_OF_VERSIONS = ("schema", "snapshot", "tag", "branch")
_HINTS = ("snapshot/LATEST", "snapshot/EARLIEST")


@dataclass(frozen=True)
class RestMetastore(Metastore):
    """A REST catalog. `warehouse`: the name of a catalog on the server, which assigns the locations and ids of tables."""

    kind = "rest"
    takes_files = False

    @property
    def storage_options(self) -> dict[str, str]:
        """The storage options of the client; the server does not provide any."""
        return store_options(self.options)

    def databases(self, on_damage: OnDamage | None = None) -> list[Database]:
        names = sorted(self._client.pages(DATABASES, items="databases", kind=str))
        answers = ((name, self._client.get(DATABASES, name)) for name in names)
        return readable(answers, lambda answer: _database(*answer), on_damage)

    def database(self, name: str) -> Database:
        return self._database_of(name)

    def _database_of(self, name: str, wanted: str | None = None) -> Database:
        """A database, in which the table `wanted` is looked for."""
        try:
            return _database(name, self._client.get(DATABASES, name))
        except NotFound:
            raise self.no_database(name, wanted) from None

    def some_names(self, database: str | None = None) -> Iterable[str]:
        if database is None:
            return self._client.first_page(DATABASES, items="databases", kind=str)
        return self._client.first_page(DATABASES, database, _TABLES, items="tables", kind=str)

    def create_database(self, name: str) -> None:
        self._client.post(DATABASES, content={"name": name, "options": {}})

    def drop_database(self, name: str) -> None:
        self.database(name)
        self._client.delete(DATABASES, name)

    def tables(self, database: str, on_damage: OnDamage | None = None) -> list[RegisteredTable]:
        try:
            found = list(self._client.pages(DATABASES, database, "table-details", items="tableDetails", kind=dict))
        except NotFound:
            raise self.no_database(database) from None
        read = readable(found, lambda table: _registered(database, table) if _is_paimon(table) else None, on_damage)
        return sorted(table for table in read if table is not None)

    def table(self, identifier: TableIdentifier) -> RegisteredTable:
        try:
            found = self._client.get(DATABASES, identifier.database, _TABLES, identifier.table)
        except NotFound:
            self._database_of(*identifier)
            raise self.no_table(identifier) from None
        if not _is_paimon(found):
            raise NotSupported(f"table {identifier}", f"its type is {_type_of(found)}", "only Paimon tables are supported")
        return _registered(identifier.database, found)

    def url_of_new_table(self, identifier: TableIdentifier) -> str:
        """The URL of the table if it exists, else empty: the server chooses the URL of a new table."""
        try:
            return self.table(identifier).url
        except NotFound:
            self.database(identifier.database)
            return ""

    def create_table(self, identifier: TableIdentifier, schema: TableSchema, publish: Callable[[], bool]) -> bool:
        """Ask the server to create the table; `publish` is not called."""
        document = json.loads(schema.to_json())
        definition = {key: document.get(key) for key in ("fields", "partitionKeys", "primaryKeys", "options", "comment")}
        name = {"database": identifier.database, "object": identifier.table}
        try:
            self.table(identifier)
            return False
        except NotFound:
            self._client.post(DATABASES, identifier.database, _TABLES, content={"identifier": name, "schema": definition})
            return True

    def drop_table(self, identifier: TableIdentifier, delete_files: Callable[[], None]) -> None:
        """Ask the server to drop the table and its files; `delete_files` is not called."""
        self._client.delete(DATABASES, identifier.database, _TABLES, identifier.table)

    def rename_table(self, old: TableIdentifier, new: TableIdentifier) -> None:
        self.table(old)
        names = [{"database": name.database, "object": name.table} for name in (old, new)]
        self._client.post(_TABLES, "rename", content={"source": names[0], "destination": names[1]})

    def change_schema(self, identifier: TableIdentifier, changes: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._client.post(DATABASES, identifier.database, _TABLES, identifier.table, content={"changes": list(changes)})
        except NoClearAnswer as error:
            raise CommitUnknown(
                f"the schema of {identifier} may or may not have been changed",
                f"{error.what}: {error.why}",
                f"before trying again: paimon-cli schemas ls {shlex.quote(str(identifier))}{self.flags}",
            ) from None

    def alter_table(self, identifier: TableIdentifier, old: TableSchema, new: TableSchema) -> list[str]:
        return []

    def guarded(self, storage: Storage, root: str, identifier: TableIdentifier | None) -> Storage:
        return RestStorage(storage, root, self._client, identifier)

    def partition_marks(self, identifier: TableIdentifier, branch: str) -> PartitionMarks:
        """An event only: the server determines the partitions itself, so none can be added."""
        from paimon_cli.maintain.mark_done import MARK_EVENT

        database, table = identifier
        name = table if branch == MAIN_BRANCH else f"{table}$branch_{branch}"

        def send_event(done: DonePartition) -> None:
            content = {"specs": [dict(done.values)]}
            self._client.post(DATABASES, database, _TABLES, name, "partitions", "mark", content=content)

        return {MARK_EVENT: send_event}

    @cached_property
    def _client(self) -> RestClient:
        return RestClient.of(self.warehouse, self.options)


class RestStorage(WrappedStorage):
    """The storage of a table whose snapshots are published by the server. Picklable.

    Only the server changes schemas, tags and branches, and adds snapshots; calls that would bypass it are refused. Expired
    snapshots and changelogs are deleted by the client, as in Java.
    """

    def __init__(self, inner: Storage, root: str, client: RestClient, identifier: TableIdentifier | None) -> None:
        super().__init__(inner)
        self._root, self._client, self._identifier = root, client, identifier

    def __reduce__(self) -> tuple[Any, ...]:
        return RestStorage, (self.inner, self._root, self._client, self._identifier)

    def before(self, call: str, path: str) -> None:
        below = path.removeprefix(f"{self._root}/")
        if below.startswith(f"branch/{BRANCH_PREFIX}"):
            below = "/".join(below.split("/")[2:]) or "branch"
        expires = call == "delete" and below.startswith("snapshot/")
        if call in _WRITES and below.split("/")[0] in _OF_VERSIONS and below not in _HINTS and not expires:
            raise NotSupported(
                f"cannot change {path.removeprefix(f'{self._root}/')} in a rest catalog",
                "only its server changes schemas, snapshots, tags and branches",
                "use an engine that does this through the server",
            )

    def check_commits(self) -> str | None:
        """Raise `Refused` for a table named by its path, because the server would not know about the commit."""
        if self._identifier is None:
            raise Refused(
                f"no safe commit at {self._root}",
                "a REST catalog only publishes snapshots of tables that are named db.table",
                "name the table as db.table, or add --option metastore=filesystem if it is in no REST catalog",
            )
        return None

    def publish_snapshot(self, path: str, data: bytes, base_uuid: str | None) -> PutOutcome:
        """Ask the server to publish a snapshot on top of the one with `base_uuid`.

        After a refusal, or without an answer, an earlier attempt may still have succeeded. The snapshot file then
        decides: it names a manifest list that belongs only to this commit.
        """
        self.check_commits()
        uuid = self._table_id
        settle(self.inner)
        content = {"tableId": uuid, "baseSnapshotUuid": base_uuid, "snapshot": json.loads(data), "statistics": []}
        below = path.removeprefix(f"{self._root}/branch/{BRANCH_PREFIX}")
        branch = "" if below == path else below.split("/")[0]
        try:
            answer = self._client.post(*self._address(branch), "commit", content=content)
        except NoClearAnswer:
            return self._outcome_by_file(path, data, PutOutcome.UNKNOWN)
        except RequestConflict:
            return self._outcome_by_file(path, data, PutOutcome.EXISTS)
        return PutOutcome.CREATED if answer.get("success") else self._outcome_by_file(path, data, PutOutcome.EXISTS)

    def _outcome_by_file(self, path: str, data: bytes, otherwise: PutOutcome) -> PutOutcome:
        try:
            published = Snapshot.from_json(self.inner.read_bytes(path), path)
        except (FileNotFoundError, DamagedFile):
            return otherwise
        is_ours = published.delta_manifest_list == Snapshot.from_json(data, path).delta_manifest_list
        return PutOutcome.CREATED if is_ours else PutOutcome.EXISTS

    def create_tag(self, name: str, snapshot_id: int, retained_millis: int | None) -> None:
        retained = None if retained_millis is None else f"{retained_millis} ms"
        self._post("tags", content={"tagName": name, "snapshotId": snapshot_id, "timeRetained": retained})

    def delete_tag(self, name: str) -> None:
        self._client.delete(*self._address(), "tags", name)

    def create_branch(self, name: str, tag: str | None) -> None:
        self._post("branches", content={"branch": name, "fromTag": tag})

    def delete_branch(self, name: str) -> None:
        self._client.delete(*self._address(), "branches", name)

    def fast_forward(self, branch: str) -> None:
        self._post("branches", branch, "forward", content={})

    def roll_back(self, target: int | str, latest_id: int) -> None:
        tag, snapshot = {"type": "tag", "tagName": target}, {"type": "snapshot", "snapshotId": target}
        instant = tag if isinstance(target, str) else snapshot
        self._post("rollback", content={"instant": instant, "fromSnapshot": latest_id})

    def _post(self, *path: str, content: Mapping[str, Any]) -> None:
        self._client.post(*self._address(), *path, content=content)

    def _address(self, branch: str = "") -> tuple[str, ...]:
        """The path of the table, or of a branch, in the REST API."""
        self.check_commits()
        assert self._identifier is not None
        database, table = self._identifier
        return DATABASES, database, _TABLES, f"{table}$branch_{branch}" if branch else table

    @cached_property
    def _table_id(self) -> str | None:
        found = self._client.get(*self._address()).get("id")
        return None if found is None else str(found)


def _database(name: str, found: Mapping[str, Any]) -> Database:
    location = part(found, "location", str)
    if location:
        _check_location(f"database {name}", location)
    return Database(name, location)


def _check_location(what: str, location: str) -> None:
    """Raise `NoClearAnswer` for a location that means another place in each working directory."""
    if not is_absolute(location):
        why = "it is relative, so it would lead to another place from each working directory"
        raise NoClearAnswer(f"the server returned '{shortened(location)}' as the location of {what}", why, CHECK_SERVER)


def _registered(database: str, found: Mapping[str, Any]) -> RegisteredTable:
    name, path = part(found, "name", str) or "", part(found, "path", str)
    if not path:
        raise NoClearAnswer(f"the server returned no path for {database}.{name}", "its files cannot be found", CHECK_SERVER)
    _check_location(f"table {database}.{name}", path)
    return RegisteredTable(TableIdentifier(database, name), plain_path(path), part(found, "id", str))


def _type_of(found: Mapping[str, Any]) -> str:
    schema = part(found, "schema", dict) or {}
    return str((part(schema, "options", dict) or {}).get("type", "table"))


def _is_paimon(found: Mapping[str, Any]) -> bool:
    return _type_of(found) in ("table", "materialized-table")
