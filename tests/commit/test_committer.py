"""Commits as a user of the committer sees them: snapshots, totals, retries, exactly once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity, fresh_identity
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.errors import BeingDropped, FilesConflict, PaimonError, Refused, StorageUnavailable, UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, DataFileMeta, DeletionVectorRange, FileChanges, IndexFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.injected import Step, StepTrace
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from paimon_cli.storage.storage_for_url import storage_for_url
from tests import tables
from tests.commit.commit_tables import (
    RemoteStorage,
    SteppingClock,
    data_file,
    live_names,
    make_table,
    manifest_files,
    named_manifest_files,
    partition,
)
from tests.rivals import RivalStorage

ME = CommitIdentity("me")


def append(context: TableContext, *files: DataFileMeta, bucket: int = 0, identity: CommitIdentity = ME) -> CommitResult:
    return Committer(context).commit([CommitMessage(EMPTY_ROW, bucket, 2, append=FileChanges(added=files))], identity)


def compaction(before: list[DataFileMeta], after: list[DataFileMeta], bucket: int = 0) -> CommitMessage:
    return CommitMessage(EMPTY_ROW, bucket, 2, compact=FileChanges(removed=tuple(before), added=tuple(after)))


def test_the_first_commit_makes_snapshot_1_with_an_empty_base(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    result = append(context, data_file("a"), data_file("b", rows=5))
    (snapshot,) = result.snapshots
    assert (snapshot.id, snapshot.commit_kind, snapshot.total_record_count, snapshot.delta_record_count) == (1, "APPEND", 15, 15)
    assert (snapshot.commit_user, snapshot.commit_identifier, snapshot.schema_id) == ("me", BATCH_IDENTIFIER, 0)
    assert context.manifests.manifest_list(snapshot.base_manifest_list) == []
    assert (tmp_path / "t" / "snapshot" / "LATEST").read_text() == "1"
    assert context.snapshots.latest() == snapshot
    assert result.attempts == 1
    for name, size in (
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ):
        assert (tmp_path / "t" / "manifest" / name).stat().st_size == size


def test_append_and_compact_halves_become_two_snapshots_of_one_identity(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    new, merged = data_file("new"), data_file("merged", level=5, rows=8)
    message = CommitMessage(
        EMPTY_ROW, 0, 2, append=FileChanges(added=(new,)), compact=FileChanges(removed=(new,), added=(merged,))
    )
    result = Committer(context).commit([message], CommitIdentity("me", 7))
    assert [(s.commit_kind, s.commit_user, s.commit_identifier) for s in result.snapshots] == [
        ("APPEND", "me", 7),
        ("COMPACT", "me", 7),
    ]
    assert (result.snapshots[1].total_record_count, result.snapshots[1].delta_record_count) == (8, -2)
    assert live_names(context, 1) == ["new@0"]
    assert live_names(context, 2) == ["merged@5"]


def test_each_snapshot_of_a_commit_builds_on_the_one_before_it_on_object_stores(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", storage=RemoteStorage())
    append(context, data_file("old"))
    context.snapshots.latest_to_plan()
    new, merged = data_file("new"), data_file("merged", level=5)
    message = CommitMessage(
        EMPTY_ROW, 0, 2, append=FileChanges(added=(new,)), compact=FileChanges(removed=(new,), added=(merged,))
    )
    result = Committer(context).commit([message], CommitIdentity("other"))
    assert ([s.id for s in result.snapshots], result.attempts) == ([2, 3], 1)
    assert append(context, data_file("newer")).attempts == 1
    assert live_names(context) == ["merged@5", "newer@0", "old@0"]


def test_an_upgraded_file_stays_alive_at_its_new_level(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    file = data_file("a")
    append(context, file)
    Committer(context).commit([compaction([file], [file.upgraded(5)])], ME)
    assert live_names(context) == ["a@5"]


def test_nothing_to_commit_makes_no_snapshot(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    assert Committer(context).commit([], ME) == CommitResult()
    assert Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2)], ME, watermark=5) == CommitResult()
    assert context.snapshots.latest() is None


def test_an_empty_commit_makes_a_snapshot_where_the_table_asks_for_it(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"commit.force-create-snapshot": "true"})
    (snapshot,) = Committer(context).commit([], ME).snapshots
    assert (snapshot.id, snapshot.commit_kind, snapshot.delta_record_count) == (1, "APPEND", 0)


def test_a_compaction_alone_makes_one_snapshot_whatever_the_table_asks_for(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"commit.force-create-snapshot": "true"})
    committer = Committer(context)
    committer.commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"),)))], CommitIdentity("me", 1))
    result = committer.commit([compaction([data_file("a")], [data_file("b", level=5)])], CommitIdentity("me", 2))
    assert [(snapshot.id, snapshot.commit_kind) for snapshot in result.snapshots] == [(2, "COMPACT")]


class ClosedStorage(LocalStorage):
    """Refuses every publication, with a clear answer."""

    def __init__(self, refusal: PaimonError) -> None:
        super().__init__()
        self.refusal = refusal

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise self.refusal


@pytest.mark.parametrize("kind", [StorageUnavailable, Refused])
def test_a_publication_that_was_refused_leaves_no_manifests(tmp_path: Path, kind: type[PaimonError]) -> None:
    make_table(tmp_path)
    context = make_table(tmp_path, storage=ClosedStorage(kind("no snapshot today", "on purpose")))
    with pytest.raises(kind, match="no snapshot today"):
        Committer(context).commit(
            [CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"),)))], CommitIdentity("me")
        )
    assert manifest_files(context) == set() and context.snapshots.latest() is None


def test_the_watermark_never_goes_back(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    committer = Committer(context)
    marks = []
    for number, watermark in enumerate((None, 50, 20, None, 70)):
        message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(f"f{number}"),)))
        marks.append(committer.commit([message], ME, watermark=watermark).snapshots[0].watermark)
    assert marks == [None, 50, 50, 50, 70]


def test_commits_in_memory(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}-{fresh_identity(make_table(tmp_path)).user}/t"
    storage, root = storage_for_url(url)
    SchemaHistory(storage, TableLayout(root)).commit(make_table(tmp_path).schema)
    context = TableContext.open(url)
    for name in ("a", "b", "c"):
        append(context, data_file(name))
    assert live_names(context) == ["a@0", "b@0", "c@0"]
    assert context.snapshots.ids() == [1, 2, 3]


def test_time_never_goes_back_when_clocks_do(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    first = append(replace(context, clock=SteppingClock(2_000)), data_file("a")).snapshots[0]
    second = append(replace(context, clock=SteppingClock(1_000)), data_file("b")).snapshots[0]
    assert (first.time_millis, second.time_millis) == (2_000, 2_000)


def test_a_repeated_commit_is_recognised(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, data_file("a"), identity=CommitIdentity("job", 1))
    append(context, data_file("b"), identity=CommitIdentity("job", 2))
    append(context, data_file("other"), identity=CommitIdentity("somebody", 99))
    for identifier in (1, 2):
        again = append(context, data_file("again"), identity=CommitIdentity("job", identifier))
        assert again == CommitResult(outcome=CommitOutcome.DUPLICATE)
    assert not append(context, data_file("c"), identity=CommitIdentity("job", 3)).already_committed
    assert live_names(context) == ["a@0", "b@0", "c@0", "other@0"]


def test_batch_commits_of_one_user_are_never_taken_for_repetitions(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, data_file("a"))
    append(context, data_file("b"))
    assert live_names(context) == ["a@0", "b@0"]


def test_a_fresh_identity_carries_the_prefix_of_the_table(tmp_path: Path) -> None:
    plain = fresh_identity(make_table(tmp_path / "plain"))
    prefixed = fresh_identity(make_table(tmp_path / "prefixed", {"commit.user-prefix": "etl"}))
    assert len(plain.user) == 36 and not plain.is_repeatable
    assert prefixed.user.startswith("etl_") and len(prefixed.user) == 40


class RacingStorage(LocalStorage):
    """Lets another writer commit just before each of the first `races` publications."""

    def __init__(self, rival: TableContext, races: int) -> None:
        super().__init__()
        self.rival, self.races, self.lost = rival, races, 0

    def put_if_absent(self, path: str, data: bytes):  # type: ignore[no-untyped-def]
        if self.lost < self.races:
            self.lost += 1
            append(self.rival, data_file(f"rival-{self.lost}"), identity=CommitIdentity("rival"))
        return super().put_if_absent(path, data)


def test_a_lost_race_is_run_again_on_top_of_the_winner(tmp_path: Path) -> None:
    rival = make_table(tmp_path / "t")
    append(rival, data_file("before"))
    context = make_table(tmp_path / "t", storage=RacingStorage(rival, 3))
    result = append(context, data_file("mine", rows=7))
    assert result.attempts == 4
    (snapshot,) = result.snapshots
    assert (snapshot.id, snapshot.total_record_count) == (5, 47)
    assert live_names(context) == ["before@0", "mine@0", "rival-1@0", "rival-2@0", "rival-3@0"]
    assert manifest_files(context) == named_manifest_files(context), "a lost attempt leaves no files"


def test_waits_grow_with_jitter_and_retries_end(tmp_path: Path) -> None:
    rival = make_table(
        tmp_path / "t", {"commit.max-retries": "4", "commit.min-retry-wait": "10 ms", "commit.max-retry-wait": "30 ms"}
    )
    clock = SteppingClock()
    context = replace(make_table(tmp_path / "t", storage=RacingStorage(rival, 99)), clock=clock)
    with pytest.raises(StorageUnavailable) as failure:
        append(context, data_file("mine"))
    assert failure.value.exit_code == 6 and failure.value.details["attempts"] == 5
    for slept, wait in zip(clock.sleeps, (10, 20, 30, 30), strict=True):
        assert wait <= slept * 1000 <= wait * 1.2
    assert "mine@0" not in live_names(context)
    assert manifest_files(context) == named_manifest_files(context)


def test_the_timeout_ends_retries_too(tmp_path: Path) -> None:
    rival = make_table(tmp_path / "t", {"commit.timeout": "60 ms", "commit.min-retry-wait": "10 ms"})
    context = replace(make_table(tmp_path / "t", storage=RacingStorage(rival, 99)), clock=SteppingClock())
    with pytest.raises(StorageUnavailable, match="nothing was committed to"):
        append(context, data_file("mine"))
    assert len(context.clock.sleeps) == 3  # type: ignore[attr-defined]


def test_changelog_files_get_a_list_of_their_own(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    message = CommitMessage(
        EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"),), changelog=(data_file("changelog-a", rows=12),))
    )
    (snapshot,) = Committer(context).commit([message], ME).snapshots
    assert snapshot.changelog_record_count == 12 and snapshot.changelog_manifest_list
    (meta,) = context.manifests.manifest_list(snapshot.changelog_manifest_list)
    assert [e.file.file_name for e in context.manifests.manifest(meta.file_name)] == ["changelog-a"]
    assert live_names(context) == ["a@0"]


def test_every_file_of_a_commit_is_traced_with_what_it_is_for(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, data_file("old"))
    steps: list[Step] = []
    message = CommitMessage(
        EMPTY_ROW,
        0,
        2,
        append=FileChanges(
            added=(data_file("a"), data_file("b")),
            changelog=(data_file("c"),),
            added_indexes=(IndexFileMeta("HASH", "index-1", 4, 1),),
        ),
    )
    (snapshot,) = append_traced(context, message, steps)
    folder = tmp_path / "t" / "manifest"
    traced = {step.facts["file"]: (step.name, step.facts) for step in steps if "file" in step.facts}
    lists = {
        snapshot.base_manifest_list: ("base", 1),
        snapshot.delta_manifest_list: ("delta", 1),
        snapshot.changelog_manifest_list: ("changelog", 1),
    }
    for name, (purpose, manifests) in lists.items():
        facts = {"file": name, "bytes": (folder / str(name)).stat().st_size, "purpose": purpose, "manifests": manifests}
        assert traced[name] == ("manifest_list", facts)
    for name, added in ((snapshot.delta_manifest_list, 2), (snapshot.changelog_manifest_list, 1)):
        (meta,) = context.manifests.manifest_list(str(name))
        facts = {"file": meta.file_name, "bytes": meta.file_size, "added": added, "deleted": 0}
        assert traced[meta.file_name] == ("manifest", facts)
    index = str(snapshot.index_manifest)
    assert traced[index] == ("index_manifest", {"file": index, "bytes": (folder / index).stat().st_size, "entries": 1})
    content = snapshot.to_json().encode()
    assert traced["snapshot-2"] == ("snapshot", {"file": "snapshot-2", "bytes": len(content), "outcome": "created"})
    assert traced["LATEST"] == ("hint", {"file": "LATEST", "snapshot": 2})
    (check,) = (step.facts for step in steps if step.name == "check")
    expected = {"attempt": 1, "kind": "APPEND", "latest": 1, "added": 2, "deleted": 0, "data_conflict_check": "off"}
    assert check == expected


def append_traced(context: TableContext, message: CommitMessage, steps: list[Step]) -> tuple[Snapshot, ...]:
    traced = replace(context, trace=StepTrace(SteppingClock(), steps.append))
    return Committer(traced).commit([message], ME).snapshots


def test_deletes_make_an_overwrite_snapshot_and_are_checked(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", primary_key=False)
    old = data_file("old")
    append(context, old)
    message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("rewritten"),), removed=(old,)))
    (snapshot,) = Committer(context).commit([message], ME).snapshots
    assert snapshot.commit_kind == "OVERWRITE"
    assert live_names(context) == ["rewritten@0"]
    with pytest.raises(FilesConflict):
        Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(removed=(old,)))], ME)


def hash_index(name: str, rows: int = 1) -> IndexFileMeta:
    return IndexFileMeta("HASH", name, 4 * rows, rows)


def test_index_files_replace_those_of_the_same_bucket(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"bucket": "-1"})
    committer = Committer(context)

    def commit(bucket: int, index: IndexFileMeta) -> None:
        file = data_file(f"for-{index.file_name}")
        committer.commit([CommitMessage(EMPTY_ROW, bucket, -1, append=FileChanges(added=(file,), added_indexes=(index,)))], ME)

    commit(0, hash_index("i0"))
    commit(1, hash_index("i1"))
    commit(0, hash_index("i0-grown", 2))
    latest = context.snapshots.latest()
    assert latest is not None
    assert sorted(e.index_file.file_name for e in context.manifests.index_entries(latest)) == ["i0-grown", "i1"]
    (snapshot,) = append(context, data_file("plain")).snapshots
    assert snapshot.index_manifest == latest.index_manifest, "a commit without index files repeats the name"


def test_two_changes_of_the_same_vectors_are_a_conflict(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"deletion-vectors.enabled": "true"})

    def vectors(name: str) -> IndexFileMeta:
        return IndexFileMeta("DELETION_VECTORS", name, 30, 1, (DeletionVectorRange("a", 1, 22, 1),))

    a, b, c = data_file("a", level=5), data_file("b", 20, 29), data_file("c", 30, 39)
    first = CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(added=(a,), added_indexes=(vectors("dv-1"),)))
    Committer(context).commit([first], ME)

    def next_vectors(before: str, name: str, file: DataFileMeta) -> CommitMessage:
        return CommitMessage(
            EMPTY_ROW,
            0,
            2,
            compact=FileChanges(added=(file.upgraded(5),), added_indexes=(vectors(name),), removed_indexes=(vectors(before),)),
        )

    Committer(context).commit([next_vectors("dv-1", "dv-2", b)], ME)
    with pytest.raises(FilesConflict, match=r"dv-1 of bucket-0 is no longer current"):
        Committer(context).commit([next_vectors("dv-1", "dv-3", c)], ME)
    assert manifest_files(context) == named_manifest_files(context)


def test_overwrite_replaces_the_selected_partitions_only(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", partitioned=True)
    committer = Committer(context)
    one, two = partition("2024-01-01"), partition("2024-01-02")
    committer.commit(
        [
            CommitMessage(one, 0, 2, append=FileChanges(added=(data_file("a"),))),
            CommitMessage(two, 0, 2, append=FileChanges(added=(data_file("b"),))),
        ],
        ME,
    )
    message = CommitMessage(one, 3, 4, append=FileChanges(added=(data_file("c", rows=1),)))  # also with another bucket count
    (snapshot,) = committer.overwrite([message], ME, replaced_partitions=lambda p: p == one).snapshots
    assert (snapshot.commit_kind, snapshot.total_record_count, snapshot.delta_record_count) == ("OVERWRITE", 11, -9)
    assert live_names(context) == ["b@0", "c@0"]
    with pytest.raises(UsageError, match="dt=2024-01-02"):
        committer.overwrite(
            [CommitMessage(two, 0, 2, append=FileChanges(added=(data_file("d"),)))], ME, replaced_partitions=lambda p: p == one
        )


def test_overwrite_removes_files_of_lost_races_too(tmp_path: Path) -> None:
    rival = make_table(tmp_path / "t")
    append(rival, data_file("before"))
    context = make_table(tmp_path / "t", storage=RacingStorage(rival, 2))
    message = CommitMessage(EMPTY_ROW, 1, 2, append=FileChanges(added=(data_file("mine"),)))
    result = Committer(context).overwrite([message], ME, replaced_partitions=lambda p: True)
    assert result.attempts == 3
    assert live_names(context) == ["mine@0"]
    assert result.snapshots[0].total_record_count == 10
    assert manifest_files(context) == named_manifest_files(context)


def test_overwriting_with_nothing_truncates(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"bucket": "-1"})
    message = CommitMessage(EMPTY_ROW, 0, -1, append=FileChanges(added=(data_file("a"),), added_indexes=(hash_index("i"),)))
    Committer(context).commit([message], ME)
    (snapshot,) = Committer(context).overwrite([], ME, replaced_partitions=lambda p: True).snapshots
    assert snapshot.total_record_count == 0 and live_names(context) == []
    assert context.manifests.index_entries(snapshot) == []
    assert Committer(context).overwrite([], ME, replaced_partitions=lambda p: True) == CommitResult(attempts=1)


def test_two_snapshots_made_at_once_are_one_attempt(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("old"),)))], ME)
    old, merged = data_file("old"), data_file("merged", level=5)
    both = CommitMessage(
        EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("new"),)), compact=FileChanges(removed=(old,), added=(merged,))
    )
    result = Committer(context).commit([both], ME)
    assert (result.attempts, [snapshot.commit_kind for snapshot in result.snapshots]) == (1, ["APPEND", "COMPACT"])
    assert [snapshot.commit_attempts for snapshot in result.snapshots] == [1, 1]


def test_snapshots_note_their_attempts_and_duration(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    rival = lambda: Committer(table).commit([CommitMessage(EMPTY_ROW, 1, 2, append=FileChanges(added=(data_file("r"),)))], ME)  # noqa: E731
    context = replace(make_table(tmp_path / "t", storage=RivalStorage(rival)), clock=SteppingClock())
    (snapshot,) = (
        Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("m"),)))], ME).snapshots
    )
    assert (snapshot.commit_attempts, snapshot.id) == (2, 2)
    assert snapshot.commit_duration_millis is not None and snapshot.commit_duration_millis >= 10
    assert context.snapshots.get(2) == snapshot
    for others in ({}, {"paimon-cli.commit-attempts": "many"}, {"paimon-cli.commit-attempts": "9" * 50}):
        assert replace(snapshot, properties=others).commit_attempts is None


@pytest.mark.parametrize("least", [0, 7, 100])
def test_new_rows_have_ids_above_those_that_other_files_hold(tmp_path: Path, least: int) -> None:
    context = tables.make_table(tmp_path / "t", {"v": "INT"}, [], bucket=-1, options={"row-tracking.enabled": "true"})
    for number, begin in enumerate((least, least + 10)):
        message = CommitMessage(EMPTY_ROW, 0, -1, append=FileChanges(added=(data_file(f"{number}"),)))
        (snapshot,) = Committer(context, least_row_id=least).commit([message], CommitIdentity(f"{number}")).snapshots
        (entry,) = context.manifests.delta_entries(snapshot)
        assert (entry.file.first_row_id, snapshot.next_row_id) == (begin, begin + 10)


def test_a_writer_of_an_empty_table_commits_nothing_to_one_that_was_created_in_its_place(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    assert context.schema.id == 0
    shutil.rmtree(tmp_path / "t")
    other = replace(context.schema, time_millis=77)
    SchemaHistory(LocalStorage(), TableLayout(context.url)).commit(other)
    append(TableContext.open(context.url), data_file("theirs"))
    with pytest.raises(BeingDropped, match="nothing was committed"):
        append(context, data_file("mine"))
    assert live_names(TableContext.open(context.url)) == ["theirs@0"]


def test_the_highest_sequence_number_is_that_of_all_buckets(tmp_path: Path) -> None:
    """Also if older snapshots, which wrote none down, have it."""
    context = make_table(tmp_path / "t")
    for bucket, rows in ((0, 5), (1, 50)):
        append(context, data_file(f"{bucket}", rows=rows), bucket=bucket)
    counting = TableContext.open(context.url, {"write.sequence-number-init-mode": "snapshot"})
    (snapshot,) = append(counting, data_file("small", rows=3)).snapshots
    assert snapshot.greatest_sequence_number == 49
    (snapshot,) = append(counting, data_file("large", rows=70)).snapshots
    assert snapshot.greatest_sequence_number == 69
