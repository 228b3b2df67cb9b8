"""Stage files: a commit whose data files are written but not yet part of any snapshot (FORMAT.md, section 10.7).

They are JSON with a checksum, since a file that was edited or corrupted must neither become a snapshot nor determine which files
are deleted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import CommitMessage, EntryKind, IndexManifestEntry, ManifestEntry
from paimon_cli.metadata.manifests import decode_index_manifest, decode_manifest, encode_index_manifest, encode_manifests
from paimon_cli.metadata.table_layout import check_plain_names

T = TypeVar("T")


def record_to_json(value: Any) -> Any:
    """A dataclass as a value for `json.dumps`. Fields may be bool, int, str, bytes, None, tuples and dataclasses.

    Raises `TypeError` for anything else.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: record_to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [record_to_json(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be part of a record")


def record_from_json(kind: type[T], content: Any) -> T:
    """The inverse of `record_to_json`. Raises a `ValueError` that names a missing, unknown or mistyped field."""
    return _record(kind, content, kind.__name__)


def _record(kind: type[T], content: Any, path: str) -> T:
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be an object, found {_brief(content)}")
    types = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in (*names, *content):
        if name not in content or name not in names:
            raise ValueError(f"{path} {'lacks' if name in names else 'has an unknown'} '{name}'")
    return kind(**{name: _value(types[name], content[name], f"{path}.{name}") for name in names})


def _value(kind: Any, content: Any, path: str) -> Any:
    if isinstance(kind, UnionType):
        known = next(part for part in get_args(kind) if part is not type(None))
        return None if content is None else _value(known, content, path)
    if get_origin(kind) is tuple:
        if not isinstance(content, list):
            raise ValueError(f"{path} must be a list, found {_brief(content)}")
        return tuple(_value(get_args(kind)[0], item, f"{path}[{number}]") for number, item in enumerate(content))
    if dataclasses.is_dataclass(kind):
        return _record(kind, content, path)  # type: ignore[arg-type]
    if kind is bytes:
        return _bytes(content, path)
    if type(content) is not kind:
        raise ValueError(f"{path} must be of type {kind.__name__}, found {_brief(content)}")
    return content


def _bytes(content: Any, path: str) -> bytes:
    try:
        found = bytes.fromhex(content)
    except (TypeError, ValueError):
        found = b""
    if found.hex() != content:
        raise ValueError(f"{path} must be bytes as hex digits, found {_brief(content)}")
    return found


def _brief(content: Any) -> str:
    text = repr(content)
    return text if len(text) <= 40 else text[:39] + "…"


KIND = "paimon-cli/StagedCommit"
_NULL_AS_NAME, _NULL_APART = 2, 3
"""Versions: a null of `static_partition` is written as the table's default partition name, or as a key without a value."""
STAGED, COMMITTED, ABORTED = "staged", "committed", "aborted"


@dataclass(frozen=True)
class StagedCommit:
    """Everything that is needed to commit the written files later.

    `table` is its root URL; `schema_id` and `schema_time_millis` distinguish it from another table in the same directory. With
    `overwrite` the new files replace the live files of `static_partition` (see `static_values`), of the partitions with new rows
    (`dynamic_overwrite`), or of the whole table. `snapshot_ids` are the snapshots that the commit created. `version`: of the
    file; the newer one is written only where it is needed, so that earlier versions of paimon-cli read all other files.
    """

    table: str
    schema_id: int
    schema_time_millis: int
    commit_user: str
    commit_identifier: int
    read_snapshot_id: int | None
    data_conflict_check: str
    messages: tuple[CommitMessage, ...]
    overwrite: bool = False
    dynamic_overwrite: bool = False
    static_partition: tuple[str, ...] | None = None
    state: str = STAGED
    snapshot_ids: tuple[int, ...] = ()
    version: int = _NULL_AS_NAME

    def with_static_values(self, values: Mapping[str, str | None] | None, default_name: str) -> StagedCommit:
        """The commit with this static partition (None is null). `default_name`: the table's default partition name."""
        if values is None:
            return replace(self, static_partition=None, version=_NULL_AS_NAME)
        pairs = tuple(key if text is None else f"{key}={text}" for key, text in values.items())
        # The default name as a text, too: in the older version it would mean null.
        is_apart = None in values.values() or default_name in values.values()
        return replace(self, static_partition=pairs, version=_NULL_APART if is_apart else _NULL_AS_NAME)

    def static_values(self, default_name: str) -> dict[str, str | None] | None:
        """The static partition: each key with its value as a text, or None for null."""
        if self.static_partition is None:
            return None
        found = dict[str, str | None]()
        for pair in self.static_partition:
            key, equals, text = pair.partition("=")
            is_null = not equals or (self.version == _NULL_AS_NAME and text == default_name)
            found[key] = None if is_null else text
        return found

    def to_json(self) -> str:
        content = record_to_json(self)
        version = content.pop("version")
        document = {"kind": KIND, "version": version, "sha256": _digest(content), "content": content}
        return json.dumps(document, indent=1) + "\n"

    @staticmethod
    def from_json(text: str | bytes, path: str = "") -> StagedCommit:
        """Parse a stage file. Raises a `DamagedFile` that names `path`."""
        try:
            staged = record_from_json(StagedCommit, _fields(json.loads(text)))
            if staged.state not in (STAGED, COMMITTED, ABORTED):
                raise ValueError(f"unknown state {staged.state!r}")
            numbers = (staged.schema_id, staged.commit_identifier, staged.read_snapshot_id or 0, *staged.snapshot_ids)
            if not all(-(2**63) <= number < 2**63 for number in numbers):
                raise ValueError("it holds a whole number of more than 64 bits")
        except (ValueError, RecursionError) as error:
            hint = "write the rows again; the files of the damaged commit will be found as orphans"
            raise DamagedFile(f"{path} does not hold a staged commit", str(error), hint, path=path) from error
        check_plain_names(_file_names(staged.messages), path)
        return staged


def check_records(messages: tuple[CommitMessage, ...], path: str) -> None:
    """Raise `DamagedFile` for records that no reader would accept in a manifest: a commit would make the table unreadable."""
    places = [(m, (*m.created_files(), *m.append.removed, *m.compact.removed, *m.compact.added)) for m in messages]
    entries = [
        ManifestEntry(EntryKind.ADD, m.partition, m.bucket, m.total_buckets, file) for m, files in places for file in files
    ]
    created = [(m, m.created_index_files()) for m in messages]
    indexes = [IndexManifestEntry(EntryKind.ADD, m.partition, m.bucket, file) for m, files in created for file in files]
    try:
        encoded = [content for content, _ in encode_manifests(entries, 1 << 30)] if entries else []
        encoded_indexes = encode_index_manifest(indexes)
    except (ValueError, OverflowError, struct.error) as error:
        raise DamagedFile(f"{path} does not hold a staged commit", str(error), path=path) from error
    for content in encoded:
        decode_manifest(content, path)
    decode_index_manifest(encoded_indexes, path)


def _fields(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ValueError(f"it is not of kind {KIND}")
    version = document.get("version")
    if version not in (_NULL_AS_NAME, _NULL_APART):
        raise ValueError(f"it has version {version!r}, but only the versions {_NULL_AS_NAME} and {_NULL_APART} are supported")
    content = document.get("content")
    if document.get("sha256") != _digest(content):
        raise ValueError("its checksum is wrong: it was changed or truncated")
    if not isinstance(content, dict) or "version" in content:
        raise ValueError("its content must be an object without a version of its own")
    return {**content, "version": version}


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _file_names(messages: tuple[CommitMessage, ...]) -> Iterator[str]:
    for message in messages:
        for file in (*message.created_files(), *message.append.removed, *message.compact.removed):
            yield from (file.file_name, *file.extra_files)
        for index in (*message.append.added_indexes, *message.compact.added_indexes):
            yield index.file_name
