"""Repeatable commits where other tools commit and snapshots expire, so that only the records beside the snapshots can tell."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.commit.commit_records import CommitRecord, needless
from paimon_cli.commit.committer import CommitResult, Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import Conflict, PaimonError, Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch, fast_forward, plan_fast_forward, remove_branch, rename_branch
from paimon_cli.maintain.drop_table import drop_table, plan_table_drop
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.needed_files import delete_files
from paimon_cli.maintain.orphans import find_orphans, list_candidates
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage
from paimon_cli.storage.local_storage import LocalStorage
from tests.commit.commit_tables import Crash, data_file, live_names, make_table
from tests.rivals import RivalStorage

JOB, OTHER = CommitIdentity("job", 7), CommitIdentity("other")
_CALLS = "overwrite", "put_if_absent", "write_new", "delete", "read_bytes", "list_directory", "exists"


class KilledStorage(LocalStorage):
    """The process dies before (or, with `after`, after) its call with the number `at`."""

    def __init__(self, at: int, after: bool) -> None:
        super().__init__()
        self.at, self.after, self.calls = at, after, 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._counted(found) if name in _CALLS else found

    def opened(self, folder: Path) -> TableContext:
        """The table on this storage; calls count from now on."""
        self.calls = -1000
        context = make_table(folder, storage=self)
        self.calls = 0
        return context

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.calls += 1
            is_last = self.calls == self.at
            if self.calls > self.at or (is_last and not self.after):
                raise Crash
            answer = call(*arguments)
            if is_last:
                raise Crash
            return answer

        return counted


def append(context: TableContext, name: str, identity: CommitIdentity = JOB) -> CommitResult:
    return Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file(name),))], identity)


_names = count()


def others_commit(context: TableContext, commits: int = 1) -> None:
    """Commits as other tools make them: no snapshot of the table has our properties afterwards."""
    for _ in range(commits):
        append(context, f"other-{next(_names)}", OTHER)
    forget_users(context)


def forget_users(context: TableContext) -> None:
    for number in context.snapshots.ids():
        snapshot = context.snapshots.get(number)
        Path(context.layout.snapshot(number)).write_text(replace(snapshot, properties=None).to_json())


def expire_all_but(context: TableContext, kept: int = 1) -> None:
    expire_snapshots(context, Retention(at_least=kept, at_most=kept, millis=0, limit=None))


def move_on(context: TableContext) -> None:
    """Other tools commit, and all earlier snapshots expire."""
    others_commit(context, 3)
    expire_all_but(context)


def foreign_table(folder: Path, storage: LocalStorage | None = None) -> TableContext:
    """A table of other tools whose first snapshots have expired."""
    context = make_table(folder)
    if not context.snapshots.ids():
        move_on(context)
    return make_table(folder, storage=storage)


def roll_back_to(context: TableContext, number: int) -> None:
    roll_back(context, plan_rollback(context, rollback_target(context, snapshot_id=number)), delete_files(context))


def records(context: TableContext) -> list[str]:
    return sorted(path.name[:8] for path in Path(context.layout.commit_user_directory).glob("user-*/*"))


def test_a_commit_into_a_table_of_other_tools_is_made_once(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    assert not append(context, "mine").already_committed
    for _ in range(3):
        move_on(context)
        assert append(context, "again").already_committed
        assert append(context, "earlier", CommitIdentity("job", 6)).already_committed
    assert not append(context, "next", CommitIdentity("job", 8)).already_committed
    assert not append(context, "stranger", CommitIdentity("../stranger\0", 0)).already_committed
    assert {"mine@0", "next@0", "stranger@0"} < set(live_names(context)) and "again@0" not in live_names(context)


def test_only_repeatable_commits_are_recorded(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "a", CommitIdentity("job"))
    assert not Path(context.layout.commit_user_directory).exists()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("expires", [False, True])
def test_a_kill_at_any_call_of_the_storage_neither_loses_nor_doubles_the_commit(
    tmp_path: Path, after: bool, expires: bool
) -> None:
    refused = made = 0
    for at in count(1):
        foreign_table(tmp_path / str(at))
        killed = KilledStorage(at, after).opened(tmp_path / str(at))
        try:
            append(killed, "mine")
            break
        except Crash:
            context = make_table(tmp_path / str(at))
        forget_users(context)
        was_made = "mine@0" in live_names(context)
        if expires:
            move_on(context)
        try:
            assert append(context, "again").already_committed is was_made
        except Refused:
            refused += 1
            assert expires
            continue
        made += was_made
        assert sum(name in ("mine@0", "again@0") for name in live_names(context)) == 1
    assert at > 15 and made
    assert bool(refused) is expires, "after an expiry, a commit that was begun and not recorded as done cannot be judged"
    move_on(killed := make_table(tmp_path / str(at)))
    assert append(killed, "again").already_committed


def test_a_repetition_completes_the_record_of_a_killed_commit(tmp_path: Path) -> None:
    class Killed(LocalStorage):
        def overwrite(self, path: str, data: bytes) -> None:
            if path.endswith("/LATEST"):
                raise Crash
            super().overwrite(path, data)

    with pytest.raises(Crash):
        append(foreign_table(tmp_path / "t", Killed()), "mine")
    context = make_table(tmp_path / "t")
    forget_users(context)
    assert append(context, "again").already_committed
    move_on(context)
    assert append(context, "again").already_committed


def test_a_twin_that_was_faster_leaves_a_record_too(tmp_path: Path) -> None:
    table = foreign_table(tmp_path / "t")
    context = make_table(tmp_path / "t", storage=RivalStorage(lambda: append(table, "twin")))
    assert append(context, "mine").already_committed
    move_on(table)
    assert append(table, "again").already_committed
    assert "twin@0" in live_names(table) and "mine@0" not in live_names(table)


def test_a_commit_that_was_refused_is_new_later(tmp_path: Path) -> None:
    """It knows that it published nothing, and withdraws its record."""
    table = foreign_table(tmp_path / "t")
    context = make_table(tmp_path / "t", storage=RivalStorage(lambda: append(table, "later", CommitIdentity("job", 8))))
    with pytest.raises(Conflict):
        append(context, "mine")
    assert records(table) == ["commit-8"]
    exhausted = make_table(tmp_path / "t", storage=RivalStorage(lambda: others_commit(table)))
    exhausted = replace(exhausted, options=exhausted.options.with_overrides({"commit.max-retries": "0"}))
    with pytest.raises(PaimonError, match="nothing was committed"):
        append(exhausted, "mine", CommitIdentity("unlucky", 1))
    assert records(table) == ["commit-8"]
    move_on(table)
    assert not append(table, "mine", CommitIdentity("unlucky", 1)).already_committed


def test_assume_new_decides_what_no_record_can_tell(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    record = next(Path(context.layout.commit_user_directory).glob("user-*/*"))
    for damaged in (b"", b"[]", b'{"after": -1}', b'{"identifier":7,"after":3,"snapshot":2}', b"[" * 4000, b" " * 5000, b"\xff"):
        record.write_bytes(damaged)
        move_on(context)
        with pytest.raises(Refused, match="commit 7 of user job") as refusal:
            append(context, "again")
        assert refusal.value.exit_code == 7 and "--assume-new" in refusal.value.hint
    assert not append(context, "new", replace(JOB, assume_new=True)).already_committed
    move_on(context)
    assert append(context, "again").already_committed


def test_a_rolled_back_commit_is_new_and_earlier_ones_are_not(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    move_on(context)
    kept = context.snapshots.ids()[-1]
    for identifier in range(8, 40):  # more than are tidied away
        append(context, f"next-{identifier}", CommitIdentity("job", identifier))
    roll_back_to(context, kept)
    others_commit(context)
    assert append(context, "again").already_committed
    assert not append(context, "next-8", CommitIdentity("job", 8)).already_committed
    assert sum(name.startswith("next-") for name in live_names(context)) == 1


@pytest.mark.parametrize("after", [False, True])
def test_a_rollback_killed_at_any_call_leaves_no_record_of_what_is_gone(tmp_path: Path, after: bool) -> None:
    for at in count(1):
        context = foreign_table(tmp_path / str(at))
        target = context.snapshots.ids()[-1]
        append(context, "mine")
        forget_users(context)
        try:
            roll_back_to(KilledStorage(at, after).opened(tmp_path / str(at)), target)
            break
        except Crash:
            is_there = "mine@0" in live_names(context)
            move_on(context)
        try:
            assert append(context, "again").already_committed is is_there
        except Refused:
            continue
        assert sum(name in ("mine@0", "again@0") for name in live_names(context)) == 1
    assert at > 10


def test_a_commit_that_completes_its_record_after_its_rollback_opens_it_again(tmp_path: Path) -> None:
    table = foreign_table(tmp_path / "t")
    target = table.snapshots.ids()[-1]

    class Slow(LocalStorage):
        def overwrite(self, path: str, data: bytes) -> None:
            if b'"snapshot"' in data and table.snapshots.exists(target + 1):
                roll_back_to(table, target)
            super().overwrite(path, data)

    append(make_table(tmp_path / "t", storage=Slow()), "mine")
    assert "mine@0" not in live_names(table)
    others_commit(table)
    assert not append(table, "again").already_committed


def test_branches_and_their_records(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    others_commit(context)
    create_branch(context, "dev", snapshot_id=context.snapshots.ids()[-1])
    branch = context.at_branch("dev")
    assert append(branch, "again").already_committed, "the branch began with it"
    append(branch, "on-dev", CommitIdentity("job", 8))
    move_on(branch)
    rename_branch(context, "dev", "renamed")
    branch = context.at_branch("renamed")
    assert append(branch, "again", CommitIdentity("job", 8)).already_committed
    move_on(context)
    with pytest.raises(Refused):  # main may have been fast-forwarded by another tool
        append(context, "on-main", CommitIdentity("job", 8))
    fast_forward(context, plan_fast_forward(context, "renamed"), delete_files(context))
    forget_users(context)
    remove_branch(context, "renamed")
    assert append(context, "again", CommitIdentity("job", 8)).already_committed
    create_branch(context, "renamed", snapshot_id=context.snapshots.ids()[-1])
    assert not append(context.at_branch("renamed"), "new", CommitIdentity("job", 9)).already_committed


def test_a_branch_made_by_another_tool_is_not_taken_for_one_without_the_commit(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    others_commit(context)
    create_branch(context, "dev", snapshot_id=context.snapshots.ids()[-1])
    branch = context.at_branch("dev")
    for record in Path(branch.layout.commit_user_directory).glob("user-*/*"):
        record.unlink()
    with pytest.raises(Refused):
        append(branch, "again")
    assert not append(branch, "next", CommitIdentity("job", 8)).already_committed


def test_orphans_keep_records_and_a_drop_deletes_them(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    create_branch(context, "dev", snapshot_id=context.snapshots.ids()[-1])
    record = next(Path(context.layout.commit_user_directory).glob("user-*/*"))
    cut_off = record.with_name(".commit-7-x.123.tmp")
    cut_off.write_bytes(b"")
    far = 2**60
    assert not any(file.path == str(record) for file in list_candidates(context, far).files)
    assert str(cut_off) in [file.path for file in find_orphans(context, far, force=True).files]
    plan = plan_table_drop(context.storage, context.layout, context.schema)
    assert not plan.stays
    drop_table(context.storage, context.layout, context.schema)
    assert not (tmp_path / "t").exists()


def test_a_commit_after_a_drop_leaves_no_directory_behind(tmp_path: Path) -> None:
    table = foreign_table(tmp_path / "t")
    drop = RivalStorage(lambda: drop_table(table.storage, table.layout, table.schema))
    with pytest.raises(PaimonError):
        append(make_table(tmp_path / "t", storage=drop), "mine")
    assert not list((tmp_path / "t").glob("commit-user"))


def test_which_records_a_user_still_needs() -> None:
    def record(identifier: int, after: int, snapshot: int | None) -> CommitRecord:
        return CommitRecord(f"{identifier}-{after}-{snapshot}", identifier, after, snapshot)

    one, two, three = record(1, 1, 2), record(2, 4, 5), record(3, 8, 9)
    assert needless([one, two, three], [10, 11]) == [two, one]
    assert needless([one, two, three], [7, 10]) == [one], "a rollback to 7 undoes commit 3"
    assert needless([one, two, three], [4, 10]) == [two]
    assert needless([one, two, three], [3, 4, 5, 6, 7, 8, 9]) == []
    assert needless([record(2, 3, None), record(4, 3, None), three], [9]) == [record(2, 3, None)]
    assert needless([record(2, 3, None), three], [8, 9]) == [], "its process may publish it after a rollback to 8"


def test_records_of_a_user_do_not_pile_up(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    for identifier in range(60):
        append(context, f"f{identifier}", CommitIdentity("job", identifier))
        forget_users(context)
        expire_all_but(context, 2)
    assert len(records(context)) <= 17


@dataclass
class Story:
    """A random history, and what the table must contain: one file for each commit that was acknowledged and not undone."""

    context: TableContext
    dice: random.Random
    identifier: int = 0
    refused: int = 0

    def tell(self, steps: int) -> None:
        acts = [self.commit, self.commit, self.repeat, self.others, self.expire, self.undo, self.tag]
        for _ in range(steps):
            self.dice.choice(acts)()
            if self.dice.random() < 0.9:
                forget_users(self.context)

    def made(self, identifier: int) -> bool:
        return any(name.startswith(f"job-{identifier}@") for name in live_names(self.context))

    def commit(self, at: int | None = None) -> None:
        self.identifier += at is None
        identifier = self.identifier if at is None else at
        was_made = any(self.made(n) for n in range(identifier, self.identifier + 1))
        try:
            done = append(self.context, f"job-{identifier}", CommitIdentity("job", identifier))
        except Refused:
            self.refused += 1
            return
        assert done.already_committed is was_made

    def repeat(self) -> None:
        self.commit(self.dice.randint(max(0, self.identifier - 3), self.identifier))

    def others(self) -> None:
        others_commit(self.context, self.dice.randint(1, 3))

    def expire(self) -> None:
        expire_all_but(self.context, self.dice.randint(1, 3))

    def undo(self) -> None:
        targets = {*self.context.snapshots.ids(), *(tag.snapshot.id for tag in self.context.tags.all().values())}
        roll_back_to(self.context, self.dice.choice(sorted(targets)[-4:]))

    def tag(self) -> None:
        newest = self.context.snapshots.ids()[-1]
        create_tag(self.context, f"t{next(_names)}", newest)


@pytest.mark.parametrize("seed", range(16))
def test_random_histories_neither_lose_nor_double_a_commit(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.commit.commit_records._TIDY_FROM", seed % 3)
    story = Story(foreign_table(tmp_path / "t"), random.Random(seed))
    story.tell(40)
    assert story.refused < 20
