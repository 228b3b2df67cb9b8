"""Repeatable commits where other tools commit and snapshots expire, so that only the records beside the snapshots can tell."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from paimon_cli.commit.commit_records import (
    MAX_OLD_FILES,
    CommitRecord,
    all_records,
    needless,
    open_records_above,
    records_of,
    records_up_to,
)
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity, last_commit
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import Conflict, PaimonError, Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch, fast_forward, plan_fast_forward, remove_branch, rename_branch
from paimon_cli.maintain.drop_table import drop_table, plan_table_drop
from paimon_cli.maintain.expire_snapshots import expire_snapshots, files_to_delete_now, plan_expiry
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.orphans import find_orphans, list_candidates
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.storage.injected import SystemRandom
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import Crash, data_file, live_names, make_table
from tests.nightly import first
from tests.rivals import RivalStorage
from tests.simulation.conftest import _quick_metadata as _quick_metadata

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
    return Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))], identity)


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


class Tidying(SystemRandom):
    """With its UUIDs every commit removes needless records, not one in 16."""

    def uuid(self) -> str:
        return super().uuid()[:-1] + "0"


class Untidy(SystemRandom):
    """With its UUIDs no commit does so."""

    def uuid(self) -> str:
        return super().uuid()[:-1] + "1"


def foreign_table(folder: Path, storage: LocalStorage | None = None) -> TableContext:
    """A table of other tools whose first snapshots have expired."""
    context = make_table(folder)
    if not context.snapshots.ids():
        move_on(context)
    return replace(make_table(folder, storage=storage), random=Tidying())


def roll_back_to(context: TableContext, number: int) -> None:
    roll_back(context, plan_rollback(context, rollback_target(context, snapshot_id=number)), delete_files(context))


def records(context: TableContext) -> list[str]:
    """The identifier of each record; marked if it is open."""
    return sorted(f"{record.identifier}{' open' * (record.snapshot is None)}" for record in all_records(context))


def record_files(context: TableContext) -> list[Path]:
    return list(Path(context.layout.commit_user_directory).glob("*"))


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


@pytest.mark.in_part(2)
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


class Counting(LocalStorage):
    """Counts calls, as of an object store: `total` by name, and those on records in order."""

    is_remote = True

    def __init__(self) -> None:
        super().__init__()
        self.total, self.of_records = Counter[str](), list[str]()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return partial(self._noted, name, found) if name in _CALLS else found

    def _noted(self, name: str, call: Callable[..., Any], path: str, *rest: Any) -> Any:
        self.total[name] += 1
        if "/commit-user" in path:
            self.of_records.append(name)
        return call(path, *rest)


def calls_of(table: Path, identity: CommitIdentity) -> tuple[list[str], Counter[str]]:
    """The calls of a commit on its records, and all of them."""
    storage = Counting()
    context = replace(make_table(table, storage=storage), random=Untidy())
    storage.total.clear()
    append(context, f"f-{next(_names)}", identity)
    return storage.of_records, storage.total


def test_what_a_record_costs(tmp_path: Path) -> None:
    """A repeatable commit writes two files, and lists records only if the history cannot tell. Other commits touch none."""
    table = foreign_table(tmp_path / "t")
    assert calls_of(tmp_path / "t", OTHER)[0] == []
    assert calls_of(tmp_path / "t", JOB)[0] == ["list_directory", "write_new", "overwrite"]
    of_records, repeatable = calls_of(tmp_path / "t", CommitIdentity("job", 8))
    assert of_records == ["write_new", "overwrite"], "the history shows the user's last commit"
    _, ordinary = calls_of(tmp_path / "t", OTHER)
    repeatable.subtract(ordinary)
    costs = {call: number for call, number in repeatable.items() if number}
    assert costs == {"write_new": 1, "overwrite": 1}
    move_on(table)
    assert calls_of(tmp_path / "t", CommitIdentity("job", 9))[0] == ["list_directory", "write_new", "overwrite"]


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
    assert records(context) == ["7"], "it has completed the record that was there"
    move_on(context)
    assert append(context, "again").already_committed


def test_a_twin_that_was_faster_leaves_a_record_too(tmp_path: Path) -> None:
    table = foreign_table(tmp_path / "t")
    context = make_table(tmp_path / "t", storage=RivalStorage(lambda: append(table, "twin")))
    assert append(context, "mine").already_committed
    assert records(table) == ["7"], "the slower one has withdrawn its own"
    move_on(table)
    assert append(table, "again").already_committed
    assert "twin@0" in live_names(table) and "mine@0" not in live_names(table)


def test_a_slower_twin_completes_its_record_if_the_faster_one_died(tmp_path: Path) -> None:
    table = foreign_table(tmp_path / "t")

    class Killed(LocalStorage):
        def overwrite(self, path: str, data: bytes) -> None:
            if path.endswith("/LATEST"):
                raise Crash
            super().overwrite(path, data)

    def die_after_publication() -> None:
        with pytest.raises(Crash):
            append(make_table(tmp_path / "t", storage=Killed()), "twin")

    context = make_table(tmp_path / "t", storage=RivalStorage(die_after_publication))
    assert append(context, "mine").already_committed
    move_on(table)
    assert append(table, "again").already_committed
    assert "twin@0" in live_names(table) and "mine@0" not in live_names(table)


def test_a_repetition_completes_the_records_of_all_writers_of_a_killed_commit(tmp_path: Path) -> None:
    """One snapshot may make the commits of several writers. Each of them may be repeated by itself."""

    class Killed(LocalStorage):
        def overwrite(self, path: str, data: bytes) -> None:
            if path.endswith("/LATEST"):
                raise Crash
            super().overwrite(path, data)

    together = CommitIdentity("job", 7, writers=(("one", 1), ("two", 2)))
    with pytest.raises(Crash):
        append(foreign_table(tmp_path / "t", Killed()), "mine", together)
    context = make_table(tmp_path / "t")
    assert records(context) == ["1 open", "2 open", "7 open"]
    assert append(context, "again", together).already_committed
    assert records(context) == ["1", "2", "7"]
    forget_users(context)
    move_on(context)
    for user, identifier in (*together.writers, ("job", 7)):
        assert append(context, "again", CommitIdentity(user, identifier)).already_committed


@pytest.mark.parametrize("numbers", [(3, 5, 9), (9, 5, 3), (5, 9, 3)])
def test_of_contradicting_files_of_a_record_the_lowest_numbers_count(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Whatever order a listing has: what began earlier may be more snapshots."""
    context = make_table(tmp_path / "t")
    record = CommitRecord("a" * 64, 7, str(UUID(int=1)), 0, 0)
    written = [replace(record, after=number, snapshot=number + 1) for number in numbers]
    assert records_of(path for one in written for path in one.paths(context.layout)) == [replace(record, after=3, snapshot=4)]


