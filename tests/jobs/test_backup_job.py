"""Backups: the copy is a table at every moment and has each version of its source, whatever goes on or dies meanwhile."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import DamagedFile, NotFound, Refused, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.snapshot_checks import consumers_stand_somewhere
from paimon_cli.jobs import backup_job
from paimon_cli.jobs.backup_aside import ROLLED_BACK, WRITTEN_HERE, SetAside
from paimon_cli.jobs.backup_job import BackupSummary
from paimon_cli.jobs.backup_records import BackupRecords, BackupRun
from paimon_cli.jobs.copy_claim import LEASE, LEASE_MILLIS
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.metadata_jobs import find_target
from paimon_cli.jobs.restore_job import restore_table
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.maintain.branches import create_branch, fast_forward, plan_fast_forward, remove_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.retention import (
    BACKUP_MILLIS,
    Retention,
    consumers,
    holding_consumer,
    remove_consumer,
    reset_consumer,
    write_consumer,
)
from paimon_cli.maintain.rollback import plan_rollback, roll_back
from paimon_cli.maintain.tags import create_tag, plan_removal, remove_tags, replace_tag
from paimon_cli.metadata.table_layout import BACKUP_CONSUMER, TableLayout
from paimon_cli.requests.backup import RestoreOptions
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.injected import SystemClock
from tests.goldens import golden_table
from tests.jobs.backups import WRITES, Dying, Killed, Recording, backup, branches_of, check_same, check_whole, opened
from tests.maintain.versions import files_on_disk, named_files
from tests.nightly import BRIEF
from tests.pieces import injected
from tests.rivals import Meddler
from tests.tables import compact, make_table, rows, write

LOCAL = Runtime(engine="local")
ALL_BUT_ONE = Retention(at_least=1, at_most=1, millis=0, limit=None)


class ShiftedClock(SystemClock):
    """A clock that is ahead, and never waits."""

    def __init__(self, millis: int = 0) -> None:
        self.ahead = millis

    def now_millis(self) -> int:
        return super().now_millis() + self.ahead

    def sleep(self, seconds: float) -> None:
        self.ahead += round(seconds * 1000)


def new_table(tmp_path: Path, **options: str) -> TableContext:
    return make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], bucket=2, options=options)


def fill(table: TableContext, commits: int = 3, first: int = 0) -> None:
    for number in range(first, first + commits):
        write(table, [{"k": key, "v": f"{number}-{key}"} for key in range(number, number + 3)])


def rich_table(tmp_path: Path) -> TableContext:
    """Snapshots, of which some have expired; a tag of an expired one; a branch; compactions."""
    table = new_table(tmp_path)
    fill(table, 2)
    create_tag(table, "old", 1)
    compact(table, strategy="full")
    expire_snapshots(table, replace(ALL_BUT_ONE, at_most=2))
    fill(table, 2, first=5)
    create_branch(table, "try", None, table.snapshots.latest_id())
    write(table.at_branch("try"), [{"k": 1, "v": "of the branch"}])
    create_tag(table.at_branch("try"), "of-branch")
    fill(table, 1, first=9)
    reset_consumer(table, "reader", table.snapshots.latest_id() or 1)
    return table


def test_a_file_that_only_moves_to_another_level_is_not_copied_again(tmp_path: Path) -> None:
    """Earlier versions of the copy need it, and a run that dies would leave its beginning."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 1)
    backup(table, copy)
    compact(table, strategy="full")
    storage = Recording(ConfinedStorage(str(copy)))
    backup(table, copy, storage)
    assert not [path for call, path in storage.calls if call in WRITES and "/bucket-" in path]
    check_same(table, opened(copy))


def test_the_copy_has_all_versions(tmp_path: Path) -> None:
    table, copy = rich_table(tmp_path), tmp_path / "copy"
    summary = backup(table, copy)
    check_same(table, opened(copy))
    assert (summary.tags, summary.branches, summary.gaps) == (2, 1, ())
    assert [c.name for c in consumers(opened(copy))] == ["reader"]
    assert (copy / "snapshot/EARLIEST").read_text() == str(summary.first_snapshot)


@pytest.mark.parametrize("name", ["dv_dedup", "changelog_lookup", "dynamic_bucket"])
def test_tables_of_java(tmp_path: Path, name: str) -> None:
    table = TableContext.open(str(golden_table("java-0.9", name, tmp_path)))
    backup(table, tmp_path / "copy")
    check_same(table, opened(tmp_path / "copy"))


def test_a_further_run_copies_what_is_new_and_lists_no_directory_twice(tmp_path: Path) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 6)
    backup(table, copy)
    before = {path for path in copy.rglob("*") if path.is_file()}
    fill(table, 3, first=20)
    store, source = Recording(ConfinedStorage(str(copy))), Recording(table.storage)
    summary = backup(replace(table, storage=source, cache=table.cache.renewed()), copy, store)
    new = [path for path in copy.rglob("*") if path.is_file() and path not in before and path.parent.name != "backup"]
    assert summary.size <= 1.02 * sum(path.stat().st_size for path in new)
    data = {path: count for path, count in store.lists().items() if "bucket-" in path or "manifest" in path}
    assert not data, "what the copy has is known by its newest snapshot"
    assert max(store.lists().values()) == max(source.lists().values()) == 1
    assert backup(table, copy).files == 0


