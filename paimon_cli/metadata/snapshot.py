"""Snapshot files, the state of a table after a commit, and tag files, a copy of a snapshot with an optional time to live.

Their JSON has the layout of Java's pretty printer (FORMAT.md, sections 2.1, 3.1, 3.3 and 13.2; Java Snapshot, Tag).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from paimon_cli.errors import BeingDropped, DamagedFile, if_damaged
from paimon_cli.metadata.table_layout import check_plain_names

CURRENT_VERSION = 3
APPEND, COMPACT, OVERWRITE, ANALYZE = "APPEND", "COMPACT", "OVERWRITE", "ANALYZE"


class RowOperation:
    """What a commit did to rows, as current Java names it in snapshots. Other values would stop its readers."""

    WRITE, OVERWRITE, UPDATE, DELETE, MERGE, TRUNCATE = "WRITE", "OVERWRITE", "UPDATE", "DELETE", "MERGE", "TRUNCATE"


DROP = "DROP"
"""The kind of the snapshot that ends a history: the table or branch is being dropped, and nothing can be committed on top of it.
It names no files. Other tools do not know the kind, so they refuse to read or to continue the history.
"""

COMMIT_KINDS = (APPEND, COMPACT, OVERWRITE, ANALYZE)
_NO_WATERMARK = -(2**63)
_MAX_DIGITS = 19
_SHOWN = 100
"""Characters that a message shows of a wrong value."""

OWN_PROPERTIES = "paimon-cli."
"""How the names of the snapshot properties begin that only paimon-cli sets; each of its snapshots has one."""
ATTEMPTS_PROPERTY, DURATION_PROPERTY = "paimon-cli.commit-attempts", "paimon-cli.commit-duration-ms"
"""Snapshot properties that paimon-cli sets: number of attempts, and milliseconds from the first attempt to publication."""
WORK_PROPERTY = "paimon-cli.work-duration-ms"
"""Snapshot property of paimon-cli's compactions: milliseconds from planning to publication."""
EXPIRED_CHANGELOG_PROPERTY = "paimon-cli.changelog-expired"
"""Snapshot property of a snapshot that had expired with its changelog, and was published again from a tag."""
SEQUENCE_PROPERTY = "sequence.generation.max-sequence-number"
"""Snapshot property, the greatest sequence number of all files so far; set if a table option requires it."""


