"""Snapshot files, the state of a table after one commit, and tag files, a copy of a snapshot and how long to keep it.

Their JSON text has the layout of Java's pretty printer (FORMAT.md, sections 2.1, 3.1, 3.3 and 13.2; Java Snapshot, Tag).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.table_layout import check_plain_names

CURRENT_VERSION = 3
APPEND, COMPACT, OVERWRITE, ANALYZE = "APPEND", "COMPACT", "OVERWRITE", "ANALYZE"

_KINDS = (APPEND, COMPACT, OVERWRITE, ANALYZE)
_NO_WATERMARK = -(2**63)
_LONGEST_NUMBER = 19

ATTEMPTS_PROPERTY, DURATION_PROPERTY = "paimon-cli.commit-attempts", "paimon-cli.commit-duration-ms"
"""Properties of commits by paimon-cli: the number of attempts, and the time from the first one to the publication."""
WORK_PROPERTY = "paimon-cli.work-duration-ms"
"""Property of paimon-cli's compactions: the time from their plan to the publication."""
SEQUENCE_PROPERTY = "sequence.generation.max-sequence-number"
"""The greatest sequence number of all files up to this snapshot, where the table's option asks commits to note it."""


@dataclass(frozen=True)
class Snapshot:
    """A version: its live files are the entries of the base list's manifests, then of the delta list's, folded.

    `delta_*` is what this commit changed; record counts are of unmerged rows; `time_millis` are epoch millis.
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_millis: int
    total_record_count: int
    delta_record_count: int
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = field(default=None, hash=False)
    uuid: str | None = None
    version: int = CURRENT_VERSION

    @property
    def commit_attempts(self) -> int | None:
        """The number of attempts; None for a commit of another tool."""

        return self._noted(ATTEMPTS_PROPERTY)

    @property
    def commit_duration_millis(self) -> int | None:
        return self._noted(DURATION_PROPERTY)

    @property
    def work_duration_millis(self) -> int | None:
        """How long the compaction took that this snapshot publishes."""
        return self._noted(WORK_PROPERTY)

    @property
    def greatest_sequence_number(self) -> int | None:
        """The greatest sequence number of all files up to this snapshot; None if it is not recorded."""
        return self._noted(SEQUENCE_PROPERTY)

    def _noted(self, key: str) -> int | None:
        text = (self.properties or {}).get(key, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_NUMBER else None

    def to_json(self) -> str:
        """Text of the snapshot file in Java's layout; what is None is left out, as newer Java does and all readers accept."""
        content = {key: getattr(self, name) for key, (name, _) in _KEYS.items()}
        content["properties"] = self.properties or None
        return dump_java_json({key: value for key, value in content.items() if value is not None})

    @staticmethod
    def from_json(text: str | bytes, path: str = "") -> Snapshot:
        """Read a snapshot or tag file of any writer; unknown keys are ignored. Raises `DamagedFile` that names `path`."""
        try:
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError("it does not hold a JSON object")
            return _parsed(content, path)
        except (ValueError, RecursionError) as error:
            hint = "restore the file, or run `paimon-cli repair` to see what can be done"
            raise DamagedFile(f"cannot read snapshot file {path}".rstrip(), str(error), hint, path=path) from error


_INTEGER, _TEXT, _NAME, _KIND, _TEXTS = (
    "a whole number",
    "text",
    "a file name",
    f"one of {', '.join(_KINDS)}",
    "an object of texts",
)
_KEYS = {
    "version": ("version", _INTEGER),
    "uuid": ("uuid", _TEXT),
    "id": ("id", _INTEGER),
    "schemaId": ("schema_id", _INTEGER),
    "baseManifestList": ("base_manifest_list", _NAME),
    "baseManifestListSize": ("base_manifest_list_size", _INTEGER),
    "deltaManifestList": ("delta_manifest_list", _NAME),
    "deltaManifestListSize": ("delta_manifest_list_size", _INTEGER),
    "changelogManifestList": ("changelog_manifest_list", _NAME),
    "changelogManifestListSize": ("changelog_manifest_list_size", _INTEGER),
    "indexManifest": ("index_manifest", _NAME),
    "commitUser": ("commit_user", _TEXT),
    "commitIdentifier": ("commit_identifier", _INTEGER),
    "commitKind": ("commit_kind", _KIND),
    "timeMillis": ("time_millis", _INTEGER),
    "totalRecordCount": ("total_record_count", _INTEGER),
    "deltaRecordCount": ("delta_record_count", _INTEGER),
    "changelogRecordCount": ("changelog_record_count", _INTEGER),
    "watermark": ("watermark", _INTEGER),
    "statistics": ("statistics", _NAME),
    "properties": ("properties", _TEXTS),
}
"""The keys of a snapshot file in Java's order, each with its field and what it must hold."""
_FILE_NAMES = {name for name, kind in _KEYS.values() if kind is _NAME}
_REQUIRED = frozenset(field.name for field in fields(Snapshot) if field.default is field.default_factory is MISSING)


