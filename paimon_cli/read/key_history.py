"""`blame`: finds every existing version of a key, with the commit that wrote it and its file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pyarrow.parquet as pq

from paimon_cli.bucket.data_file_reader import file_format, read_data_file
from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.errors import DamagedFile, NotFound, NotSupported, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, EntryKind, FileFilter, ManifestEntry
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.read.pruning import TableBounds
from paimon_cli.requests.selections import WrittenText
from paimon_cli.sql.predicate import Predicate, parse_predicate
from paimon_cli.storage.capabilities import open_sized
from paimon_cli.storage.redaction import shown_name

PREFIXED = {
    "DATE": "DATE ",
    "TIME": "TIME ",
    "TIMESTAMP": "TIMESTAMP ",
    "TIMESTAMP_LTZ": "TIMESTAMP ",
    "BINARY": "X",
    "VARBINARY": "X",
}


@dataclass(frozen=True)
class KeyVersion:
    """A version of a key: one row of a data file.

    `snapshot_id`, `time` (epoch millis), `commit_kind`, `commit_user`: of the commit that added the file, or of the oldest
    snapshot if the file is `earlier` than that. `until`: the snapshot that removed the file. `missing`: why it cannot be read.
    `engine`: what wrote the file, as far as the snapshot or the file says. `seen`: the row of the key that readers saw after that
    commit, None if they saw none.
    """

    snapshot_id: int
    time: int
    commit_kind: str
    commit_user: str
    earlier: bool
    until: int | None
    partition: str
    bucket: int
    level: int
    sequence: int | None
    kind: str | None
    values: dict[str, Any] | None
    file: str
    missing: str | None = None
    engine: str | None = None
    seen: dict[str, Any] | None = None


@dataclass(frozen=True)
class KeyMoment:
    """A commit that added or removed versions of keys: what it `wrote`, and the rows of these keys that readers saw after it.

    `has_changed`: readers saw others before it, or it is the first. Unreadable versions are left out of `seen`.
    """

    snapshot_id: int
    time: int
    commit_kind: str
    commit_user: str
    wrote: tuple[KeyVersion, ...]
    seen: tuple[dict[str, Any], ...]
    has_changed: bool


@dataclass(frozen=True)
class KeyHistory:
    """All versions of some keys by commit, oldest first, and the moments at which something happened to them."""

    versions: list[KeyVersion]
    moments: list[KeyMoment]


@dataclass(frozen=True)
class _AddedFile:
    """A data file and the snapshot that added it, or the oldest one if the file is `earlier`."""

    snapshot: Snapshot
    entry: ManifestEntry
    earlier: bool


def key_predicate(context: TableContext, key: Mapping[str, str | None]) -> Predicate:
    """The condition that some columns of the primary key, or partition columns, have these values.

    None means null; on the command line of a table with `primary-key.nullable`, so does the text NULL.
    """
    schema = context.schema
    if not schema.primary_keys:
        raise UsageError("the table has no primary key", "a row of an append table has one version only")
    allowed = dict.fromkeys((*schema.partition_keys, *schema.primary_keys))
    if not key:
        raise UsageError("no key is given", f"the key columns are {', '.join(allowed)}", "--key id=7")
    for name in key:
        if name not in allowed:
            raise UsageError(f"'{name}' is not a key column", f"the key columns are {', '.join(allowed)}", "--key id=7")
    return parse_predicate(" AND ".join(_equals(context, name, text) for name, text in key.items()), schema)


def _equals(context: TableContext, name: str, text: str | None) -> str:
    column = '"' + name.replace('"', '""') + '"'
    if text is None or (isinstance(text, WrittenText) and text == "NULL" and context.options.primary_key_nullable):
        return f"{column} IS NULL"
    root = context.schema.field(name).type.root
    if root in ("FLOAT", "DOUBLE") and text.strip().lower() == "nan":  # which equals nothing in a condition
        return f"isnan({column})"
    quoted = "'" + text.replace("'", "''") + "'"
    return f"{column} = {PREFIXED.get(root, '')}{quoted}"


def key_history(context: TableContext, predicate: Predicate) -> KeyHistory:
    """The versions of matching keys by commit, oldest first, within a commit by sequence number; and what readers saw when."""
    files, until = _added_files(context, predicate)
    versions = [version for file in files for version in _versions(context, predicate, file, until)]
    versions.sort(key=lambda v: (v.snapshot_id, v.partition, v.bucket, v.sequence or 0, v.level))
    moments = _moments(context, predicate, {file.entry.bucket_id for file in files}, versions)
    by_snapshot = {moment.snapshot_id: moment for moment in moments}
    told: list[KeyVersion] = []
    for number, of_commit in groupby(versions, key=lambda version: version.snapshot_id):
        moment = by_snapshot.get(number)
        seen = {} if moment is None else {_key(context, row): row for row in moment.seen}
        told += [v if v.values is None else replace(v, seen=seen.get(_key(context, v.values))) for v in of_commit]
    return KeyHistory(told, moments)


def _key(context: TableContext, values: Mapping[str, Any]) -> str:
    return repr([values.get(name) for name in context.schema.primary_keys])


def _moments(
    context: TableContext, predicate: Predicate, buckets: Collection[BucketId], versions: Sequence[KeyVersion]
) -> list[KeyMoment]:
    """The snapshots in which versions appeared or went, and what readers saw at each."""
    written: dict[int, list[KeyVersion]] = {}
    for version in versions:
        written.setdefault(version.snapshot_id, []).append(version)
    moments: list[KeyMoment] = []
    known: dict[str, dict[str, Any]] = {}
    for number in sorted({*written, *(version.until for version in versions if version.until is not None)}):
        snapshot = context.snapshots.find(number)
        if snapshot is None:
            continue
        rows = [(_key(context, row), row) for row in _seen(context, predicate, buckets, snapshot)]
        # A row that is still the same is kept once, or many keys at many moments would fill the memory.
        seen = tuple(old if (old := known.get(key)) == row else row for key, row in rows)
        known = {key: row for (key, _), row in zip(rows, seen, strict=True)}
        has_changed = not moments or seen != moments[-1].seen
        user, wrote = shown_name(snapshot.commit_user), tuple(written.get(number, ()))
        moments.append(KeyMoment(number, snapshot.time_millis, snapshot.commit_kind, user, wrote, seen, has_changed))
    return moments


def _seen(
    context: TableContext, predicate: Predicate, buckets: Collection[BucketId], snapshot: Snapshot
) -> Iterator[dict[str, Any]]:
    """The matching rows that a read of the snapshot shows. What cannot be read is left out: its version says why."""
    partitions, bounds, fields = {bucket_id.partition for bucket_id in buckets}, TableBounds(context), context.schema.fields
    wanted = FileFilter(partitions.__contains__, {bucket_id.bucket for bucket_id in buckets})
    try:
        state = bucket_files(context, snapshot, wanted)
        for bucket_id in sorted(set(state) & set(buckets)):
            if bucket_id.bucket < 0:
                continue
            bucket = state[bucket_id]
            files = tuple(f for f in bucket.files if predicate.may_match(bounds.of_keys(*bucket_id, f)))
            rows = read_bucket(
                context, replace(bucket, files=files), [field.name for field in fields], row_filter=predicate.filtered
            )
            for batch in rows:
                yield from canonical_rows(batch, fields)
    except (DamagedFile, NotFound, NotSupported):
        return


def _added_files(context: TableContext, predicate: Predicate) -> tuple[list[_AddedFile], dict[tuple[object, ...], int]]:
    """The files whose key range may hold the key; and by identity of a file, the id of the snapshot that removed it."""
    bounds = TableBounds(context)
    files: list[_AddedFile] = []
    until: dict[tuple[object, ...], int] = {}
    is_first = True
    for number in context.snapshots.ids():
        snapshot = context.snapshots.find(number)
        if snapshot is None:
            continue
        delta = context.manifests.delta_entries(snapshot)
        until.update((entry.identity, number) for entry in delta if entry.kind != EntryKind.ADD)
        added = [entry for entry in delta if entry.kind == EntryKind.ADD]
        if is_first:
            new = {entry.identity for entry in added}
            earlier = (e for e in context.manifests.live_entries(snapshot) if e.identity not in new)
            files += [_AddedFile(snapshot, entry, True) for entry in _holding(earlier, bounds, predicate)]
        files += [_AddedFile(snapshot, entry, False) for entry in _holding(added, bounds, predicate)]
        is_first = False
    return files, until


def _holding(entries: Iterable[ManifestEntry], bounds: TableBounds, predicate: Predicate) -> Iterator[ManifestEntry]:
    return (entry for entry in entries if predicate.may_match(bounds.of_keys(entry.partition, entry.bucket, entry.file)))


def _versions(
    context: TableContext, predicate: Predicate, file: _AddedFile, until: Mapping[tuple[object, ...], int]
) -> Iterator[KeyVersion]:
    entry, snapshot = file.entry, file.snapshot
    common: dict[str, Any] = {
        "snapshot_id": snapshot.id,
        "time": snapshot.time_millis,
        "commit_kind": snapshot.commit_kind,
        "commit_user": shown_name(snapshot.commit_user),
        "earlier": file.earlier,
        "until": until.get(entry.identity),
        "partition": context.partition_path_of(entry.partition).rstrip("/"),
        "bucket": entry.bucket,
        "level": entry.file.level,
        "file": entry.file.file_name,
    }
    try:
        engine: str | None = None
        for row in _rows(context, predicate, entry):
            engine = engine or _engine(context, snapshot, entry)
            yield KeyVersion(**common, **row, engine=engine)
    except (DamagedFile, NotSupported) as error:
        yield KeyVersion(**common, sequence=None, kind=None, values=None, missing=str(error))


def _rows(context: TableContext, predicate: Predicate, entry: ManifestEntry) -> Iterator[dict[str, Any]]:
    fields = context.schema.fields
    columns: Sequence[str] = [SEQUENCE_NUMBER, VALUE_KIND, *(field.name for field in fields)]
    for batch in read_data_file(context, entry.bucket_id, entry.file, columns, PIECES.batch_rows):
        matching = predicate.filtered(batch)
        if matching.num_rows:
            sequences, kinds = matching.column(SEQUENCE_NUMBER).to_pylist(), matching.column(VALUE_KIND).to_pylist()
            for sequence, kind, values in zip(sequences, kinds, canonical_rows(matching, fields), strict=True):
                yield {"sequence": sequence, "kind": KIND_TEXTS[kind], "values": values}


_LIBRARIES = {"parquet-mr": "Java", "parquet-cpp-arrow": "Arrow C++", "parquet-rs": "Rust"}
"""The libraries that write Parquet files, by how they name themselves, and whose they are."""


def _engine(context: TableContext, snapshot: Snapshot, entry: ManifestEntry) -> str | None:
    """What wrote a file: paimon-cli marks its snapshots; else a Parquet file names the library that wrote it."""
    if snapshot.is_ours:
        return "paimon-cli"
    if file_format(entry.file.file_name) != "parquet":
        return None
    path = context.data_file_path(*entry.bucket_id, entry.file)
    with open_sized(context.storage, path, entry.file.file_size) as source:
        created = str(pq.ParquetFile(source).metadata.created_by)
    known = next((name for library, name in _LIBRARIES.items() if created.startswith(library)), None)
    return shown_name(f"{known}: {created.partition(' (')[0]}" if known else created)
