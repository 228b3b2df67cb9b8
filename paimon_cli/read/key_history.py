"""`blame`: finds every existing version of a key, with the commit that wrote it and its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.errors import DamagedFile, NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EntryKind, ManifestEntry
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.read.pruning import TableBounds
from paimon_cli.sql.predicate import Predicate, parse_predicate
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


@dataclass(frozen=True)
class _AddedFile:
    """A data file and the snapshot that added it, or the oldest one if the file is `earlier`."""

    snapshot: Snapshot
    entry: ManifestEntry
    earlier: bool


def key_predicate(context: TableContext, key: Mapping[str, str | None]) -> Predicate:
    """The condition that some columns of the primary key, or partition columns, have these values.

    None means null; with `primary-key.nullable`, so does the text NULL.
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
    if text is None or (text == "NULL" and context.options.primary_key_nullable):
        return f"{column} IS NULL"
    root = context.schema.field(name).type.root
    quoted = "'" + text.replace("'", "''") + "'"
    return f"{column} = {PREFIXED.get(root, '')}{quoted}"


def key_history(context: TableContext, predicate: Predicate) -> list[KeyVersion]:
    """The versions of matching keys by commit, oldest first; within a commit by sequence number."""
    files, until = _added_files(context, predicate)
    versions = [version for file in files for version in _versions(context, predicate, file, until)]
    return sorted(versions, key=lambda v: (v.snapshot_id, v.partition, v.bucket, v.sequence or 0, v.level))


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
        for row in _rows(context, predicate, entry):
            yield KeyVersion(**common, **row)
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
