"""Questions that are not about merged rows: which marks of deletion vectors a commit has lost, and whether files hold a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.anomalies import LIKELY, PROVEN, UNTOLD, VECTOR_LOST, Anomaly, Commit, anomaly
from paimon_cli.invariants.history_walk import WalkedVersion
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, DeletionVectorRange, IndexFileMeta, ManifestEntry
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.metadata.snapshot import COMPACT, OVERWRITE, OWN_PROPERTIES, Snapshot
from paimon_cli.options.option_text import counted
from paimon_cli.pieces import PIECES
from paimon_cli.sql.predicate import Predicate


@dataclass(frozen=True)
class ReplacedVectors:
    """Do the vectors after a commit mark all rows that those before it mark? `names`: files that are live before and after."""

    commits: tuple[Commit, ...]
    before: BucketFiles
    after: BucketFiles
    names: tuple[str, ...]
    rules: tuple[str, ...] = (VECTOR_LOST,)

    @property
    def files(self) -> tuple[IndexFileMeta, ...]:
        return (*self.before.index_files, *self.after.index_files)

    def answer(self, context: TableContext, where: Predicate | None) -> Iterator[Anomaly]:
        old, new = (load_vectors(context, side).by_file for side in (self.before, self.after))
        for name in self.names:
            marked, still = (_positions(side.get(name)) for side in (old, new))
            lost = np.setdiff1d(marked, still)
            if len(lost):
                what = f"{counted(len(lost), 'row')} of {name} that an earlier commit had marked as deleted can be read again"
                yield anomaly(VECTOR_LOST, what, self.commits, files=(name,))

    def untold(self, context: TableContext, why: str) -> Iterator[Anomaly]:
        yield anomaly(VECTOR_LOST, f"the deletion vectors of a commit were not compared: {why}", self.commits, certainty=UNTOLD)


def _positions(vector: DeletionVector | None) -> np.ndarray:
    return np.empty(0, np.int64) if vector is None else np.array(vector.positions.to_array(), np.int64)


@dataclass(frozen=True)
class IfHeld:
    """Findings that metadata shows, and that concern a key if the files of each of these groups hold it."""

    found: tuple[Anomaly, ...]
    groups: tuple[tuple[ManifestEntry, ...], ...]

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(one.rule for one in self.found)

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(entry.file for group in self.groups for entry in group)

    def answer(self, context: TableContext, where: Predicate | None) -> Iterator[Anomaly]:
        if where is None or all(any(_holds(context, entry, where) for entry in group) for group in self.groups):
            yield from self.found

    def untold(self, context: TableContext, why: str) -> Iterator[Anomaly]:
        """By the ranges of their keys the files may hold the key."""
        for one in self.found:
            message = f"{one.message}; whether its files hold the key was not looked up: {why}"
            yield replace(one, certainty=LIKELY if one.certainty == PROVEN else one.certainty, message=message)


def _holds(context: TableContext, entry: ManifestEntry, where: Predicate) -> bool:
    keys = list(context.schema.primary_keys)
    batches = read_data_file(context, entry.bucket_id, entry.file, keys, PIECES.batch_rows)
    return any(where.filtered(batch).num_rows for batch in batches)


Indexes = Mapping[BucketId, tuple[IndexFileMeta, ...]]
"""The index files of buckets."""


def lost_marks(
    version: WalkedVersion, old: Indexes, new: Indexes, holds: Callable[[ManifestEntry], bool]
) -> Iterator[ReplacedVectors]:
    """Questions about a commit whose vectors may have forgotten marks of files that `holds` selects.

    Of keys, the rows that a compaction shows tell it, and a vector that shrinks in any other commit is a finding of `verify`.
    """
    keyed, kind = bool(version.context.schema.primary_keys), version.snapshot.commit_kind
    if version.before is None or (keyed and kind == COMPACT) or _is_restored(version.snapshot):
        return
    for bucket_id in sorted(old):
        if old[bucket_id] == new.get(bucket_id):
            continue
        now = {name: (index, vector) for index, name, vector in _vectors(new.get(bucket_id, ()))}
        live = {entry.file.file_name for entry in version.at(bucket_id) if holds(entry)}
        names = [
            name
            for index, name, vector in _vectors(old[bucket_id])
            if name in live and now.get(name) != (index, vector) and (kind == OVERWRITE or not _shrinks(vector, now.get(name)))
        ]
        if names:
            before, after = (BucketFiles(*bucket_id, 0, (), side.get(bucket_id, ())) for side in (old, new))
            yield ReplacedVectors((Commit.of(version.snapshot),), before, after, tuple(names))


def _vectors(files: Iterable[IndexFileMeta]) -> Iterator[tuple[str, str, DeletionVectorRange]]:
    """The vectors of index files: the name of the index file, that of the data file, and the entry."""
    for index in files:
        for vector in index.deletion_vector_ranges or ():
            yield index.file_name, vector.data_file_name, vector


def _shrinks(vector: DeletionVectorRange, after: tuple[str, DeletionVectorRange] | None) -> bool:
    left = 0 if after is None else after[1].cardinality
    return after is None or (left is not None and vector.cardinality is not None and left < vector.cardinality)


def _is_restored(snapshot: Snapshot) -> bool:
    """Whether an older state was restored as a new snapshot, which only paimon-cli does: rows are to come back."""
    is_own = any(name.startswith(OWN_PROPERTIES) for name in snapshot.properties or ())
    return snapshot.commit_kind == OVERWRITE and snapshot.operation is None and is_own


def visible_rows(bucket: BucketFiles) -> int | None:
    """The rows of a bucket of an append table, None if its vectors do not say how many they mark."""
    names = {file.file_name for file in bucket.files}
    vectors = [v for index in bucket.index_files for v in index.deletion_vector_ranges or () if v.data_file_name in names]
    if any(vector.cardinality is None for vector in vectors):
        return None
    return sum(file.row_count for file in bucket.files) - sum(vector.cardinality or 0 for vector in vectors)
