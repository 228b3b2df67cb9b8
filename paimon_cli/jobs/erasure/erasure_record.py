"""The record of an erasure that was begun: what a command that was killed has to finish.

    TABLE/removal/removal-UUID    kind, keys, and the files to delete once no version names them (JSON)

It is there before the first new file, and deleted after the last old one. The files in it are those that the erasure replaces and
those that it writes, so none of them belongs to a commit of another job. The keys are in it because the versions of a key that
matched the condition may be gone already, while its other versions are left.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type, values_to_arrow
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.table_layout import is_plain_name
from paimon_cli.storage.storage import remove_empty_directory

KIND = "erasure"
_DIRECTORIES = ("manifest", "index", "statistics")


@dataclass
class ErasureRecord:
    """A record: `keys` as serialised rows of the whole primary key, `files` by path below the table."""

    path: str
    keys: tuple[bytes, ...] = ()
    files: set[str] = field(default_factory=set)

    @staticmethod
    def new(context: TableContext, keys: Iterable[bytes]) -> ErasureRecord:
        return ErasureRecord(context.layout.removal(context.random.uuid()), tuple(keys))

    def write(self, context: TableContext) -> None:
        content = {"kind": KIND, "keys": [key.hex() for key in self.keys], "files": sorted(self.files)}
        context.storage.overwrite(self.path, json.dumps(content).encode())

    def delete(self, context: TableContext) -> None:
        context.storage.delete(self.path)
        remove_empty_directory(context.storage, context.layout.removal_directory)


def unfinished_erasures(context: TableContext) -> list[ErasureRecord]:
    """The records that erasures have left that were killed. One that is incomplete names nothing: nothing was done yet."""
    found = []
    for status in context.storage.list_directory(context.layout.removal_directory):
        if status.is_directory or status.name.startswith("."):
            continue
        try:
            content = json.loads(context.storage.read_bytes(status.path))
            if content["kind"] == KIND:
                keys = tuple(bytes.fromhex(key) for key in content["keys"])
                files = {path for path in content["files"] if _is_of_a_table(path)}
                found.append(ErasureRecord(status.path, keys, files))
        except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError, AttributeError):
            continue
    return found


def _is_of_a_table(path: str) -> bool:
    """Whether a path below a table can be one of a data, index, metadata or statistics file: nothing else is ever deleted."""
    *directories, name = path.split("/")
    if not is_plain_name(name) or not all(is_plain_name(part) for part in directories) or not directories:
        return False
    return directories in ([name] for name in _DIRECTORIES) or directories[-1].startswith("bucket-")


def keys_of(context: TableContext, keys: Iterable[bytes]) -> pa.RecordBatch:
    """Serialised keys as columns of the primary key. Raises `ValueError` for one that is none."""
    schema = context.schema
    types, names = schema.types_of(schema.primary_keys), list(schema.primary_keys)
    rows = [deserialize_row(key, types) for key in keys]
    columns = [values_to_arrow(list(values), t) for values, t in zip(zip(*rows, strict=True), types, strict=True)] or [
        pa.nulls(0, arrow_type(t)) for t in types
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)