@BRIEF
def test_a_run_that_died_anywhere_is_continued(tmp_path: Path, brief: bool) -> None:
    table = rich_table(tmp_path)
    total = Recording(ConfinedStorage(str(tmp_path / "whole")))
    backup(table, tmp_path / "whole", total)
    changes = sum(count for (call, _), count in total.calls.items() if call in WRITES)
    for point in random.Random(49).sample(range(changes), 8 if brief else min(100, changes)):
        copy = tmp_path / f"copy-{point}"
        with pytest.raises(Killed):
            backup(table, copy, Dying(ConfinedStorage(str(copy)), point))
        if (copy / "schema/schema-0").exists():
            check_whole(opened(copy))
        shutil.rmtree(copy / "lease", ignore_errors=True)  # it expires by itself, after a while
        fill(table, 1, first=100 + point)
        backup(table, copy)
        check_same(table, opened(copy))
        shutil.rmtree(copy)


def test_the_beginning_of_a_file_is_not_the_file(tmp_path: Path) -> None:
    """Older writers did not record the sizes of lists: what a killed run has left of one says nothing about its size."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 1)
    backup(table, copy)
    fill(table, 1, first=10)
    snapshot = Path(table.url) / "snapshot/snapshot-2"
    content = {key: value for key, value in json.loads(snapshot.read_text()).items() if not key.endswith("ListSize")}
    snapshot.write_text(json.dumps(content))
    for name in (content["baseManifestList"], content["deltaManifestList"]):
        whole = (Path(table.url) / "manifest" / name).read_bytes()
        (copy / "manifest" / name).write_bytes(whole[: len(whole) // 2])
    BackupRecords(opened(copy).storage, opened(copy).layout).begin()
    table = TableContext.open(table.url)
    backup(table, copy)
    check_same(table, opened(copy))


def test_it_stops_once_another_backup_has_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 1)
    backup(table, copy)
    fill(table, 2, first=10)
    before = {path for path in copy.rglob("*") if path.is_file()}

    def at(call: str, path: str) -> None:
        if path.endswith("/backup/unfinished"):
            monkeypatch.setattr(Leases, "held", frozenset())

    with pytest.raises(StorageUnavailable, match="another backup into"):
        backup(table, copy, Recording(ConfinedStorage(str(copy)), at))
    after = {path for path in copy.rglob("*") if path.is_file() and path.parent.name not in ("lease", "backup")}
    assert after <= before, "the other one may be at the same files"


PROCESS = """
import sys
from pathlib import Path
from tests.jobs.backups import backup
from tests.pieces import injected
from paimon_cli.history.table_context import TableContext
with injected(3):
    backup(TableContext.open(sys.argv[1]), Path(sys.argv[2]))
"""


@BRIEF
def test_processes_that_are_killed(tmp_path: Path, brief: bool) -> None:
    table, copy, dice = new_table(tmp_path), tmp_path / "copy", random.Random(7)
    fill(table, 12)
    killed = 0
    for attempt in range(3 if brief else 100):
        process = subprocess.Popen([sys.executable, "-c", PROCESS, table.url, str(copy)])
        while not (copy / "backup/unfinished").exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(dice.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() != 0
        shutil.rmtree(copy / "lease", ignore_errors=True)
        fill(table, 1, first=30 + attempt)
    assert killed
    backup(table, copy)
    check_same(table, opened(copy))


def during(table: TableContext, work: Callable[[], None], every: int = 5) -> TableContext:
    """The table, on which something happens whenever the backup has opened so many of its files."""
    opened_files = 0

    def at(call: str, path: str) -> None:
        nonlocal opened_files
        opened_files += call == "open_input"
        if call == "open_input" and opened_files % every == 0:
            work()

    return replace(table, storage=Recording(table.storage, at), cache=table.cache.renewed())


def test_beside_writers_compactions_and_expiries(tmp_path: Path) -> None:
    """The consumer keeps what is not copied yet, so that no id is missing."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 10)
    first, expected = table.snapshots.ids(), {n: rows(table, snapshot_id=n) for n in table.snapshots.ids()}
    numbers = iter(range(1000, 2000))

    def work() -> None:
        other = TableContext.open(table.url)
        fill(other, 1, first=next(numbers))
        compact(other, strategy="full")
        expire_snapshots(other, ALL_BUT_ONE)

    with injected(6):
        summary = backup(during(table, work), copy)
    assert summary.gaps == () and summary.snapshots >= len(first)
    for number, content in expected.items():
        assert rows(opened(copy), snapshot_id=number) == content
    check_whole(opened(copy))
    backup(table, copy)
    assert BackupRecords(opened(copy).storage, opened(copy).layout).runs()[-1].gaps == ()
    assert opened(copy).snapshots.latest_id() == table.snapshots.latest_id()
    assert rows(opened(copy)) == rows(table)
    check_whole(opened(copy))


def test_snapshots_stay_until_the_next_run(tmp_path: Path) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 3)
    backup(table, copy)
    fill(table, 5, first=10)
    held = table.snapshots.ids()
    expire_snapshots(table, ALL_BUT_ONE)
    assert table.snapshots.ids()[0] == 3 or table.snapshots.ids()[0] <= max(held) - 4
    backup(table, copy)
    assert opened(copy).snapshots.ids() == list(range(1, max(held) + 1))
    expire_snapshots(table, ALL_BUT_ONE)
    assert len(table.snapshots.ids()) == 1


def test_a_backup_that_is_never_run_again_keeps_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    fill(table, 3)
    backup(table, tmp_path / "copy")
    fill(table, 3, first=10)
    expire_snapshots(replace(table, clock=ShiftedClock(BACKUP_MILLIS - 60_000)), ALL_BUT_ONE)
    assert len(table.snapshots.ids()) > 3
    expire_snapshots(replace(table, clock=ShiftedClock(BACKUP_MILLIS + 60_000)), ALL_BUT_ONE)
    assert len(table.snapshots.ids()) == 1