def test_a_commit_that_was_refused_is_new_later(tmp_path: Path) -> None:
    """It knows that it published nothing, and withdraws its record."""
    table = foreign_table(tmp_path / "t")
    context = make_table(tmp_path / "t", storage=RivalStorage(lambda: append(table, "later", CommitIdentity("job", 8))))
    with pytest.raises(Conflict):
        append(context, "mine")
    assert records(table) == ["8"]
    exhausted = make_table(tmp_path / "t", storage=RivalStorage(lambda: others_commit(table)))
    exhausted = exhausted.with_options({"commit.max-retries": "0"})
    with pytest.raises(PaimonError, match="nothing was committed"):
        append(exhausted, "mine", CommitIdentity("unlucky", 1))
    assert records(table) == ["8"]
    move_on(table)
    assert not append(table, "mine", CommitIdentity("unlucky", 1)).already_committed


def test_assume_new_decides_what_no_record_can_tell(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    next(path for path in record_files(context) if "-made-" in path.name).unlink()
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


@pytest.mark.in_part(2)
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


def test_a_commit_that_completes_its_record_after_its_rollback_does_not_count(tmp_path: Path) -> None:
    table = foreign_table(tmp_path / "t")
    target = table.snapshots.ids()[-1]

    class Slow(LocalStorage):
        def overwrite(self, path: str, data: bytes) -> None:
            if "-made-" in path:
                roll_back_to(table, target)
            super().overwrite(path, data)

    append(make_table(tmp_path / "t", storage=Slow()), "mine")
    assert "mine@0" not in live_names(table)
    others_commit(table)
    assert not append(table, "again").already_committed


def test_a_commit_that_expires_before_its_record_is_completed_counts_as_made(tmp_path: Path) -> None:
    table = foreign_table(tmp_path / "t")

    class Slow(LocalStorage):
        def overwrite(self, path: str, data: bytes) -> None:
            if "-made-" in path:
                move_on(table)
            super().overwrite(path, data)

    append(make_table(tmp_path / "t", storage=Slow()), "mine")
    assert append(table, "again").already_committed


def test_a_clone_knows_the_commits_of_its_snapshot(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    snapshot = append(context, "mine").snapshots[-1].id
    append(context, "unborn", CommitIdentity("late", 1))
    assert [(record.identifier, record.snapshot) for record in records_up_to(context, snapshot)] == [(7, snapshot)]


def test_a_branch_with_lower_identifiers_of_the_same_user_is_not_judged_by_records_that_may_be_deleted(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    create_branch(context, "dev", snapshot_id=context.snapshots.ids()[-1])
    branch = context.at_branch("dev")
    others_commit(context, 20)
    for identifier in range(8, 40):
        append(context, f"next-{identifier}", CommitIdentity("job", identifier))
        forget_users(context)
    expire_all_but(context)
    append(context, "last", CommitIdentity("job", 40))
    assert "7" not in records(context)
    for record in record_files(branch):
        record.unlink()  # as if another tool had made the branch
    move_on(branch)
    with pytest.raises(Refused):
        append(branch, "again")


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


def how_far(context: TableContext) -> Mapping[str, str] | None:
    last = last_commit(context, JOB.user)
    return None if last is None else last.properties


def test_records_of_a_branch_say_how_far_a_user_has_come(tmp_path: Path) -> None:
    """An ingest goes on from there, also where the snapshot of its last commit is not in the branch, or has expired."""
    context = foreign_table(tmp_path / "t")
    append(context, "mine", replace(JOB, properties=(("read", "5"),)))
    others_commit(context)
    create_branch(context, "dev", snapshot_id=context.snapshots.ids()[-1])
    branch = context.at_branch("dev")
    assert how_far(branch) == {"read": "5"}
    for record in record_files(branch):
        record.write_bytes(b"")  # as earlier versions have copied it
    others_commit(branch)
    fast_forward(context, plan_fast_forward(context, "dev"), delete_files(context))
    move_on(context)
    assert how_far(context) == {"read": "5"}


class KilledAtHint(LocalStorage):
    """The process dies after the publication of its snapshot, before it completes its record."""

    def overwrite(self, path: str, data: bytes) -> None:
        if path.endswith("/LATEST"):
            raise Crash
        super().overwrite(path, data)


class KilledBefore(LocalStorage):
    """The process dies just before the publication of its snapshot."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if "/snapshot/snapshot-" in path:
            raise Crash
        return super().put_if_absent(path, data)


def read_up_to(mark: int) -> CommitIdentity:
    return replace(JOB, properties=(("read", str(mark)),))


class Numbered(SystemRandom):
    """UUIDs in a given order, which is that of a listing."""

    def __init__(self, first: int) -> None:
        self.first = first

    def uuid(self) -> str:
        return str(UUID(int=self.first))


@pytest.mark.parametrize("first", [1, 3], ids=["published first", "published last"])
@pytest.mark.parametrize("repeated", [JOB, read_up_to(7), read_up_to(9)], ids=["plain", "same", "other"])
def test_of_two_killed_attempts_that_of_the_snapshot_says_how_far(tmp_path: Path, first: int, repeated: CommitIdentity) -> None:
    foreign_table(tmp_path / "t")
    for mark, storage, order in ((9, KilledBefore(), 2), (7, KilledAtHint(), first)):
        with pytest.raises(Crash):
            append(replace(make_table(tmp_path / "t", storage=storage), random=Numbered(order)), f"read-{mark}", read_up_to(mark))
    context = make_table(tmp_path / "t")
    assert append(context, "again", repeated).already_committed
    move_on(context)
    assert how_far(context) == {"read": "7"}


def test_a_slower_twin_does_not_say_that_its_own_rows_were_read(tmp_path: Path) -> None:
    """It had read further when the other one committed, and died."""
    table = foreign_table(tmp_path / "t")

    def die_after_publication() -> None:
        with pytest.raises(Crash):
            append(make_table(tmp_path / "t", storage=KilledAtHint()), "twin", read_up_to(7))

    context = make_table(tmp_path / "t", storage=RivalStorage(die_after_publication))
    assert append(context, "mine", read_up_to(9)).already_committed
    move_on(table)
    assert how_far(table) == {"read": "7"}


def test_a_record_that_a_rollback_opens_keeps_what_it_holds(tmp_path: Path) -> None:
    """The rollback may be killed before it removes the snapshot, or be refused: then the record is completed again."""
    context = foreign_table(tmp_path / "t")
    append(context, "mine", read_up_to(7))
    open_records_above(context, context.snapshots.ids()[-1] - 1)
    assert records(context) == ["7 open"]
    assert append(context, "again", JOB).already_committed
    move_on(context)
    assert how_far(context) == {"read": "7"}


@pytest.mark.parametrize("first", [1, 3])
def test_a_commit_that_another_tool_rolled_back_does_not_say_how_far(tmp_path: Path, first: int) -> None:
    context = foreign_table(tmp_path / "t")
    append(replace(context, random=Numbered(2)), "gone", read_up_to(9))
    Path(context.layout.snapshot(context.snapshots.ids()[-1])).unlink()
    others_commit(context)
    append(replace(context, random=Numbered(first)), "mine", replace(read_up_to(7), assume_new=True))
    move_on(context)
    assert how_far(context) == {"read": "7"}


def test_a_branch_that_begins_with_the_very_snapshot_of_a_commit_knows_it(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    create_branch(context, "dev", snapshot_id=context.snapshots.ids()[-1])
    branch = context.at_branch("dev")
    move_on(branch)
    assert append(branch, "again").already_committed


def test_a_branch_made_by_another_tool_is_not_taken_for_one_without_the_commit(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    others_commit(context)
    create_branch(context, "dev", snapshot_id=context.snapshots.ids()[-1])
    branch = context.at_branch("dev")
    for record in record_files(branch):
        record.unlink()
    with pytest.raises(Refused):
        append(branch, "again")
    assert not append(branch, "next", CommitIdentity("job", 8)).already_committed


def test_orphans_keep_records_and_a_drop_deletes_them(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    create_branch(context, "dev", snapshot_id=context.snapshots.ids()[-1])
    record = record_files(context)[0]
    cut_off = record.with_name(f".{record.name}.123.tmp")
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
        return CommitRecord("job", identifier, f"{identifier}-{after}-{snapshot}", after, snapshot)

    one, two, three = record(1, 1, 2), record(2, 4, 5), record(3, 8, 9)
    assert needless([one, two, three], [10, 11]) == [two, one]
    assert needless([one, two, three], [7, 10]) == [one], "a rollback to 7 undoes commit 3"
    assert needless([one, two, three], [4, 10]) == [two]
    assert needless([one, two, three], [3, 4, 5, 6, 7, 8, 9]) == []
    assert needless([record(2, 3, None), record(4, 3, None), three], [9]) == [record(2, 3, None)]
    assert needless([record(2, 3, None), three], [8, 9]) == [], "its process may publish it after a rollback to 8"


def test_the_records_of_a_user_do_not_pile_up(tmp_path: Path) -> None:
    """Those that no rollback needs are deleted by one in 16 commits, so there are about 24 more, and rarely more than 100."""
    dice = random.Random(7)

    class Seeded(SystemRandom):
        def uuid(self) -> str:
            return str(UUID(int=dice.getrandbits(128)))

    context = replace(foreign_table(tmp_path / "t"), random=Seeded())
    counts: list[int] = []
    for identifier in range(300):
        append(context, f"f{identifier}", CommitIdentity("job", identifier))
        counts.append(len(record_files(context)) // 2)
        expire_all_but(context, 2)
    assert max(counts) <= 100 and 8 < sum(counts) / len(counts) < 32
    append(replace(context, random=Tidying()), "last", CommitIdentity("job", 300))
    assert len(record_files(context)) <= 2 * 17


def record_of(context: TableContext, user: str, identifier: int, after: int, snapshot: int | None) -> CommitRecord:
    digest = hashlib.sha256(user.encode()).hexdigest()
    return CommitRecord(digest, identifier, context.random.uuid(), after, snapshot)


def put(context: TableContext, record: CommitRecord) -> list[Path]:
    """Files that none of our processes has written."""
    paths = [Path(path) for path in record.paths(context.layout)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    return paths


def put_old_records(context: TableContext, users: int, days: float) -> None:
    """Records of users with one commit each, as staged commits without --commit-user make them, `days` before now."""
    changed = time.time() - days * 86_400
    for number in range(users):
        for path in put(context, record_of(context, f"old-{days}-{number}", 0, 1, 2)):
            os.utime(path, (changed, changed - number % 100))


@pytest.mark.nightly
def test_old_records_of_many_users_do_not_pile_up(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    put_old_records(context, 10_000, 31)
    put_old_records(context, 50, 29)
    append(context, "mine")
    assert len(record_files(context)) == 2 * 10_051 - 100, "a commit deletes a few"
    others_commit(context)
    plan = plan_expiry(context, Retention(at_least=1, at_most=1, millis=0, limit=None))
    assert plan is not None
    planned = [file for file in files_to_delete_now(context, plan) if file.kind == "commit record"]
    assert len(planned) == 2 * 10_000 - 100 - MAX_OLD_FILES
    expire_all_but(context)
    assert len(record_files(context)) == MAX_OLD_FILES + 2 * 51
    move_on(context)
    assert append(context, "again").already_committed
    assert append(context, "again", CommitIdentity("old-29-7", 0)).already_committed


_HUGE = 10**18


@pytest.mark.parametrize(("after", "snapshot"), [(_HUGE, None), (0, None), (2, 1), (2, 2), (1, _HUGE), (_HUGE, 2), (1, 4)])
def test_a_record_of_wrong_numbers_causes_a_refusal_at_most(tmp_path: Path, after: int, snapshot: int | None) -> None:
    context = foreign_table(tmp_path / "t")  # from snapshot 3 on
    put(context, record_of(context, "job", 7, after, snapshot))
    with pytest.raises(Refused, match="commit 7 of user job"):
        append(context, "mine")
    with pytest.raises(Refused):
        append(context, "mine", CommitIdentity("job", 6))
    assert not append(context, "other", CommitIdentity("job", 8)).already_committed
    assert not append(context, "other", CommitIdentity("stranger", 7)).already_committed


def test_names_that_are_none_of_records_say_nothing(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    good = put(context, record_of(context, "job", 7, 1, 2))[1]
    good.with_name(good.name.replace("-made-", "-after-")).write_bytes(b"")  # the lowest number counts
    record_files(context)[0].with_name("subdirectory").mkdir()
    forged = [
        "LATEST",
        "commit-",
        good.name.upper(),
        good.name[:-1] + "-2",
        good.name[:-1] + "2.0",
        good.name[:-1] + "9" * 20,
        good.name.replace("-7-", "-08-x-"),
        good.name.replace("-7-", f"-{2**70}-"),
        good.name.replace("-7-", "-9-"),
    ]
    for name in forged:
        good.with_name(name).write_bytes(b"")
    assert append(context, "mine").already_committed
    assert not append(context, "mine", CommitIdentity("job", 8)).already_committed, "a file without its first one"


def test_what_a_forged_record_can_do(tmp_path: Path) -> None:
    """As a forged property of a snapshot, one without faults makes commits count as made, which the command says."""
    context = foreign_table(tmp_path / "t")
    put(context, record_of(context, "job", 7, 1, 2))
    assert append(context, "mine").already_committed
    assert not append(context, "mine", CommitIdentity("job", 8)).already_committed


def test_a_rollback_by_another_tool_leaves_the_commit_unknown(tmp_path: Path) -> None:
    context = foreign_table(tmp_path / "t")
    append(context, "mine")
    Path(context.layout.snapshot(context.snapshots.ids()[-1])).unlink()
    Path(context.layout.latest_hint).unlink()
    others_commit(context)
    with pytest.raises(Refused):
        append(context, "again")
    assert not append(context, "again", replace(JOB, assume_new=True)).already_committed


def test_processes_of_one_user_at_a_time_make_each_commit_once(tmp_path: Path) -> None:
    """Six of them repeat the same identifiers while others commit and snapshots expire."""
    table = foreign_table(tmp_path / "t")
    made, refused = Counter[int](), list[PaimonError]()

    def load(number: int) -> None:
        for identifier in range(8):
            context = replace(make_table(tmp_path / "t"), random=Tidying())
            try:
                done = append(context, f"mine-{identifier}-{number}", CommitIdentity("job", identifier))
            except (Conflict, Refused) as refusal:
                refused.append(refusal)
            else:
                made[identifier] += not done.already_committed

    with ThreadPoolExecutor(6) as pool:
        loads = [pool.submit(load, number) for number in range(6)]
        while not all(each.done() for each in loads):
            others_commit_quickly(table)
        for each in loads:
            each.result()
    move_on(table)
    live = Counter(int(name.split("-")[1]) for name in live_names(table) if name.startswith("mine-"))
    assert live == +made and set(live.values()) == {1}
    assert append(table, "again", CommitIdentity("job", max(live))).already_committed


def others_commit_quickly(context: TableContext) -> None:
    append(context, f"other-{next(_names)}", OTHER)
    with contextlib.suppress(PaimonError):
        expire_all_but(context, 3)


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


@pytest.mark.in_part(6)
@pytest.mark.parametrize("seed", first(6, range(16)))
def test_random_histories_neither_lose_nor_double_a_commit(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.commit.commit_records._TIDY_FROM", seed % 3)
    story = Story(foreign_table(tmp_path / "t"), random.Random(seed))
    story.tell(40)
    assert story.refused < 20
