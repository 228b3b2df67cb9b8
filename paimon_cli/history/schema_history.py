"""The schemas of a table; each is a file that never changes (FORMAT.md, section 2; Java SchemaManager)."""

from __future__ import annotations

from dataclasses import dataclass, field

from paimon_cli.errors import CommitUnknown, DamagedFile, NotFound, StorageUnavailable
from paimon_cli.metadata.table_layout import SCHEMA_PREFIX, TableLayout, parse_numbered
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.storage import PutOutcome, Storage


@dataclass(frozen=True)
class SchemaHistory:
    """Reads and extends `schema/`. Schema files never change, so those read once are kept."""

    storage: Storage
    layout: TableLayout
    _read: dict[int, TableSchema] = field(default_factory=dict, compare=False, repr=False)

    def ids(self) -> list[int]:
        """All ids in ascending order; empty when there is no table."""
        entries = self.storage.list_directory(self.layout.schema_directory)
        return sorted(number for entry in entries if (number := parse_numbered(SCHEMA_PREFIX, entry.name)) is not None)

    def latest_id(self) -> int | None:
        """The newest schema, even if a stale listing does not show it yet; None when there is no table."""
        newest = max(self.ids(), default=None)
        while newest is not None and self.storage.exists(self.layout.schema(newest + 1)):
            newest += 1
        return newest

    def latest(self) -> TableSchema:
        """The newest schema; `NotFound` when there is no table."""
        newest = self.latest_id()
        if newest is None:
            raise NotFound(
                f"no table at {self.layout.root}",
                "its directory has no schema/schema-* file",
                "check the path, or create the table with `paimon-cli create`",
            )
        return self.get(newest)

    def newest_readable(self) -> TableSchema | None:
        """The newest schema that can be read, None if there is none; for commands that look for damage."""
        for number in reversed(self.ids()):
            try:
                return self.get(number)
            except (DamagedFile, NotFound):
                continue
        return None

    def get(self, schema_id: int) -> TableSchema:
        """That schema; `NotFound` if it is not there, `DamagedFile` if its file does not hold it."""
        if schema_id not in self._read:
            path = self.layout.schema(schema_id)
            try:
                schema = TableSchema.from_json(self.storage.read_bytes(path), path)
            except FileNotFoundError:
                raise NotFound(f"no schema {schema_id} in {self.layout.root}", f"{path} does not exist") from None
            if schema.id != schema_id:
                raise DamagedFile(f"schema file {path} is damaged", f"it holds the id {schema.id}", path=path)
            self._read[schema_id] = schema
        return self._read[schema_id]

    def commit(self, schema: TableSchema) -> bool:
        """Publish a new schema; False if another writer has taken its id. `CommitUnknown` if the outcome is unknown."""
        path = self.layout.schema(schema.id)
        content = schema.to_json().encode()
        if self.storage.put_if_absent(path, content) is PutOutcome.CREATED:
            return True
        # The answer to a successful put may get lost; then the file is there and it is ours.
        published = self._read_back(path)
        if published is not None and (published == content or not content.startswith(published)):
            return published == content
        raise CommitUnknown(
            f"schema {schema.id} of {self.layout.root} may or may not have been written",
            "the storage gave no clear answer",
            f"before trying again: paimon-cli schemas ls {self.layout.argument}",
            path=path,
        )

    def _read_back(self, path: str) -> bytes | None:
        try:
            return self.storage.read_bytes(path)
        except (FileNotFoundError, StorageUnavailable):
            return None