def test_a_backup_that_has_ended_is_not_named_as_what_keeps_snapshots(tmp_path: Path) -> None:
    """A reader stands at the same snapshot, and the command would be to remove the backup's consumer, to no effect."""
    table = new_table(tmp_path)
    fill(table, 3)
    write_consumer(table, f"{BACKUP_CONSUMER}1", 1)
    later = replace(table, clock=ShiftedClock(BACKUP_MILLIS + 60_000))
    found = [holding_consumer(at, ALL_BUT_ONE) for at in (table, later)]
    write_consumer(table, "reader", 1)
    found.append(holding_consumer(later, ALL_BUT_ONE))
    assert [None if each is None else each.name for each in found] == [f"{BACKUP_CONSUMER}1", None, "reader"]


def test_what_had_expired_is_recorded_as_a_gap(tmp_path: Path) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 3)
    backup(table, copy)
    for consumer in consumers(table):
        Path(table.layout.consumer(consumer.name)).unlink()
    last = table.snapshots.latest_id() or 0
    fill(table, 4, first=10)
    expire_snapshots(table, ALL_BUT_ONE)
    summary = backup(table, copy)
    newest = table.snapshots.latest_id() or 0
    assert summary.gaps == (f"{last + 1}-{newest - 1}",)
    assert opened(copy).snapshots.ids() == [*range(1, last + 1), newest]
    assert rows(opened(copy)) == rows(table)
    assert (copy / "snapshot/EARLIEST").read_text() == "1"


def test_what_the_copy_has_is_never_written_again(tmp_path: Path) -> None:
    """Even if the table no longer has the snapshot that the copy ends with: a reader may be at work on the copy."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 3)
    backup(table, copy)
    for consumer in consumers(table):
        Path(table.layout.consumer(consumer.name)).unlink()
    write(table, [{"k": 1, "v": "next"}])
    expire_snapshots(table, ALL_BUT_ONE)
    there = {str(path) for path in copy.rglob("*") if path.is_file()}
    store = Recording(ConfinedStorage(str(copy)))
    backup(table, copy, store)
    written = {path for call, path in store.calls if call in ("open_output", "delete") and "/backup/" not in path}
    assert not written & there
    assert opened(copy).snapshots.ids() == [1, 2, 3, 4]
    check_whole(opened(copy))


def test_what_the_copy_has_on_a_branch_is_not_written_again_for_main(tmp_path: Path) -> None:
    """A fast-forward gives both the same files. If the run died meanwhile, the branch would lack one."""
    table, copy = Table.open(new_table(tmp_path).url), tmp_path / "copy"
    fill(table.context, 1)
    table.branches.create("try", snapshot=1)
    fill(opened(tmp_path / "t").at_branch("try"), 2, first=10)
    backup(opened(tmp_path / "t"), copy)
    table.branches.fast_forward("try")
    there = {str(path) for path in copy.rglob("*") if path.is_file() and path.parent.name != "backup"}
    store = Recording(ConfinedStorage(str(copy)))
    summary = backup(opened(tmp_path / "t"), copy, store)
    assert summary.snapshots == 2
    assert not {path for call, path in store.calls if call in ("open_output", "delete")} & there
    check_same(opened(tmp_path / "t"), opened(copy))


def test_an_expiry_that_was_planned_before(tmp_path: Path) -> None:
    """It does not know the consumer: its snapshots are left out, and the later ones are whole."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 8)
    done: list[int] = []

    def work() -> None:
        if not done:
            done.append(1)
            other = TableContext.open(table.url)
            for consumer in consumers(other):
                Path(other.layout.consumer(consumer.name)).unlink()
            compact(other, strategy="full")
            expire_snapshots(other, ALL_BUT_ONE)

    backup(during(table, work, every=4), copy)
    backup(table, copy)
    assert rows(opened(copy)) == rows(table)
    check_whole(opened(copy))


def test_what_was_rolled_back_is_set_aside(tmp_path: Path) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 5)
    backup(table, copy)
    lost = {n: rows(table, snapshot_id=n) for n in table.snapshots.ids()}
    roll_back(table, plan_rollback(table, find_target(table, "2")), delete_files(table))
    fill(table, 1, first=50)
    summary = backup(table, copy)
    assert summary.set_aside == (f"{ROLLED_BACK}2",)
    check_same(table, opened(copy), is_whole=False)
    assert opened(copy).snapshots.ids() == table.snapshots.ids()
    aside = opened(copy).at_branch(summary.set_aside[0])
    assert {n: rows(aside, snapshot_id=n) for n in aside.snapshots.ids()} == lost
    check_whole(aside)
    assert backup(table, copy).set_aside == ()


def test_after_a_rollback_a_backup_keeps_what_takes_the_numbers(tmp_path: Path) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 3)
    backup(table, copy)
    roll_back(table, plan_rollback(table, find_target(table, "1")), delete_files(table))
    assert not list(consumers_stand_somewhere(table))
    fill(table, 4, first=50)
    expire_snapshots(table, ALL_BUT_ONE)
    summary = backup(table, copy)
    assert summary.gaps == () and opened(copy).snapshots.ids() == list(range(1, (table.snapshots.latest_id() or 0) + 1))
    assert rows(opened(copy)) == rows(table)
    check_whole(opened(copy))
    assert not list(consumers_stand_somewhere(table))


