"""Snapshot files, the state of a table after one commit, and tag files, a copy of a snapshot and how long to keep it.

Their JSON text has the layout of Java's pretty printer (FORMAT.md, sections 2.1, 3.1, 3.3 and 13.2; Java Snapshot, Tag).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.table_layout import plain_name

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


CURRENT_VERSION = 3
APPEND, COMPACT, OVERWRITE, ANALYZE = "APPEND", "COMPACT", "OVERWRITE", "ANALYZE"

_KINDS = (APPEND, COMPACT, OVERWRITE, ANALYZE)
_NO_WATERMARK = -(2**63)
_LONGEST_NUMBER = 19

ATTEMPTS_PROPERTY, DURATION_PROPERTY = "paimon-cli.commit-attempts", "paimon-cli.commit-duration-ms"
"""Of paimon-cli's commits: how often they were tried, and the time from the first attempt to the publication."""


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
        """None where another tool has committed."""

        return self._noted(ATTEMPTS_PROPERTY)

    @property
    def commit_duration_millis(self) -> int | None:
        return self._noted(DURATION_PROPERTY)

    def _noted(self, key: str) -> int | None:
        text = (self.properties or {}).get(key, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_NUMBER else None

    def to_json(self) -> str:
        """Text of the snapshot file in Java's layout; what is None is left out, as newer Java does and all readers accept."""
        content = {
            "version": self.version,
            "uuid": self.uuid,
            "id": self.id,
            "schemaId": self.schema_id,
            "baseManifestList": self.base_manifest_list,
            "baseManifestListSize": self.base_manifest_list_size,
            "deltaManifestList": self.delta_manifest_list,
            "deltaManifestListSize": self.delta_manifest_list_size,
            "changelogManifestList": self.changelog_manifest_list,
            "changelogManifestListSize": self.changelog_manifest_list_size,
            "indexManifest": self.index_manifest,
            "commitUser": self.commit_user,
            "commitIdentifier": self.commit_identifier,
            "commitKind": self.commit_kind,
            "timeMillis": self.time_millis,
            "totalRecordCount": self.total_record_count,
            "deltaRecordCount": self.delta_record_count,
            "changelogRecordCount": self.changelog_record_count,
            "watermark": self.watermark,
            "statistics": self.statistics,
            "properties": self.properties or None,
        }
        return dump_java_json({key: value for key, value in content.items() if value is not None})

    @staticmethod
    def from_json(text: str | bytes, path: str = "") -> Snapshot:
        """Read a snapshot or tag file of any writer; unknown keys are ignored. Raises `DamagedFile` that names `path`."""
        try:
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError("it does not hold a JSON object")
            return _SnapshotReader(content, path).snapshot()
        except (ValueError, RecursionError) as error:
            hint = "restore the file, or run `paimon-cli repair` to see what can be done"
            raise DamagedFile(f"cannot read snapshot file {path}".rstrip(), str(error), hint, path=path) from error


@dataclass(frozen=True)
class _SnapshotReader:
    """Takes the keys out of a parsed snapshot file; `ValueError` names the key that does not fit."""

    content: Mapping[str, Any]
    path: str

    def snapshot(self) -> Snapshot:
        watermark = self._optional_integer("watermark")
        return Snapshot(
            id=self._integer("id"),
            schema_id=self._integer("schemaId"),
            base_manifest_list=plain_name(self._text("baseManifestList"), self.path),
            delta_manifest_list=plain_name(self._text("deltaManifestList"), self.path),
            commit_user=self._text("commitUser"),
            commit_identifier=self._integer("commitIdentifier"),
            commit_kind=self._kind(),
            time_millis=self._integer("timeMillis"),
            total_record_count=self._integer("totalRecordCount"),
            delta_record_count=self._integer("deltaRecordCount"),
            base_manifest_list_size=self._optional_integer("baseManifestListSize"),
            delta_manifest_list_size=self._optional_integer("deltaManifestListSize"),
            changelog_manifest_list=self._optional_name("changelogManifestList"),
            changelog_manifest_list_size=self._optional_integer("changelogManifestListSize"),
            index_manifest=self._optional_name("indexManifest"),
            changelog_record_count=self._optional_integer("changelogRecordCount"),
            watermark=None if watermark == _NO_WATERMARK else watermark,
            statistics=self._optional_name("statistics"),
            properties=self._properties(),
            uuid=None if self.content.get("uuid") is None else self._text("uuid"),
            version=1 if self.content.get("version") is None else self._integer("version"),
        )

    def _integer(self, key: str) -> int:
        value = self.content.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"'{key}' must be a whole number, found {value!r}")
        return value

    def _text(self, key: str) -> str:
        value = self.content.get(key)
        if not isinstance(value, str):
            raise ValueError(f"'{key}' must be text, found {value!r}")
        return value

    def _kind(self) -> str:
        kind = self._text("commitKind")
        if kind not in _KINDS:
            raise ValueError(f"'commitKind' must be one of {', '.join(_KINDS)}, found {kind!r}")
        return kind

    def _optional_integer(self, key: str) -> int | None:
        return None if self.content.get(key) is None else self._integer(key)

    def _optional_name(self, key: str) -> str | None:
        return None if self.content.get(key) is None else plain_name(self._text(key), self.path)

    def _properties(self) -> dict[str, str] | None:
        properties = self.content.get("properties")
        if properties is None:
            return None
        if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
            raise ValueError(f"'properties' must map texts to texts, found {properties!r}")
        return properties


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