@dataclass(frozen=True)
class Snapshot:
    """A version of the table. Its live files are the merged entries of the base list's manifests, then of the delta list's.

    `delta_*` describe the changes of this commit. Record counts are of unmerged rows. `time_millis` is in milliseconds since the
    epoch, sizes are in bytes. Its `repr` leaves out what only readers of files need.
    """

    id: int
    schema_id: int
    base_manifest_list: str = field(repr=False)
    delta_manifest_list: str = field(repr=False)
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_millis: int
    total_record_count: int
    delta_record_count: int
    base_manifest_list_size: int | None = field(default=None, repr=False)
    delta_manifest_list_size: int | None = field(default=None, repr=False)
    changelog_manifest_list: str | None = field(default=None, repr=False)
    changelog_manifest_list_size: int | None = field(default=None, repr=False)
    index_manifest: str | None = field(default=None, repr=False)
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] | None = field(default=None, hash=False, repr=False)
    next_row_id: int | None = None
    """The id of the next row of a table with row tracking; None for other tables."""
    operation: str | None = field(default=None, repr=False)
    """One of `RowOperation`, or another text of another writer; None for compactions and older writers."""
    writer_version: str | None = field(default=None, repr=False)
    """The program that wrote the snapshot."""
    uuid: str | None = field(default=None, repr=False)
    version: int = field(default=CURRENT_VERSION, repr=False)

    @property
    def changelog_has_expired(self) -> bool:
        """Whether this snapshot had expired with its changelog, and was published again from a tag, which keeps only its rows."""
        return self.changelog_manifest_list is None and EXPIRED_CHANGELOG_PROPERTY in (self.properties or {})

    @property
    def origin(self) -> tuple[str | int | None, ...]:
        """Tells the commit from another one of the same number, whatever the formatting of its file: a snapshot created from a
        tag is serialised again, by older writers without its UUID.
        """
        return (self.id, self.base_manifest_list, self.delta_manifest_list, self.commit_user, self.time_millis)

    @property
    def commit_attempts(self) -> int | None:
        """The number of attempts; None for a commit of another tool."""
        return self._integer_property(ATTEMPTS_PROPERTY)

    @property
    def commit_duration_millis(self) -> int | None:
        return self._integer_property(DURATION_PROPERTY)

    @property
    def is_ours(self) -> bool:
        """Whether paimon-cli has committed it."""
        return any(name.startswith(OWN_PROPERTIES) for name in self.properties or ())

    @property
    def work_duration_millis(self) -> int | None:
        """The duration of the compaction that this snapshot publishes; None for other snapshots."""
        return self._integer_property(WORK_PROPERTY)

    @property
    def greatest_sequence_number(self) -> int | None:
        """The greatest sequence number of all files up to this snapshot; None if it is not recorded."""
        return self._integer_property(SEQUENCE_PROPERTY)

    def _integer_property(self, key: str) -> int | None:
        text = (self.properties or {}).get(key, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS else None

    def to_json(self) -> str:
        """The text of the snapshot file in Java's layout. None values are omitted, as newer Java does and all readers accept."""
        content = {key: getattr(self, name) for key, (name, _) in _KEYS.items()}
        content["properties"] = self.properties or None
        return dump_java_json({key: value for key, value in content.items() if value is not None})

    @staticmethod
    def from_json(text: str | bytes, path: str = "") -> Snapshot:
        """Parse a snapshot or tag file of any writer; unknown keys are ignored. Raises a `DamagedFile` that names `path`, and
        `BeingDropped` for the end of a history.
        """
        try:
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError("it does not hold a JSON object")
            if content.get("commitKind") == DROP:
                raise being_dropped(path)
            return _parsed(content, path)
        except (ValueError, RecursionError) as error:
            hint = if_damaged(_table_of(path)) if path.count("/") > 1 else ""
            raise DamagedFile(f"cannot read {_kind_of(path)} file {path}".rstrip(), str(error), hint, path=path) from error


_INTEGER, _COUNT, _ID, _TEXT, _NAME, _KIND, _TEXTS = (
    "a whole number of 64 bits",
    "a whole number of 64 bits from 0 on",
    "a whole number of 64 bits from 1 on",
    "text",
    "a file name",
    f"one of {', '.join(COMMIT_KINDS)}",
    "an object of texts",
)
_KEYS = {
    "version": ("version", _ID),
    "uuid": ("uuid", _TEXT),
    "id": ("id", _ID),
    "schemaId": ("schema_id", _COUNT),
    "baseManifestList": ("base_manifest_list", _NAME),
    "baseManifestListSize": ("base_manifest_list_size", _COUNT),
    "deltaManifestList": ("delta_manifest_list", _NAME),
    "deltaManifestListSize": ("delta_manifest_list_size", _COUNT),
    "changelogManifestList": ("changelog_manifest_list", _NAME),
    "changelogManifestListSize": ("changelog_manifest_list_size", _COUNT),
    "indexManifest": ("index_manifest", _NAME),
    "commitUser": ("commit_user", _TEXT),
    "writerVersion": ("writer_version", _TEXT),
    "commitIdentifier": ("commit_identifier", _INTEGER),
    "commitKind": ("commit_kind", _KIND),
    "timeMillis": ("time_millis", _COUNT),
    "totalRecordCount": ("total_record_count", _COUNT),
    "deltaRecordCount": ("delta_record_count", _INTEGER),
    "changelogRecordCount": ("changelog_record_count", _COUNT),
    "watermark": ("watermark", _INTEGER),
    "statistics": ("statistics", _NAME),
    "properties": ("properties", _TEXTS),
    "nextRowId": ("next_row_id", _COUNT),
    "operation": ("operation", _TEXT),
}
"""JSON key -> (attribute, expected value), in Java's order."""
_LEAST = {_INTEGER: -(2**63), _COUNT: 0, _ID: 1}
_FILE_NAMES = {name for name, kind in _KEYS.values() if kind is _NAME}
_REQUIRED = frozenset(field.name for field in fields(Snapshot) if field.default is field.default_factory is MISSING)


def _parsed(content: Mapping[str, Any], path: str) -> Snapshot:
    """The snapshot in a parsed file. Raises a `ValueError` that names the invalid key."""
    values: dict[str, Any] = {"version": 1}
    for key, (name, kind) in _KEYS.items():
        value = content.get(key)
        if value is None and name not in _REQUIRED:
            continue
        if not _fits(value, kind):
            raise ValueError(f"'{key}' must be {kind}, found {repr(value)[:_SHOWN]}")
        values[name] = value
    if values.get("watermark") == _NO_WATERMARK:
        del values["watermark"]
    check_plain_names((values[name] for name in _FILE_NAMES & values.keys()), path)
    return Snapshot(**values)


def _fits(value: Any, kind: str) -> bool:
    if kind in _LEAST:
        return isinstance(value, int) and not isinstance(value, bool) and _LEAST[kind] <= value < 2**63
    if kind is _TEXTS:
        return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return isinstance(value, str) and (kind is not _KIND or value in COMMIT_KINDS)


def end_text(snapshot_id: int, commit_user: str, time_millis: int) -> str:
    """The text of a snapshot file that ends a history (see `DROP`)."""
    return dump_java_json(
        {
            "version": CURRENT_VERSION,
            "id": snapshot_id,
            "commitUser": commit_user,
            "commitKind": DROP,
            "timeMillis": time_millis,
        }
    )


def _kind_of(path: str) -> str:
    """What the file with a snapshot is: a snapshot, a changelog or a tag."""
    directory = path.split("/")[-2:][0]
    return directory if directory in ("tag", "changelog") else "snapshot"


def _table_of(path: str) -> str:
    """The table and branch to which a snapshot, changelog or tag file belongs, as the argument of a command."""
    root, _, branch = path.rsplit("/", 2)[0].partition("/branch/branch-")
    return shlex.quote(f"{root}$branch_{branch}" if branch else root)


def being_dropped(path: str) -> BeingDropped:
    """The error for the end of a history, found in the snapshot file `path`."""
    root, _, branch = path.partition("/snapshot/")[0].partition("/branch/branch-")
    if branch:
        command = f"branches rm {shlex.quote(root)} {shlex.quote(branch)}"
        what = f"branch '{branch}' of {root} is being deleted"
    else:
        command, what = f"drop {shlex.quote(root)}", f"{root} is being dropped"
    why = "a drop has ended its history and deletes its files, so it can neither be read nor written"
    hint = f"if no drop is running any more, delete what is left of it: paimon-cli {command}"
    return BeingDropped(what, why, hint, path=path, command=f"paimon-cli {command}" if branch else None)


_CREATED, _RETAINED = "tagCreateTime", "tagTimeRetained"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_RETAINED_SECONDS = 2**63 // 10**9
"""292 years, the longest duration in nanoseconds of 64 bits."""
_PARTS = 7
"""Year, month, day, hour, minute, second, nanosecond; trailing zero parts may be missing."""


@dataclass(frozen=True)
class Tag:
    """A named copy of a snapshot, with an optional time to live.

    `created_millis` is the writer's local wall clock read as if it were UTC, as Java stores it; None for a tag without a time to
    live. `retained_millis` is the time to live; None for a tag that is kept until it is deleted.
    """

    snapshot: Snapshot
    created_millis: int | None = None
    retained_millis: int | None = None

    @staticmethod
    def from_json(text: str | bytes, path: str = "") -> Tag:
        """Parse a tag file of any writer. Raises a `DamagedFile` that names `path`."""
        snapshot = Snapshot.from_json(text, path)
        content = json.loads(text, parse_float=Decimal)
        return Tag(snapshot, _created(content.get(_CREATED), path), _retained(content.get(_RETAINED), path))


_CHANGELOG = ("changelogManifestList", "changelogManifestListSize", "changelogRecordCount")


def tag_text(snapshot_text: bytes, created_millis: int, retained_millis: int) -> bytes:
    """The content of a tag file with a time to live. Without one, a tag file is a plain copy of the snapshot file."""
    content = json.loads(snapshot_text, parse_float=Decimal)
    moment = _EPOCH + timedelta(milliseconds=created_millis)
    content[_CREATED] = [*moment.timetuple()[:6], moment.microsecond * 1000]
    content[_RETAINED] = (Decimal(retained_millis) / 1000).quantize(Decimal("1.000000000"))
    return dump_java_json(content).encode()


def snapshot_text(tag: bytes, *, has_changelog: bool = True) -> bytes:
    """The snapshot file within a tag file, with every field that its writer wrote (Java Tag.trimToSnapshot).

    `has_changelog`: whether the changelog of the snapshot still exists; otherwise the text says so, and does not name it. Raises
    `DamagedFile` if the file does not hold a snapshot.
    """
    Snapshot.from_json(tag)
    content = json.loads(tag, parse_float=Decimal)
    gone = {_CREATED, _RETAINED} if has_changelog else {_CREATED, _RETAINED, *_CHANGELOG}
    if not content.keys() & gone:
        return tag
    left = {key: value for key, value in content.items() if key not in gone}
    if not has_changelog:
        left["properties"] = {**(content.get("properties") or {}), EXPIRED_CHANGELOG_PROPERTY: "true"}
    return dump_java_json(left).encode()


def renamed_files(text: bytes, values: Mapping[str, Any], without_property: str) -> bytes:
    """The text of a snapshot, tag or changelog with other values for some fields, named as attributes of `Snapshot`, and without
    a property; None removes a field. Everything else that its writer wrote stays, and no size is added where there was none.
    """
    content = json.loads(text, parse_float=Decimal)
    for key, (name, _) in _KEYS.items():
        if name in values and values[name] is None:
            content.pop(key, None)
        elif name in values and (not name.endswith("_size") or content.get(key) is not None):
            content[key] = values[name]
    if content.get("properties"):
        content["properties"] = {key: value for key, value in content["properties"].items() if key != without_property}
    return dump_java_json(content).encode()


def _created(parts: Any, path: str) -> int | None:
    if parts is None:
        return None
    try:
        numbers = [int(part) for part in parts] + [0] * (_PARTS - len(parts))
        year, month, day, hour, minute, second, nanos = numbers
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
        if not 0 <= nanos < 10**9:
            raise ValueError(f"a second has no {nanos} nanoseconds")
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedFile(f"tag file {path} has an invalid {_CREATED}", str(error), path=path) from error
    return int(moment.timestamp()) * 1000 + nanos // 1_000_000


def _retained(seconds: Any, path: str) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | Decimal):
        raise DamagedFile(f"tag file {path} has an invalid {_RETAINED}", f"found {seconds!r}", path=path)
    if not 0 <= seconds <= _MAX_RETAINED_SECONDS:
        why = f"a tag is kept for 0 to {_MAX_RETAINED_SECONDS:,} seconds, found {seconds!s:.40}"
        raise DamagedFile(f"tag file {path} has an invalid {_RETAINED}", why, path=path)
    return int(seconds * 1000)