@pytest.mark.parametrize("at", ["/snapshot/snapshot-5", "/snapshot/LATEST", "/backup/"])
def test_a_backup_does_not_undo_a_rollback_meanwhile(tmp_path: Path, at: str) -> None:
    """What takes the numbers is not copied yet, so an expiry leaves it to the next run."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 4)
    backup(table, copy)
    fill(table, 2, first=20)
    done: list[str] = []

    def roll(call: str, path: str) -> None:
        if at in path and call in WRITES and not done:
            done.append(path)
            roll_back(table, plan_rollback(table, find_target(table, "1")), delete_files(table))

    with suppress(NotFound, DamagedFile):  # a clear end, after which the run is repeated
        backup(table, copy, Recording(ConfinedStorage(str(copy)), roll))
    assert done
    fill(opened(tmp_path / "t"), 8, first=50)
    expire_snapshots(opened(tmp_path / "t"), ALL_BUT_ONE)
    left = opened(tmp_path / "t").snapshots.ids()
    summary = backup(opened(tmp_path / "t"), copy)
    assert left[0] == 1 and summary.gaps == () and opened(copy).snapshots.ids() == left
    check_whole(opened(copy))
    (consumer,) = consumers(opened(tmp_path / "t"))
    assert consumer.next_snapshot == left[-1], "what is copied is let go again"


def test_the_place_of_a_backup_is_no_damage(tmp_path: Path) -> None:
    """Java rolls back without it, and expires what a backup that has ended does not keep any more."""
    table = new_table(tmp_path)
    fill(table, 3)
    backup(table, tmp_path / "copy")
    (consumer,) = consumers(table)
    expire_snapshots(table, replace(ALL_BUT_ONE, heeds_consumers=False))
    for place in (1, 50):
        write_consumer(table, consumer.name, place)
        assert not list(consumers_stand_somewhere(table))
        write_consumer(table, "reader", place)
        assert [violation.code for violation in consumers_stand_somewhere(table)] == ["PV052"]
        remove_consumer(table, "reader")


def test_a_rollback_does_not_revive_a_backup_that_has_ended(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    fill(table, 3)
    backup(table, tmp_path / "copy")
    (before,) = consumers(table)
    later = replace(table, clock=ShiftedClock(BACKUP_MILLIS + 60_000))
    roll_back(later, plan_rollback(later, find_target(later, "1")), delete_files(later))
    assert consumers(table) == [before]


@pytest.mark.parametrize("branch", ["main", "try"])
def test_what_others_write_into_the_copy_is_told_from_a_rollback(tmp_path: Path, branch: str) -> None:
    table, copy = rich_table(tmp_path), tmp_path / "copy"
    backup(table, copy)
    write(opened(copy).at_branch(branch), [{"k": 70, "v": "into the copy"}])
    expected = rows(opened(copy).at_branch(branch))
    summary = backup(table, copy)
    name = f"{WRITTEN_HERE}2" if branch == "main" else f"{WRITTEN_HERE}2-try"
    of = "" if branch == "main" else "branch try of "
    assert summary.set_aside == (name,)
    assert f"into {of}{copy}, which no backup has copied" in summary.causes[0] and "rolled back" not in summary.causes[0]
    check_same(table, opened(copy), is_whole=False)
    assert rows(opened(copy).at_branch(name)) == expected
    assert backup(table, copy).causes == ()
    write(opened(copy), [{"k": 80, "v": "into the copy"}])
    (copy / "backup/unfinished").write_text("")  # a run that was killed may have copied it
    (cause,) = backup(table, copy).causes
    assert "rolled back, or files of it were lost, or another command has written" in cause


def test_a_snapshot_that_the_table_has_lost_is_not_taken_for_a_rollback(tmp_path: Path) -> None:
    """The copy of the branch stays as long as it was; once the hint says nothing of it any more, the branch is named."""
    table, copy = rich_table(tmp_path), tmp_path / "copy"
    write(table.at_branch("try"), [{"k": 71, "v": "lost later"}])
    backup(table, copy)
    held = opened(copy).at_branch("try").snapshots.ids()
    lost = Path(table.at_branch("try").layout.snapshot(held[-1]))
    lost.unlink()
    with pytest.raises(DamagedFile, match=rf"{lost} is missing"):
        backup(opened(tmp_path / "t"), copy)
    assert opened(copy).at_branch("try").snapshots.ids() == held
    lost.with_name("LATEST").write_text(str(held[-2]))
    (cause,) = backup(opened(tmp_path / "t"), copy).causes
    assert "branch try of " in cause and "files of it were lost" in cause


@pytest.mark.parametrize("is_first", [True, False])
def test_main_that_has_become_a_branch_without_its_oldest_snapshots(tmp_path: Path, is_first: bool) -> None:
    """Files of the snapshots that the branch has lost are live in the next one, and in none of main's own."""
    table, copy = new_table(tmp_path, **{"write-only": "true"}), tmp_path / "copy"
    fill(table, 5)
    if not is_first:
        backup(table, copy)
    create_branch(table, "b", None, 2)
    fill(table.at_branch("b"), 4, 10)
    expire_snapshots(table.at_branch("b"), Retention(1, 1, 0, None))
    fast_forward(table, plan_fast_forward(table, "b"), delete_files(table))
    remove_branch(table, "b")
    backup(table, copy)
    assert table.snapshots.ids() == [1, 2, 3, 4, 6] and opened(copy).snapshots.latest_id() == 6
    assert rows(opened(copy)) == rows(table)


