"""Exactly once: a commit that is repeated at any moment is recognised."""

from __future__ import annotations

import multiprocessing
import shutil
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paimon_cli.commit.commit_records import CommitIntents, all_records
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import (
    MAX_NAMED_USERS,
    PROPERTY,
    CommitIdentity,
    CommitUsers,
    Deduplication,
    LastCommit,
    commits_in,
    last_commit,
)
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.errors import Conflict, FilesConflict, Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import (
    Crash,
    SteppingClock,
    data_file,
    live_names,
    make_table,
    manifest_files,
    named_manifest_files,
)
from tests.rivals import RivalStorage

JOB = CommitIdentity("job", 7)
COMMITS = 12


class DyingStorage(LocalStorage):
    """Publishes `lives` snapshots; the process dies before or after the next publication."""

    def __init__(self, after: bool, lives: int = 0) -> None:
        super().__init__()
        self.after, self.lives = after, lives

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.lives -= 1
        outcome = super().put_if_absent(path, data) if self.after or self.lives >= 0 else PutOutcome.UNKNOWN
        if self.lives < 0:
            raise Crash
        return outcome


def append(context: TableContext, name: str, identity: CommitIdentity = JOB) -> CommitResult:
    return Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))], identity)


def rewriting(name: str, before: str = "before") -> CommitMessage:
    """A commit with both halves: a new file, and the rewriting of another one."""
    merged = data_file(f"{name}-merged", level=5)
    return CommitMessage(
        EMPTY_ROW,
        0,
        2,
        append=FileChanges(added=(data_file(name),)),
        compact=FileChanges(removed=(data_file(before),), added=(merged,)),
    )


@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_faster_repetition_is_recognised_between_attempts(tmp_path: Path, more: int) -> None:
    """Even if others have committed after it."""
    table = make_table(tmp_path / "t")
    append(table, "before", CommitIdentity("other"))

    def twin() -> None:
        append(table, "twin")
        for number in range(more):
            append(table, f"other-{number}", CommitIdentity("other"))

    context = make_table(tmp_path / "t", storage=RivalStorage(twin))
    result = append(context, "mine")
    assert result == CommitResult(attempts=2, outcome=CommitOutcome.DUPLICATE)
    assert live_names(context) == sorted(["before@0", "twin@0", *(f"other-{n}@0" for n in range(more))])
    assert manifest_files(context) == named_manifest_files(context), "the loser leaves no metadata"