def _parsed(content: Mapping[str, Any], path: str) -> Snapshot:
    """The snapshot in a parsed file; `ValueError` names the key that does not fit."""
    values: dict[str, Any] = {"version": 1}
    for key, (name, kind) in _KEYS.items():
        value = content.get(key)
        if value is None and name not in _REQUIRED:
            continue
        if not _fits(value, kind):
            raise ValueError(f"'{key}' must be {kind}, found {value!r}")
        values[name] = value
    if values.get("watermark") == _NO_WATERMARK:
        del values["watermark"]
    check_plain_names((values[name] for name in _FILE_NAMES & values.keys()), path)
    return Snapshot(**values)


def _fits(value: Any, kind: str) -> bool:
    if kind is _INTEGER:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is _TEXTS:
        return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return isinstance(value, str) and (kind is not _KIND or value in _KINDS)


_CREATED, _RETAINED = "tagCreateTime", "tagTimeRetained"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PARTS = 7
"""Year, month, day, hour, minute, second, nanosecond; trailing zero parts may be missing."""


@dataclass(frozen=True)
class Tag:
    """`created_millis`: the writer's wall clock read as if it were UTC, as Java stores it; None for tags without a time limit.

    `retained_millis`: the time limit, None for a tag that stays until it is deleted.
    """

    snapshot: Snapshot
    created_millis: int | None = None
    retained_millis: int | None = None

    @staticmethod
    def from_json(text: str | bytes, path: str = "") -> Tag:
        """Read a tag file of any writer. Raises `DamagedFile` that names `path`."""
        snapshot = Snapshot.from_json(text, path)
        content = json.loads(text, parse_float=Decimal)
        return Tag(snapshot, _created(content.get(_CREATED), path), _retained(content.get(_RETAINED), path))


def tag_text(snapshot_text: bytes, created_millis: int, retained_millis: int) -> bytes:
    """Content of a tag with a time limit; one without is the snapshot's own text, which all versions read."""
    content = json.loads(snapshot_text, parse_float=Decimal)
    moment = _EPOCH + timedelta(milliseconds=created_millis)
    content[_CREATED] = [*moment.timetuple()[:6], moment.microsecond * 1000]
    content[_RETAINED] = (Decimal(retained_millis) / 1000).quantize(Decimal("1.000000000"))
    return dump_java_json(content).encode()


def snapshot_text(tag: bytes) -> bytes:
    """The text of the snapshot in a tag file, with every field that its writer wrote (Java Tag.trimToSnapshot).

    `DamagedFile` if it holds no snapshot.
    """
    Snapshot.from_json(tag)
    content = json.loads(tag, parse_float=Decimal)
    if _CREATED not in content and _RETAINED not in content:
        return tag
    return dump_java_json({key: value for key, value in content.items() if key not in (_CREATED, _RETAINED)}).encode()


def _created(parts: Any, path: str) -> int | None:
    if parts is None:
        return None
    try:
        numbers = [int(part) for part in parts] + [0] * (_PARTS - len(parts))
        year, month, day, hour, minute, second, nanos = numbers
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except (TypeError, ValueError) as error:
        raise DamagedFile(f"tag file {path} has a wrong {_CREATED}", str(error), path=path) from error
    return int(moment.timestamp()) * 1000 + nanos // 1_000_000


def _retained(seconds: Any, path: str) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | Decimal):
        raise DamagedFile(f"tag file {path} has a wrong {_RETAINED}", f"found {seconds!r}", path=path)
    return int(seconds * 1000)


_LOWER_ESCAPE = re.compile(r"(\\\\)|\\u00([01][0-9a-f])")


def dump_java_json(obj: object) -> str:
    """`obj` (dicts, lists, texts, numbers, bools, None) as text: `"key" : value`, indent 2, `[ {`, `{ }`, no final newline."""
    return _render(obj, "\n")


def _render(obj: object, newline: str) -> str:
    if isinstance(obj, str):
        return _text(obj)
    if obj is None or isinstance(obj, (bool, int)):
        return json.dumps(obj)
    if isinstance(obj, Decimal):
        return str(obj)
    if isinstance(obj, Mapping):
        if not obj:
            return "{ }"
        inner = newline + "  "
        members = ",".join(f"{inner}{_text(key)} : {_render(value, inner)}" for key, value in obj.items())
        return "{" + members + newline + "}"
    if isinstance(obj, Sequence):
        # a list does not indent: objects inside of it start on the line of the bracket
        return f"[ {', '.join(_render(item, newline) for item in obj)} ]" if obj else "[ ]"
    raise TypeError(f"cannot write {type(obj).__name__} as JSON")


def _text(text: str) -> str:
    """Java writes the digits of escaped control characters in upper case."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _LOWER_ESCAPE.sub(lambda match: match[1] or "\\u00" + match[2].upper(), quoted)
