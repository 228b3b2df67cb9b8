"""`erase`: finds what holds the rows, writes it again without them, replaces all versions, and deletes the old files.

Snapshots name lists, lists manifests, manifests data files, so the new ones are written from the bottom up, under new names, and
nothing that exists is changed. Then the versions are replaced, one atomic step each:

1. On each branch whose newest snapshot N names a file that is replaced, a snapshot N + 1 without changes, of kind COMPACT, is
   published over the new lists. It takes the number by put-if-absent as any commit does, so a commit of another job that was
   built on N loses the race, reads N + 1, and builds on the new files. If the other job wins, erase follows it: it reads what the
   commit added, and tries again, which is faster than the commits of most jobs; then all versions are looked at again.
2. From then on no commit can build on N or an older snapshot, and their files are replaced, with tags and changelogs.
3. All versions are listed again. If one still names an old file, such as a tag that was made meanwhile, the steps are repeated.
4. The old files are deleted, and, after the proof, the record of what was to be done (`erasure_record`).

A command that is killed leaves old and new versions side by side, all readable, because the old files go last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.datatypes.bucket_hash import hash_rows
from paimon_cli.errors import Conflict, DamagedFile, NotSupported, Refused, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.copy_claim import LEASE_MILLIS, lease_of
from paimon_cli.jobs.engine import Engine, Progress, Work, phase
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys, ErasedMatches, ErasedRows
from paimon_cli.jobs.erasure.erasure_record import ErasureRecord, RecordedFile, RecordedIndex, keys_of, unfinished_erasures
from paimon_cli.jobs.erasure.file_rewrite import Histories, RewriteTask, RewrittenFile
from paimon_cli.jobs.erasure.inventory import Inventory, StoredFile, StoredVersion, paths_of
from paimon_cli.jobs.erasure.metadata_rewrite import IndexFiles, MetadataRewrite
from paimon_cli.jobs.erasure.new_versions import Change, changed_versions, replace_version, take_number
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.named_files import FileKey
from paimon_cli.maintain.needed_files import NeededFiles
from paimon_cli.metadata.data_file import BucketId
from paimon_cli.metadata.index_files import KeyHashes
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.read.pruning import TableBounds
from paimon_cli.sql.predicate import Predicate, parse_predicate
from paimon_cli.storage.capabilities import PublishesSnapshots, ServesVersions, remove_empty_directory
from paimon_cli.storage.deletions import Deletions
from paimon_cli.storage.threads import in_parallel

_LEASE = "compaction"
"""The lease of services that maintain the table: they leave it alone meanwhile."""
MOST_KEYS = 10_000_000
_ROUNDS = 40
_SHORT_TRIES = 50
"""The tries of a round to take a number, each on top of the last commit of another job."""


@dataclass(frozen=True)
class EraseRequest:
    """What to erase: the rows that match a SQL condition, or `keys`, batches with the columns of the primary key."""

    where: str | None = None
    params: Mapping[str, Any] | None = None
    keys: Sequence[pa.RecordBatch] | None = None


@dataclass
class Erasure:
    """One erasure of a table, over several rounds. `held`: data files with erased rows, and how many rows; of a file that is gone
    only metadata is left, which may remember such rows, and it counts none.
    """

    context: TableContext
    request: EraseRequest
    engine: Engine
    progress: Progress
    rows: ErasedRows | None = None
    inventory: Inventory = field(init=False)
    held: dict[FileKey, StoredFile] = field(default_factory=dict)
    counts: dict[FileKey, int] = field(default_factory=dict)
    gone: dict[FileKey, StoredFile] = field(default_factory=dict)
    rewritten: dict[FileKey, RewrittenFile] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    """The snapshots that were published to take a number."""
    replaced: set[str] = field(default_factory=set)
    """Labels of the versions whose files were replaced."""
    unfinished: list[ErasureRecord] = field(default_factory=list)
    index_files: IndexFiles = field(default_factory=dict)
    _seen: set[FileKey] = field(default_factory=set)

    def plan(self) -> None:
        """Find the keys and the files that hold them. Raises `NotSupported` for what cannot be erased; nothing is changed."""
        _check_supported(self.context)
        self.unfinished = unfinished_erasures(self.context)
        self.inventory = Inventory.take(self.context)
        for record in self.unfinished:
            self._continue(record)
        if self.rows is None:
            self.rows = self._find_rows()
        self._look_for_rows()

    def _continue(self, record: ErasureRecord) -> None:
        """Use what a command that was killed has written: some versions may name it already."""
        storage, context = self.context.storage, self.context
        for recorded in record.rewritten:
            file = recorded.file()
            new = None if file.after is None else context.data_file_path_of(*file.key[:2], file.after.file_name)
            if new is None or storage.exists(new):
                self.rewritten[file.key] = file
        for index in record.index_files:
            if index.after is None or storage.exists(context.layout.index(index.after.file_name)):
                self.index_files[BucketId(index.partition, index.bucket), index.before] = index.after

    # ---- what is erased -----------------------------------------------------------------------------------------------------

    def _find_rows(self) -> ErasedRows:
        schema, asked = self.context.schema, self.request
        if not schema.primary_keys:
            if asked.where is None:
                what = f"{self.context.name} has no primary key"
                raise UsageError(what, "its rows are not found by keys", "name them by a condition: --where")
            return ErasedMatches(self._predicates())
        known = [keys_of(self.context, record.keys) for record in self.unfinished]
        found = list(asked.keys or ()) if asked.where is None else self._matching_keys()
        keys = ErasedKeys.of(schema, [*known, *found])
        if len(keys) > MOST_KEYS:
            what = f"{len(keys):,} keys match"
            raise Refused(what, f"one run erases at most {MOST_KEYS:,}, which it holds in memory", "erase them in several runs")
        return keys

    def _predicates(self) -> dict[str, Predicate]:
        assert self.request.where is not None
        where, params = self.request.where, self.request.params
        found = {}
        for name, branch in self.inventory.branches.items():
            try:
                found[name] = parse_predicate(where, branch.schema, params)
            except UsageError as error:
                if name != self.context.branch:
                    error.extend_why(f"that is so on branch '{name}', whose files would keep the rows")
                raise
        return found

    def _matching_keys(self) -> list[pa.RecordBatch]:
        predicates = self._predicates()
        bounds = {name: TableBounds(branch) for name, branch in self.inventory.branches.items()}
        there = self._existing(self.inventory.files.values())

        def may_match(file: StoredFile) -> bool:
            entry = file.entry
            of_file = bounds[file.branch].of_file(entry.partition, entry.bucket, entry.file)
            return not file.in_order or predicates[file.branch].may_match(of_file)

        files = [file for key, file in self.inventory.files.items() if key in there and may_match(file)]
        histories = Histories(self.inventory.branches, predicates=predicates)
        found = self._run("Looking for keys", histories.matching_keys, files)
        return [batch for batches in found for batch in batches]

    # ---- where it is --------------------------------------------------------------------------------------------------------

    def _look_for_rows(self) -> None:
        """Find the files of the inventory that hold erased rows, of those that were not looked at before."""
        assert self.rows is not None
        new = [file for key, file in self.inventory.files.items() if key not in self._seen]
        by_branch: dict[str, list[StoredFile]] = {}
        for file in new:
            by_branch.setdefault(file.branch, []).append(file)
        candidates = [
            file
            for branch, files in by_branch.items()
            for file, may in zip(files, self.rows.may_be_in(self.inventory.branches[branch], files), strict=True)
            if may
        ]
        there = self._existing(candidates)
        self._note_gone([file for file in candidates if file.key not in there])
        present = [file for file in candidates if file.key in there]
        histories = Histories(self.inventory.branches, self.rows)
        counts = self._run("Looking for rows", histories.count, present)
        for file, count in zip(present, counts, strict=True):
            if count or (isinstance(self.rows, ErasedKeys) and self.rows.are_bounds(self.context, file.entry)):
                self.held[file.key], self.counts[file.key] = file, count
        self._seen.update(file.key for file in new)

    def _note_gone(self, files: Sequence[StoredFile]) -> None:
        """Remember files of which only metadata is left: they had expired, or have done so since the plan."""
        if files:
            self._expect_unneeded(files)
            self.gone.update((file.key, file) for file in files)

    def _existing(self, files: Iterable[StoredFile]) -> set[FileKey]:
        """The files that exist: manifests also remember files that were removed, and have been deleted since."""
        context, by_directory = self.context, dict[str, list[StoredFile]]()
        for file in files:
            by_directory.setdefault(context.bucket_directory(file.entry.partition, file.entry.bucket), []).append(file)
        listed = in_parallel(context.storage.list_directory, by_directory, context.read_threads)
        found: set[FileKey] = set()
        for statuses, some in zip(listed, by_directory.values(), strict=True):
            names = {status.name for status in statuses}
            found.update(file.key for file in some if file.entry.file.file_name in names)
        return found

    def _expect_unneeded(self, gone: Sequence[StoredFile]) -> None:
        """Raise `DamagedFile` for a file that is gone although a version needs it."""
        needed = NeededFiles()
        for branch in self.inventory.branches.values():
            needed.need_history(branch)
        for file in gone:
            if file.key in needed.data:
                path = next(paths_of(self.context, file.entry))
                raise DamagedFile(
                    f"{path} is missing", "a version of the table needs it", self.context.layout.if_damaged, path=path
                )

    def _run(self, what: str, function: Any, files: Sequence[StoredFile]) -> list[Any]:
        self.engine.prepare(Work.of(file.entry.file for file in files), self.progress)
        with phase(self.progress, what, len(files)) as on_done:
            return self.engine.run_tasks(function, files, on_done, [file.entry.file.file_size for file in files])

    # ---- the work -----------------------------------------------------------------------------------------------------------

    def run(self, unnamed: Sequence[str] = ()) -> None:
        """Carry out the plan, under the lease of the table. Only `finish` is left to do after that, or an error is raised.

        `unnamed`: paths of files that no version names, to be deleted as well.
        """
        context = self.context
        leases = Leases(_LEASE, context.random.uuid(), LEASE_MILLIS, context.clock)
        with lease_of(leases, context.storage, context.layout, "another job that maintains"):
            record = ErasureRecord.new(context, self.rows.encoded.to_pylist() if isinstance(self.rows, ErasedKeys) else ())
            for _ in range(_ROUNDS):
                self.inventory = Inventory.take(context, self.inventory)
                self._look_for_rows()
                if not self._round(record, leases):
                    break
            else:
                why = f"in each of {_ROUNDS} attempts another job committed first"
                raise Conflict(f"{context.address} was not erased", why, "run this again when fewer jobs commit")
            record.files |= self._below(unnamed)
            self.unfinished.append(record)
            self._delete_old()

    def finish(self) -> None:
        """Delete the records of what was to be done. Until then a repeated command knows the keys, for the certificate."""
        for record in self.unfinished:
            record.delete(self.context)
        self.unfinished.clear()

    def _round(self, record: ErasureRecord, leases: Leases) -> bool:
        """Write what is missing, and replace the versions. Returns whether to look again: something was replaced."""
        self._rewrite_files(record)
        files, writer = self._new_files(), MetadataWriter(self.context)
        hashes = self.erased_hashes if isinstance(self.rows, ErasedKeys) else None
        rewrite = MetadataRewrite(self.context, self.inventory, files, hashes, writer, self.index_files)
        newest = self._newest()
        # The newest first: the sooner their numbers are taken, the rarer is a commit of another job before that.
        fenced = changed_versions(newest, rewrite, any_erased=bool(files))
        if fenced:
            self._note(record, rewrite, leases)
            if not self._fence(fenced, rewrite):
                self._follow(record, rewrite, leases)
                return True
        older = [version for version in self.inventory.versions if version not in newest]
        changes = [*fenced, *changed_versions(older, rewrite, any_erased=bool(files))]
        if not changes:
            return False
        self._note(record, rewrite, leases)
        for version, values in changes:
            if replace_version(version, values):
                self.replaced.add(version.label)
        return True

    def _new_files(self) -> dict[FileKey, RewrittenFile]:
        """What takes the place of each file that held erased rows, or of which only metadata is left."""
        gone = {key: RewrittenFile(file.entry, None, np.zeros(0, np.int64)) for key, file in self.gone.items()}
        return {**self.rewritten, **gone}

    def _newest(self) -> list[StoredVersion]:
        return [v for branch in self.inventory.branches if (v := self.inventory.newest(branch)) is not None]

    def _follow(self, record: ErasureRecord, rewrite: MetadataRewrite, leases: Leases) -> None:
        """Take a number although other jobs commit often: each try reads only what their last commit added, and writes two lists.

        What was written is still named by the record or clean, so a kill leaves nothing behind. Ends with the number taken, or
        when only a new round can tell what to do.
        """
        for _ in range(_SHORT_TRIES):
            gone = len(self.gone)
            if not self.inventory.add_newest(self.context) or not leases.held:
                return
            self._look_for_rows()
            self._rewrite_files(record)
            if len(self.gone) > gone:
                return  # what was written does not know of it
            rewrite.files = self._new_files()
            fenced = changed_versions(self._newest(), rewrite, any_erased=bool(rewrite.files))
            if not fenced or self._fence(fenced, rewrite):
                return

    def _note(self, record: ErasureRecord, rewrite: MetadataRewrite, leases: Leases) -> None:
        """Record what was written, so that a repeated command goes on with it, and make sure of the lease."""
        layout, writer = self.context.layout, rewrite.writer
        statistics = {f"{layout.statistics_directory}/{name}" for name in self.inventory.statistics}
        record.files |= self._below({*rewrite.replaced, *statistics, *writer.written, *rewrite.written_indexes})
        record.rewritten = tuple(map(RecordedFile.of, self.rewritten.values()))
        record.index_files = tuple(RecordedIndex(*key[0], key[1], new) for key, new in self.index_files.items() if new != key[1])
        record.write(self.context)
        if not leases.held:
            why = "this one was suspended for too long, or the storage did not answer"
            raise StorageUnavailable(f"another job has begun to maintain {self.context.address}", why, "run this again")

    def _below(self, paths: Iterable[str]) -> set[str]:
        return {path.removeprefix(f"{self.context.layout.root}/") for path in paths}

    def _rewrite_files(self, record: ErasureRecord) -> None:
        left = [file for key, file in self.held.items() if key not in self.rewritten and key not in self.gone]
        there = self._existing(left)
        self._note_gone([file for file in left if file.key not in there])
        missing = [file for file in left if file.key in there]
        if not missing:
            return
        record.files |= self._below(path for file in missing for path in paths_of(self.context, file.entry))
        histories = Histories(self.inventory.branches, self.rows)
        self.engine.prepare(Work.of(file.entry.file for file in missing), self.progress)
        with phase(self.progress, "Writing files again", len(missing)) as on_done:
            for portion in _portions(missing):
                record.write(self.context)  # a repeated command goes on after the last portion
                tasks = [RewriteTask(file, record.stamp) for file in portion]
                done = self.engine.run_tasks(histories.rewrite, tasks, on_done, [file.entry.file.file_size for file in portion])
                self.rewritten.update((file.key, file) for file in done)
                self._seen.update((*file.key[:2], file.after.file_name) for file in done if file.after is not None)
                record.rewritten = tuple(map(RecordedFile.of, self.rewritten.values()))

    def erased_hashes(self, bucket_id: BucketId, stored: KeyHashes) -> KeyHashes:
        """The hashes of erased keys that no other key of the bucket has."""
        assert isinstance(self.rows, ErasedKeys)
        gone = np.intersect1d(stored, self.rows.hashes(self.context, bucket_id.partition))
        if not len(gone):
            return gone
        schema, kept = self.context.schema, [np.empty(0, np.int32)]
        names, types = schema.trimmed_primary_keys, self.context.key_types
        files = [file for file in self.inventory.files.values() if file.entry.bucket_id == bucket_id]
        there = self._existing(files)
        for file in files:
            if file.key not in there:
                continue
            branch = self.inventory.branches[file.branch]
            for batch in read_data_file(branch, bucket_id, file.entry.file, schema.primary_keys, PIECES.batch_rows):
                hashes = hash_rows([batch.column(name) for name in names], types)
                others = hashes[~self.rows.mask(file.branch, batch)]
                kept.append(np.intersect1d(others, gone))
        return np.setdiff1d(gone, np.concatenate(kept))

    def _fence(self, changes: Sequence[Change], rewrite: MetadataRewrite) -> bool:
        """Take the next number of each branch whose newest snapshot is to be replaced. False if another commit was faster."""
        for version, values in changes:
            following = take_number(version, values, rewrite)
            if following is None:
                return False
            self.snapshots.append(following)
        return True

    def _delete_old(self) -> None:
        context = self.context
        named = self._below(self.inventory.paths(context))
        old = sorted({path for record in self.unfinished for path in record.all_files(context)} - named)
        paths = [f"{context.layout.root}/{path}" for path in old]
        data = [path for path in paths if path.rpartition("/")[0].rpartition("/")[2].startswith("bucket-")]
        done, delete, of_data = Deletions(), delete_files(context), set(data)
        for some in (data, [path for path in paths if path not in of_data]):
            done.run(partial(delete, some))
        done.check("these files still hold erased rows, or name them; once the storage allows it, run the same erasure again")
        for directory in sorted({path.rpartition("/")[0] for path in data}):
            while directory != context.layout.root and remove_empty_directory(context.storage, directory):
                directory = directory.rpartition("/")[0]


def _portions(files: Sequence[StoredFile]) -> Iterator[list[StoredFile]]:
    """The files in portions, after each of which a repeated command can go on."""
    portion, size = list[StoredFile](), 0
    for file in files:
        portion.append(file)
        size += file.entry.file.file_size
        if size >= PIECES.erased_bytes:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _check_supported(context: TableContext) -> None:
    """Raise `NotSupported` where versions or rows are kept that this job does not reach."""
    if isinstance(context.storage, (PublishesSnapshots, ServesVersions)):
        why = "the server of the catalog keeps snapshots and tags, and no client may replace them"
        raise NotSupported(f"erase from {context.address}", why, "ask the operator of the catalog")
    if any(
        status.name.endswith(".metadata.json") for status in context.storage.list_directory(f"{context.layout.root}/metadata")
    ):
        why = "its directory metadata/ holds Iceberg metadata, which remembers the bounds of old files and names them"
        raise NotSupported(f"erase from {context.address}", why, "delete that directory, and export again afterwards")