def test_a_later_repetition_is_recognised_too(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    acts = (lambda: append(table, "first", CommitIdentity("x")), lambda: append(table, "twin"))
    context = make_table(tmp_path / "t", storage=RivalStorage(*acts))
    assert append(context, "mine") == CommitResult(attempts=3, outcome=CommitOutcome.DUPLICATE)
    assert live_names(context) == ["first@0", "twin@0"]


@pytest.mark.parametrize("others", [0, 2])
def test_each_earlier_commit_of_a_user_is_recognised(tmp_path: Path, others: int) -> None:
    """Not only its last one: a job that is restored may repeat several."""
    context = make_table(tmp_path)
    for identifier in (5, 6, 8):
        append(context, f"f{identifier}", CommitIdentity("job", identifier))
    for identifier in range(others):
        append(context, f"g{identifier}", CommitIdentity("x", identifier))
    names = live_names(context)
    for identifier in (5, 6, 7, 8):
        assert append(context, "again", CommitIdentity("job", identifier)).outcome == CommitOutcome.DUPLICATE
    assert live_names(context) == names


def test_a_commit_of_another_user_is_not_taken_for_ours(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")

    def others() -> None:
        append(table, "a", CommitIdentity("someone", 7))
        append(table, "b", CommitIdentity("job", 6))
        append(table, "c", CommitIdentity("job"))

    context = make_table(tmp_path / "t", storage=RivalStorage(others))
    result = append(context, "mine")
    assert (result.attempts, result.already_committed) == (2, False)
    assert live_names(context) == ["a@0", "b@0", "c@0", "mine@0"]


def test_batches_of_a_user_prove_nothing_about_its_identifiers(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, "numbered")
    append(context, "batch", CommitIdentity("job"))
    assert append(context, "again").already_committed
    assert not append(context, "next", CommitIdentity("job", 8)).already_committed


def test_the_append_of_a_repetition_decides_both_halves(tmp_path: Path) -> None:
    """The loser's compaction would depend on a new file that never gets into the table."""
    table = make_table(tmp_path / "t")
    append(table, "before", CommitIdentity("other"))
    context = make_table(tmp_path / "t", storage=RivalStorage(lambda: append(table, "twin")))
    result = Committer(context).commit([rewriting("mine")], JOB)
    assert result == CommitResult(attempts=2, outcome=CommitOutcome.DUPLICATE)
    assert live_names(context) == ["before@0", "twin@0"]


def test_two_compactions_of_one_identity_are_one(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    append(table, "before", CommitIdentity("other"))

    def compaction(name: str) -> CommitMessage:
        return CommitMessage(
            EMPTY_ROW, 0, 2, compact=FileChanges(removed=(data_file("before"),), added=(data_file(name, level=5),))
        )

    rival = RivalStorage(lambda: Committer(table).commit([compaction("theirs")], JOB))
    result = Committer(make_table(tmp_path / "t", storage=rival)).commit([compaction("mine")], JOB)
    assert result.already_committed
    assert live_names(table) == ["theirs@5"]


def test_a_crash_between_the_halves_leaves_the_rows_and_forgets_the_compaction(tmp_path: Path) -> None:
    """As in Java, the identity counts as committed: nothing is lost, the same files can be compacted again."""
    context = make_table(tmp_path / "t")
    append(context, "before", CommitIdentity("other"))
    with pytest.raises(Crash):
        Committer(make_table(tmp_path / "t", storage=DyingStorage(after=False, lives=1))).commit([rewriting("mine")], JOB)
    assert live_names(context) == ["before@0", "mine@0"]
    assert Committer(context).commit([rewriting("mine")], JOB) == CommitResult(outcome=CommitOutcome.DUPLICATE)
    assert live_names(context) == ["before@0", "mine@0"]
    Committer(context).commit([rewriting("next")], CommitIdentity("job", 8))
    assert live_names(context) == ["mine@0", "next-merged@5", "next@0"]


def test_a_conflict_of_the_second_half_does_not_undo_the_first(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    with pytest.raises(FilesConflict):
        Committer(context).commit([rewriting("mine", "gone")], JOB)
    assert append(context, "again").already_committed


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_around_the_publication_and_a_retry(tmp_path: Path, after: bool) -> None:
    table = make_table(tmp_path / "t")
    with pytest.raises(Crash):
        append(make_table(tmp_path / "t", storage=DyingStorage(after)), "mine")
    assert live_names(table) == (["mine@0"] if after else [])
    assert append(table, "mine").already_committed is after
    assert live_names(table) == ["mine@0"]


def test_identifiers_of_one_user_that_overtake_each_other_are_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    context = make_table(tmp_path / "t", storage=RivalStorage(lambda: append(table, "later", CommitIdentity("job", 8))))
    with pytest.raises(Conflict, match="commit 7 of user job was overtaken by commit 8") as failure:
        append(context, "mine")
    assert failure.value.details["snapshot_id"] == 1
    assert live_names(table) == ["later@0"]
    assert manifest_files(table) == named_manifest_files(table)


def test_what_expired_between_attempts_may_have_been_ours(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")

    class Meanwhile(SteppingClock):
        def sleep(self, seconds: float) -> None:
            append(table, "other", CommitIdentity("other"))
            (tmp_path / "t" / "snapshot" / "snapshot-1").unlink()

    context = make_table(tmp_path / "t", storage=RivalStorage(lambda: append(table, "twin")))
    with pytest.raises(Conflict, match="snapshot 1 has expired"):
        append(replace(context, clock=Meanwhile()), "mine")
    assert live_names(table) == ["other@0", "twin@0"]


def repeat_all(folder: str, worker: int) -> list[bool]:
    context = make_table(Path(folder))
    return [append(context, f"w{worker}-{n}", CommitIdentity(f"job-{n}", 1)).already_committed for n in range(COMMITS)]


def test_processes_that_repeat_the_same_commits_make_each_once(tmp_path: Path) -> None:
    make_table(tmp_path, {"commit.max-retries": "50"})
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        answers = list(pool.map(partial(repeat_all, str(tmp_path)), range(3)))
    context = make_table(tmp_path)
    made = Counter(snapshot.commit_user for snapshot in context.snapshots.newest_first())
    assert made == {f"job-{n}": 1 for n in range(COMMITS)}
    assert [sum(not answer[n] for answer in answers) for n in range(COMMITS)] == [1] * COMMITS
    assert manifest_files(context) == named_manifest_files(context)


OTHER = CommitIdentity("other")


def expire_all_but_one(context: TableContext) -> None:
    expire_snapshots(context, Retention(at_least=1, at_most=1, millis=0, limit=None))


def forget_users(context: TableContext) -> None:
    """Snapshots as other tools write them: without our record of users."""
    for number in context.snapshots.ids():
        snapshot = context.snapshots.get(number)
        Path(context.layout.snapshot(number)).write_text(replace(snapshot, properties=None).to_json())


def test_a_commit_is_recognised_after_its_snapshot_has_expired(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, "mine")
    for number in range(3):
        append(context, f"other-{number}", OTHER)
    expire_all_but_one(context)
    assert context.snapshots.ids() == [4]
    for identifier in (1, 7):
        assert append(context, "again", CommitIdentity("job", identifier)).already_committed
    assert not append(context, "next", CommitIdentity("job", 8)).already_committed
    assert not append(context, "someone", CommitIdentity("someone", 0)).already_committed
    expire_all_but_one(context)
    assert append(context, "again", CommitIdentity("job", 8)).already_committed


def test_snapshots_of_other_tools_in_between_change_nothing_as_long_as_they_are_few(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, "mine")
    kept = context.snapshots.get(1)
    append(context, "java-1", CommitIdentity("java", 3))
    append(context, "java-2", OTHER)
    forget_users(context)
    Path(context.layout.snapshot(1)).write_text(kept.to_json())
    append(context, "ours", OTHER)
    expire_all_but_one(context)
    assert append(context, "again").already_committed
    assert append(context, "again", CommitIdentity("java", 3)).already_committed


def test_a_commit_that_cannot_be_ruled_out_is_refused_without_assume_new(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, "mine")
    shutil.rmtree(context.layout.commit_user_directory)
    CommitIntents(context, [("job", 7)]).announce(None)
    append(context, "other", OTHER)
    forget_users(context)
    expire_all_but_one(context)
    before = manifest_files(context)
    with pytest.raises(Refused, match="cannot determine whether commit 7 of user job") as refusal:
        append(context, "again")
    assert refusal.value.exit_code == 7 and "--assume-new" in refusal.value.hint and manifest_files(context) == before
    assert not append(context, "new", replace(JOB, assume_new=True)).already_committed
    append(context, "other-2", OTHER)
    expire_all_but_one(context)
    assert append(context, "again").already_committed
    assert not append(context, "stranger", CommitIdentity("stranger", 0)).already_committed, "it would have left a record"


def test_a_commit_begun_after_the_expired_snapshots_is_new(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    for number in range(3):
        append(context, f"other-{number}", OTHER)
    forget_users(context)
    expire_all_but_one(context)
    CommitIntents(context, [("job", 7)]).announce(None)
    with pytest.raises(Refused):
        append(context, "mine", replace(JOB, newer_than=1))
    assert not append(context, "mine", replace(JOB, newer_than=2)).already_committed


def test_users_without_identifiers_are_not_noted(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    for number in range(3):
        append(context, f"f{number}", CommitIdentity(f"user-{number}"))
    latest = context.snapshots.latest()
    assert latest is not None and CommitUsers.from_properties(latest.properties) == CommitUsers()


def test_a_rollback_restores_the_remembered_users(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, "before", OTHER)
    append(context, "mine")
    append(context, "after", OTHER)
    roll_back(context, plan_rollback(context, rollback_target(context, snapshot_id=1)), delete_files(context))
    assert not append(context, "mine again").already_committed


def test_a_branch_knows_what_its_snapshot_knew(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, "mine")
    append(context, "after", OTHER)
    create_tag(context, "t", 2)
    create_branch(context, "dev", tag="t")
    branch = context.at_branch("dev")
    assert branch.snapshots.ids() == [2]
    assert append(branch, "again").already_committed


def test_a_snapshot_below_a_gap_proves_nothing(tmp_path: Path) -> None:
    """A slow writer resurrected an expired number and died: its rows are not in the table."""
    context = make_table(tmp_path / "t")
    append(context, "first", OTHER)
    late = context.snapshots.get(1)
    for number in range(3):
        append(context, f"other-{number}", OTHER)
    expire_all_but_one(context)
    ours = replace(late, id=2, commit_user="job", commit_identifier=7)
    Path(context.layout.snapshot(2)).write_text(ours.to_json())
    assert not append(context, "mine").already_committed
    assert "mine@0" in live_names(context)


def test_a_snapshot_next_to_but_below_the_earliest_proves_nothing(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    for number in range(4):
        append(context, f"other-{number}", OTHER)
    late = replace(context.snapshots.get(3), commit_user="job", commit_identifier=7)
    expire_all_but_one(context)
    Path(context.layout.snapshot(3)).write_text(late.to_json())
    assert not append(context, "mine").already_committed
    expire_all_but_one(context)
    assert context.snapshots.ids() == [5]


def test_a_stray_snapshot_of_a_huge_number_is_not_counted_up_to(tmp_path: Path) -> None:
    """It appears between two reads of a commit: nothing shows what was committed below it."""
    context = make_table(tmp_path / "t")
    append(context, "first", OTHER)
    own = Deduplication(context, JOB)
    assert not own.already_committed()
    stray = replace(context.snapshots.get(1), id=2**62)
    Path(context.layout.snapshot(stray.id)).write_text(stray.to_json())
    Path(context.layout.latest_hint).write_text(str(stray.id))
    latest = context.snapshots.latest()
    assert latest is not None and latest.id == stray.id
    with pytest.raises(Conflict, match="snapshot 2 has expired"):
        own.committed_since_begin(latest, "APPEND")


def remember(context: TableContext, users: CommitUsers) -> None:
    """Let all snapshots hold this record of users."""
    for number in context.snapshots.ids():
        snapshot = replace(context.snapshots.get(number), properties={PROPERTY: users.to_text()})
        Path(context.layout.snapshot(number)).write_text(snapshot.to_json())


def noted(context: TableContext, *users: str) -> set[tuple[str, int, int | None]]:
    """The user, identifier and snapshot of each record beside the snapshots."""
    records = all_records(context)
    return {(user, record.identifier, record.snapshot) for record in records for user in users if record.is_of(user)}


def test_a_known_user_without_a_record_is_not_taken_for_new(tmp_path: Path) -> None:
    """It is no more recorded by name: its commit would be made twice."""
    context = make_table(tmp_path / "t")
    append(context, "first", OTHER)
    users = CommitUsers().with_commit("job", 7)
    for number in range(MAX_NAMED_USERS):
        users = users.with_commit(f"user-{number}", 1)
    remember(context, users)
    with pytest.raises(Refused, match="cannot determine whether commit 7 of user job was made"):
        append(context, "again")
    assert live_names(context) == ["first@0"]
    assert append(context, "known", CommitIdentity("user-3", 1)).already_committed
    assert not append(context, "new", CommitIdentity("user-3", 2)).already_committed


def test_a_commit_for_writers_is_recorded_for_each_of_them(tmp_path: Path) -> None:
    """So that it is recognised in each of their names, and in its own, also when its snapshot has expired."""
    context = make_table(tmp_path / "t")
    writers, properties = (("a", 1), ("b", 2)), (("read", "5"),)
    (made,) = append(context, "mine", replace(JOB, writers=writers, properties=properties)).snapshots
    assert noted(context, "job", "a", "b") == {("job", 7, 1), ("a", 1, 1), ("b", 2, 1)}
    assert commits_in(made) == {("job", 7), *writers}
    assert made.properties is not None and made.properties["read"] == "5"
    users = CommitUsers.from_properties(made.properties)
    assert users is not None and users.highest == {"job": 7, "a": 1, "b": 2}
    for number in range(2):
        append(context, f"other-{number}", OTHER)
    forget_users(context)
    expire_all_but_one(context)
    for identity in (JOB, CommitIdentity("a", 1), CommitIdentity("b", 2)):
        assert append(context, "again", identity).already_committed
    assert last_commit(context, "job") == LastCommit(7, {"read": "5"})


def test_a_later_commit_confirms_only_itself(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    append(context, "mine", CommitIdentity("job", 8))
    shutil.rmtree(context.layout.commit_user_directory)
    assert append(context, "again").already_committed
    assert noted(context, "job") == set(), "commit 7 is not this snapshot"
    assert append(context, "again", CommitIdentity("job", 8)).already_committed
    assert noted(context, "job") == {("job", 8, 1)}


def test_the_last_commit_of_a_user(tmp_path: Path) -> None:
    """Commits that are never repeated do not count, and a lower one than the highest that is known is not the last."""
    context = make_table(tmp_path / "t")
    assert last_commit(context, "job") is None
    append(context, "mine", replace(JOB, properties=(("read", "5"),)))
    append(context, "batch", CommitIdentity("job"))
    found = last_commit(context, "job")
    assert found is not None and found.identifier == 7 and (found.properties or {})["read"] == "5"
    assert last_commit(context, "stranger") is None
    expire_all_but_one(context)
    for users in (CommitUsers(2), CommitUsers(1, {"job": 7}), CommitUsers(2, {"job": 6})):
        remember(context, users)
        assert last_commit(context, "job") == LastCommit(7, {"read": "5"}), users
    remember(context, CommitUsers(1))
    assert last_commit(context, "job") is None, "the snapshots say that it has never committed"
    remember(context, CommitUsers(1, {"job": 8}))
    with pytest.raises(Refused, match="cannot determine how far user job has come"):
        last_commit(context, "job")