_LOWER_ESCAPE = re.compile(r"(\\\\)|\\u00([01][0-9a-f])")


def dump_java_json(obj: object) -> str:
    """JSON text of dicts, lists, strings, ints, decimals, bools and None, in the layout of Java's pretty printer.

    That is `"key" : value`, indent 2, `[ {`, `{ }` and no final newline. Raises `TypeError` for other objects.
    """
    return _render(obj, "\n")


def _render(obj: object, newline: str) -> str:
    if isinstance(obj, str):
        return _text(obj)
    if obj is None or isinstance(obj, bool):
        return json.dumps(obj)
    if isinstance(obj, int):
        return int.__repr__(obj)
    if isinstance(obj, Decimal):
        return str(obj)
    if isinstance(obj, Mapping):
        if not obj:
            return "{ }"
        inner = newline + "  "
        members = ",".join(f"{inner}{_text(key)} : {_render(value, inner)}" for key, value in obj.items())
        return "{" + members + newline + "}"
    if isinstance(obj, Sequence):
        # a list adds no indentation: its first object starts on the line of the bracket
        return f"[ {', '.join(_render(item, newline) for item in obj)} ]" if obj else "[ ]"
    raise TypeError(f"cannot write {type(obj).__name__} as JSON")


def _text(text: str) -> str:
    """A JSON string, with upper-case digits in escaped control characters, as Java writes them."""
    quoted = encode_basestring(text)
    return _LOWER_ESCAPE.sub(lambda match: match[1] or "\\u00" + match[2].upper(), quoted) if "\\" in quoted else quoted