@pytest.mark.parametrize("is_forward", [True, False])
def test_what_has_another_history_by_now_is_not_continued(tmp_path: Path, is_forward: bool) -> None:
    """The table has only snapshot 6, which was built on another 5 than that of the copy."""
    table, copy = new_table(tmp_path, **{"write-only": "true"}), tmp_path / "copy"
    fill(table, 5)
    backup(table, copy)
    for consumer in consumers(table):
        remove_consumer(table, consumer.name)
    if is_forward:
        create_branch(table, "b", None, 2)
        fill(table.at_branch("b"), 4, 10)
        expire_snapshots(table.at_branch("b"), Retention(1, 1, 0, None))
        fast_forward(table, plan_fast_forward(table, "b"), delete_files(table))
        remove_branch(table, "b")
    else:
        roll_back(table, plan_rollback(table, find_target(table, "4")), delete_files(table))
        fill(table, 2, 10)
    expire_snapshots(table, Retention(1, 1, 0, None))
    done = backup(table, copy)
    assert table.snapshots.ids() == opened(copy).snapshots.ids() == [6]
    assert rows(opened(copy)) == rows(table) and named_files(opened(copy)) <= files_on_disk(opened(copy))
    (aside,) = done.set_aside
    assert opened(copy).at_branch(aside).snapshots.ids() == [1, 2, 3, 4, 5]


def test_a_tag_with_the_number_of_another_snapshot_of_main(tmp_path: Path) -> None:
    """A branch has made it. Nothing else needs its files any more, and the copy has main's own snapshot 3."""
    table, copy = new_table(tmp_path, **{"write-only": "true"}), tmp_path / "copy"
    fill(table, 5)
    create_branch(table, "b", None, 2)
    branch = table.at_branch("b")
    fill(branch, 1, 10)
    create_tag(branch, "strange", 3)
    compact(branch, strategy="full")
    fill(branch, 2, 20)
    expire_snapshots(branch, ALL_BUT_ONE)
    fast_forward(table, plan_fast_forward(table, "b"), delete_files(table))
    remove_branch(table, "b")
    backup(table, copy)
    assert 3 in opened(copy).snapshots.ids() and opened(copy).tags.names() == ["strange"]
    assert named_files(opened(copy)) <= files_on_disk(opened(copy))


def test_a_branch_that_was_made_again(tmp_path: Path) -> None:
    table, copy = rich_table(tmp_path), tmp_path / "copy"
    backup(table, copy)
    start = table.at_branch("try").snapshots.ids()[0]
    remove_branch(table, "try")
    create_branch(table, "try", None, start)
    write(table.at_branch("try"), [{"k": 1, "v": "of the new branch"}])
    summary = backup(table, copy)
    assert len(summary.set_aside) == 1
    check_same(table, opened(copy), is_whole=False)
    for name in summary.set_aside:
        check_whole(opened(copy).at_branch(name))


def test_keep_expires_old_versions_of_the_copy(tmp_path: Path) -> None:
    """With the tags that the table has no more, each branch by its own."""
    table, copy = rich_table(tmp_path), tmp_path / "copy"
    create_tag(table, "kept", table.snapshots.ids()[0])
    backup(table, copy)
    held = sum(len(branch.snapshots.ids()) for branch in branches_of(opened(copy)))
    remove_tags(table, plan_removal(table, ["old"]), delete_files(table))
    later = replace(table, clock=ShiftedClock(40 * 86_400_000))
    summary = backup(later, copy, keep="30d")
    there = opened(copy)
    assert there.snapshots.ids() == [table.snapshots.latest_id()]
    assert summary.expired == held - sum(len(branch.snapshots.ids()) for branch in branches_of(there)) > 1
    assert (summary.first_snapshot, summary.gaps) == (there.snapshots.ids()[0], ())
    assert there.tags.names() == ["kept"] and there.branches.names() == ["try"]
    assert there.at_branch("try").tags.names() == ["of-branch"]
    assert rows(there) == rows(table)
    for branch in (there, there.at_branch("try")):
        check_whole(branch)
    assert backup(later, copy, keep="30d").snapshots == 0, "what is too old is not copied again"


def test_readers_that_went_on_have_done_so_in_the_copy(tmp_path: Path) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 3)
    for number in (1, 3, 2):
        reset_consumer(table, "reader", number)
        backup(table, copy)
        assert [(c.name, c.next_snapshot) for c in consumers(opened(copy))] == [("reader", number)], "none of a backup"


def test_of_an_old_table_the_newest_version_is_kept(tmp_path: Path) -> None:
    table, copy = rich_table(tmp_path), tmp_path / "copy"
    backup(replace(table, clock=ShiftedClock(40 * 86_400_000)), copy, keep="30d")
    for branch, there in zip(branches_of(table), branches_of(opened(copy)), strict=True):
        assert there.snapshots.ids() == branch.snapshots.ids()[-1:] and rows(there) == rows(branch)
        check_whole(there)


def test_a_tag_that_the_table_has_no_more_is_kept_for_its_time(tmp_path: Path) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 3)
    create_tag(table, "t", 2)
    backup(table, copy, keep="30d")
    remove_tags(table, plan_removal(table, ["t"]), delete_files(table))
    for days, names in ((29, ["t"]), (31, [])):
        backup(replace(table, clock=ShiftedClock(days * 86_400_000)), copy, keep="30d")
        assert opened(copy).tags.names() == names
        check_whole(opened(copy))


def test_a_tag_of_a_commit_beside_the_backup_is_left_to_the_next_run(tmp_path: Path) -> None:
    """The copy has neither its snapshot nor the schema of that."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 2)

    def commit() -> None:
        Table.open(table.url, runtime=LOCAL).alter.add_column("late INT")
        later = TableContext.open(table.url)
        write(later, [{"k": 1, "v": "late", "late": 1}])
        create_tag(later, "late")

    rival = Meddler("list_directory", "t/tag", commit)
    backup(replace(table, storage=rival), copy)
    assert rival.count and opened(copy).tags.names() == [] and opened(copy).snapshots.ids() == [1, 2]
    backup(TableContext.open(table.url), copy)
    check_same(TableContext.open(table.url), opened(copy))


def test_a_branch_that_was_made_again_from_a_later_start(tmp_path: Path) -> None:
    """The numbers of its snapshots are those of the old branch, and nothing else of it is."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 3)
    create_branch(table, "try", None, 2)
    old = table.at_branch("try")
    write(old, [{"k": 1, "v": "of the old branch"}])
    create_tag(old, "of-old")
    kept = {number: rows(old, snapshot_id=number) for number in old.snapshots.ids()[-1:]}
    expire_snapshots(old, ALL_BUT_ONE)
    backup(table, copy)
    remove_branch(table, "try")
    create_branch(table, "try", None, 3)
    assert table.at_branch("try").snapshots.ids() == [3] == [*kept]
    summary = backup(table, copy)
    assert summary.set_aside == (f"{ROLLED_BACK}2-try",)
    there, aside = opened(copy).at_branch("try"), opened(copy).at_branch(summary.set_aside[0])
    assert rows(there) == rows(table, snapshot_id=3) and there.tags.names() == []
    assert {number: rows(aside, snapshot_id=number) for number in aside.snapshots.ids()} == kept
    assert aside.tags.names() == ["of-old"]
    check_whole(aside)


def test_a_moved_tag_moves_in_the_copy(tmp_path: Path) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 3)
    create_tag(table, "t", 1)
    backup(table, copy)
    replace_tag(table, "t", 3)
    assert backup(table, copy).tags == 1
    check_same(table, opened(copy))


class TestDestinations:
    def test_other_files_are_never_touched(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        fill(table, 1)
        (tmp_path / "full").mkdir()
        (tmp_path / "full/mine").write_text("mine")
        for place in (tmp_path / "full", tmp_path / "t", tmp_path / "t/below", tmp_path):
            with pytest.raises(UsageError):
                backup(table, place)
        assert (tmp_path / "full/mine").read_text() == "mine"

    def test_the_backup_of_another_table(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        fill(table, 2)
        backup(table, tmp_path / "copy")
        other = make_table(tmp_path / "other", {"k": "INT NOT NULL", "x": "INT"}, ["k"])
        write(other, [{"k": 1, "x": 2}])
        before = {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}
        with pytest.raises(Refused, match="another table"):
            backup(other, tmp_path / "copy")
        assert {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()} == before
        check_same(table, opened(tmp_path / "copy"))

    def test_a_second_backup_waits_for_the_first(self, tmp_path: Path) -> None:
        table, copy = new_table(tmp_path), tmp_path / "copy"
        fill(table, 2)
        backup(table, copy)
        clock = ShiftedClock()
        others = Leases(LEASE, "another", LEASE_MILLIS, clock)

        class Renewing(ShiftedClock):
            def sleep(self, seconds: float) -> None:
                super().sleep(seconds)
                clock.ahead = self.ahead
                others.renew()

        assert others.acquire(opened(copy).storage, str(copy / "lease"))
        with pytest.raises(StorageUnavailable, match="another backup"):
            backup(replace(table, clock=Renewing()), copy)
        backup(replace(table, clock=ShiftedClock()), copy)  # which is not renewed any more

    def test_a_dropped_table_has_no_backup(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        fill(table, 1)
        shutil.rmtree(table.url)
        with pytest.raises(NotFound):
            backup(table, tmp_path / "copy")

    def test_lost_files_are_named(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        fill(table, 2)
        lost = next(Path(table.url).glob("bucket-*/data-*"))
        lost.unlink()
        with pytest.raises(DamagedFile, match=lost.name):
            backup(table, tmp_path / "copy")
        assert not list((tmp_path / "copy/snapshot").glob("snapshot-*"))


def test_records_that_nobody_wrote(tmp_path: Path) -> None:
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 1)
    backup(table, copy)
    records = BackupRecords(opened(copy).storage, opened(copy).layout)
    for content in (b"{}", b"[", b'{"version": 2}', (copy / "backup/run-1").read_bytes().replace(b'"files": ', b'"files": -')):
        (copy / "backup/run-7").write_bytes(content)
        with pytest.raises(DamagedFile, match="run-7"):
            records.runs()
    (copy / "backup/identity").write_text("../../etc/passwd")
    with pytest.raises(DamagedFile, match="identity"):
        backup(table, copy)


def test_changelogs_that_outlive_their_snapshots(tmp_path: Path) -> None:
    options = {"changelog-producer": "input", "changelog.time-retained": "2 h"}
    table, copy = new_table(tmp_path, **options), tmp_path / "copy"
    fill(table, 5)
    expire_snapshots(table, ALL_BUT_ONE)
    kept = sorted(path.name for path in Path(table.url).glob("changelog/changelog-*"))
    assert kept
    backup(table, copy)
    assert sorted(path.name for path in copy.glob("changelog/changelog-*")) == kept
    check_same(table, opened(copy))
    backup(replace(table, clock=ShiftedClock(40 * 86_400_000)), copy, keep="30d")
    assert [path.name for path in copy.glob("changelog/changelog-*")] == kept[-1:], "one is always kept"
    check_whole(opened(copy))


def test_hints_of_changelogs_name_those_of_the_copy_after_each_run(tmp_path: Path) -> None:
    options = {"changelog-producer": "input", "changelog.time-retained": "2 h", "write-only": "true"}
    table, copy = new_table(tmp_path, **options), tmp_path / "copy"
    for last in (3, 5):
        fill(table, last + 1 - (table.snapshots.latest_id() or 0))
        expire_snapshots(table, replace(ALL_BUT_ONE, heeds_consumers=False))  # before the second run has copied them
        backup(table, copy)
        hints = [int((copy / "changelog" / name).read_text()) for name in ("EARLIEST", "LATEST")]
        assert hints == [1, last]


def test_the_consumer_is_named_after_the_backup(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    fill(table, 1)
    for name in ("a", "b"):
        backup(table, tmp_path / name)
    names = [consumer.name for consumer in consumers(table)]
    assert len(names) == 2 and all(name.startswith(BACKUP_CONSUMER) for name in names)


def test_where_no_backup_can_be(tmp_path: Path) -> None:
    """In a file, and where the name of the copy would be that of a branch or a view."""
    table = Table.open(new_table(tmp_path).url, runtime=LOCAL)
    (tmp_path / "file").write_text("mine")
    for name in ("file", "file/x", "file/x/y", "B$branch_x", "B$ro", "B$snapshots", "B$branch_x/"):
        with pytest.raises(UsageError):
            table.backup(f"{tmp_path}/{name}")
    for name in ("file/x", "B$branch_x"):
        with pytest.raises(UsageError):
            Table.create(f"{tmp_path}/{name}", columns=["k INT"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "t"]


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"version": 1}', "[" * 9000, "null"])
def test_a_record_that_cannot_be_read(tmp_path: Path, record: str) -> None:
    """It is named in words of the user, and stands in no backup's way."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    for _ in range(2):
        fill(table, 1)
        backup(table, copy)
    (copy / "backup/run-1").write_text(record)
    with pytest.raises(DamagedFile, match="it is not what a backup writes"):
        BackupRecords(opened(copy).storage, opened(copy).layout).runs()
    backup(replace(table, clock=ShiftedClock(40 * 86_400_000)), copy, keep="30d")
    assert (copy / "backup/run-1").exists() and not (copy / "backup/run-2").exists()


@pytest.mark.in_part(3)
@pytest.mark.parametrize("at", ["/snapshot/snapshot-", "/bucket-", "/manifest/", "/backup/run-", "/tag/"])
@pytest.mark.parametrize("then", ["nothing", "commits"])
def test_a_rollback_while_a_backup_runs(tmp_path: Path, at: str, then: str) -> None:
    """The copy is whole, whatever it has, and the next run makes it that of the table."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 5)
    create_tag(table, "t", 2)
    done: list[str] = []

    def roll(call: str, path: str) -> None:
        if at in path and call in WRITES and not done:
            done.append(path)
            roll_back(table, plan_rollback(table, find_target(table, "2")), delete_files(table))
            if then == "commits":
                fill(opened(tmp_path / "t"), 2, first=50)

    with suppress(NotFound, DamagedFile):  # a clear end, after which the run is repeated
        backup(table, copy, Recording(ConfinedStorage(str(copy)), roll))
    assert done
    if (copy / "schema/schema-0").exists():
        check_whole(opened(copy))
    backup(opened(tmp_path / "t"), copy)
    check_same(opened(tmp_path / "t"), opened(copy), is_whole=False)
    assert opened(copy).snapshots.ids() == opened(tmp_path / "t").snapshots.ids()
    restore_table(
        opened(copy), TableLocation(str(tmp_path / "n"), "n"), RestoreOptions(history=True), LocalEngine(), NoProgress()
    )
    check_same(opened(copy), opened(tmp_path / "n"))


@pytest.mark.parametrize("lists", ["kept", "gone"])
def test_a_tag_whose_changelog_has_expired(tmp_path: Path, lists: str) -> None:
    """A tag keeps its rows and not its changelog. Java deletes the list of that, too."""
    table, copy = new_table(tmp_path, **{"changelog-producer": "input"}), tmp_path / "copy"
    fill(table, 1)
    create_tag(table, "old", 1)
    expected = rows(table, snapshot_id=1)
    fill(table, 3, first=5)
    tagged = table.tags.get("old").snapshot
    expire_snapshots(table, replace(ALL_BUT_ONE, at_most=2))
    assert tagged.changelog_manifest_list is not None and 1 not in table.snapshots.ids()
    if lists == "gone":
        Path(table.layout.manifest(tagged.changelog_manifest_list)).unlink()
    create_branch(table, "try", "old", None)
    backup(table, copy)
    check_same(table, opened(copy))
    restored = {"all": RestoreOptions(history=True), "one": RestoreOptions(tag="old")}
    for name, options in restored.items():
        restore_table(opened(copy), TableLocation(str(tmp_path / name), name), options, LocalEngine(), NoProgress())
        check_whole(opened(tmp_path / name))
    check_same(table, opened(tmp_path / "all"))
    assert rows(opened(tmp_path / "one")) == expected
    remove_tags(opened(copy), plan_removal(opened(copy), ["old"]), delete_files(opened(copy)))
    check_whole(opened(copy))


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_branch_that_was_dropped_and_created_again_with_other_columns(tmp_path: Path, has_rows: bool) -> None:
    """Its snapshots may all be those of the copy. Under the schemas of the first one, nobody could read its new rows."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 2)
    create_branch(table, "b", None, 2 if has_rows else None)
    Table.open(table.url, branch="b", runtime=LOCAL).alter.add_column("x INT")
    backup(table, copy)
    remove_branch(table, "b")
    create_branch(table, "b", None, 2 if has_rows else None)
    Table.open(table.url, branch="b", runtime=LOCAL).alter.add_column("y STRING")
    done = backup(table, copy)
    fill(table.at_branch("b"), 1, 10)
    backup(table, copy)
    branch, copied = table.at_branch("b"), opened(copy).at_branch("b")
    assert copied.schema.field_names == branch.schema.field_names and rows(copied) == rows(branch)
    check_whole(copied)
    (aside,), (cause,) = done.set_aside, done.causes
    assert "x" in opened(copy).at_branch(aside).schema.field_names and "it was made again" in cause


class _Place:
    """From where on a branch is held: each time it is asked the next of `places`. `log`: what it was told."""

    def __init__(self, *places: int) -> None:
        self.places, self.log = list(places), list[tuple[str, int]]()

    def place(self, history: TableContext) -> int:
        return self.places.pop(0) if len(self.places) > 1 else self.places[0]

    def go_on(self, history: TableContext, number: int) -> None:
        self.log.append(("go on", number))

    def hold(self, history: TableContext, number: int) -> None:
        self.log.append(("hold", number))


@pytest.mark.parametrize(
    ("places", "answers", "told"),
    [
        ([2], {"5": [True, True]}, [("go on", 5)]),
        ([2], {"5": [False], "4": [True, True]}, [("go on", 4)]),
        ([2], {"5": [True, False], "4": [False], "3": [True, True]}, [("go on", 5), ("hold", 2), ("go on", 3)]),
        ([2], {"5": [False], "4": [False], "3": [False]}, []),
        ([4], {"5": [False]}, []),
        ([5], {}, []),
        ([2, 4], {"5": [False]}, []),
    ],
)
@pytest.mark.parametrize("branch", ["main", "b"])
def test_a_branch_is_held_from_the_newest_snapshot_that_both_have(
    monkeypatch: pytest.MonkeyPatch, branch: str, places: list[int], answers: dict[str, list[bool]], told: list[tuple[str, int]]
) -> None:
    """Not below its place, and not from one that a rollback replaces at that moment: that would free what no copy has."""
    here, there, cut = TableLayout("t").of_branch(branch), TableLayout("copy"), _Place(*places)
    own, left = there.of_branch(branch), {number: [*given] for number, given in answers.items()}

    def is_equal(_: object, copied: str, original: str) -> bool:
        number = copied.rpartition("-")[2]
        assert (copied, original) == (own.snapshot(int(number)), here.snapshot(int(number)))
        return left[number].pop(0)

    def numbers(directory: str, prefix: str) -> list[int]:
        assert directory == own.snapshot_directory
        return [1, 2, 3, 4, 5]

    monkeypatch.setattr(backup_job, "is_equal", is_equal)
    copy: Any = SimpleNamespace(layout=there, numbers=numbers)
    backup_job._let_go(copy, cast(Any, SimpleNamespace(branch=branch, layout=here)), cast(Any, cut))
    assert cut.log == told and not any(left.values())


def test_the_summary_tells_each_figure_of_the_run() -> None:
    figures = BackupRun(3, "shop.t", 11, 12, 21, 29, 4, 5, 6, 7, 8, 9, ((22, 22), (24, 27)), (("main", 29),))
    aside = [SetAside("a", "why a"), SetAside("b", "why b")]
    assert asdict(BackupSummary.of(figures, "there", aside, "local")) == {
        **{"table": "shop.t", "destination": "there", "run": 3, "snapshots": 4, "first_snapshot": 21, "last_snapshot": 29},
        **{"tags": 5, "branches": 6, "files": 7, "size": 8, "expired": 9, "gaps": ("22", "24-27"), "engine": "local"},
        **{"set_aside": ("a", "b"), "causes": ("why a", "why b")},
    }


def test_a_directory_with_other_files_becomes_no_backup(tmp_path: Path) -> None:
    """One with a lease alone is that of a backup that was killed before its first record."""
    table = new_table(tmp_path)
    fill(table, 1)
    for name in ("lease/backup-1", "backup/x"):
        copy = tmp_path / name.replace("/", "-")
        (copy / name).parent.mkdir(parents=True)
        (copy / name).write_text("{}")
        (copy / "notes.txt").write_text("mine")
        with pytest.raises(UsageError, match="not empty"):
            backup(table, copy)
        assert sorted(path.name for path in copy.iterdir()) == sorted([name.partition("/")[0], "notes.txt"])
    killed = tmp_path / "killed"
    (killed / "lease").mkdir(parents=True)
    assert backup(table, killed).snapshots == 1
    restoring = tmp_path / "restoring"
    backup(table, restoring)
    Path(TableLayout(str(restoring)).unfinished_copy).write_text("{}")
    with pytest.raises(UsageError, match="a restore into it is running, or was killed"):
        backup(table, restoring)


def test_no_backup_continues_in_the_directory_of_another_table(tmp_path: Path) -> None:
    """Also not if only its newest schema is another one, or if it has fewer."""
    table, copy = new_table(tmp_path), tmp_path / "copy"
    fill(table, 1)
    Table.open(table.url).alter.add_column("w INT")
    backup(table, copy)
    newest = tmp_path / "t" / "schema" / "schema-1"
    content = newest.read_text()
    for other in (content.replace('"w"', '"z"'), None):
        newest.unlink() if other is None else newest.write_text(other)
        with pytest.raises(Refused, match="is the backup of another table"):
            backup(TableContext.open(table.url), copy)
    newest.write_text(content)
    assert backup(TableContext.open(table.url), copy).snapshots == 0
    (copy / "schema" / "schema-1").unlink()
    assert backup(TableContext.open(table.url), copy).snapshots == 0


def test_a_backup_around_which_a_table_was_made_does_not_go_on(tmp_path: Path) -> None:
    """Its files would be orphans there, which a cleanup of that table deletes."""
    table, copy = new_table(tmp_path), tmp_path / "w" / "copy"
    fill(table, 1)
    backup(table, copy)
    around = make_table(tmp_path / "w", {"k": "INT NOT NULL"}, ["k"])
    before = sorted((tmp_path / "w").rglob("*"))
    fill(table, 1, first=5)
    with pytest.raises(UsageError):
        backup(table, copy)
    assert sorted((tmp_path / "w").rglob("*")) == before and around.snapshots.latest_id() is None
