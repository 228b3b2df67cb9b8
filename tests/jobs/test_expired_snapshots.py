"""Jobs whose snapshot expires while they read it: the table is not damaged, and most of them start again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.errors import CommitUnknown, DamagedFile, NotFound, SnapshotExpired
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.jobs.engine import LocalEngine
from tests.rivals import Busy, copies, on_storage
from tests.tables import data_files, live_files, named_files

VECTORS, LOOKUP = {"deletion-vectors.enabled": "true"}, {"changelog-producer": "lookup"}
KINDS: dict[str, dict[str, Any]] = {
    "fixed buckets": {"bucket": 2},
    "vectors": {"bucket": 2, "options": VECTORS},
    "lookup": {"bucket": 2, "options": LOOKUP},
    "dynamic buckets": {"bucket": -1},
    "append": {"bucket": -1, "primary_key": ()},
    "append with vectors": {"bucket": -1, "primary_key": (), "options": VECTORS},
}
of_all_kinds = pytest.mark.parametrize("kind", KINDS)
OLD, NEW = pa.table({"id": range(100), "n": range(100)}), pa.table({"id": range(100, 150), "n": range(50)})


def new_table(folder: Path, kind: str) -> Table:
    arguments: dict[str, Any] = {"primary_key": ["id"], **KINDS[kind]}
    table = Table.create(str(folder / "t"), columns=["id bigint not null", "n bigint"], **arguments)
    for rows in (OLD, NEW):
        table.write(rows, compact="none")
    if KINDS[kind].get("options") == VECTORS:
        table.delete("id = 1")
    return table


def replace_all_files(table: Table) -> None:
    """What a compaction service does, for a table that keeps no history."""
    other = Table.open(table.url)
    other.write(pa.table({"id": [1000], "n": [0]}), compact="none")
    other.compact()
    assert other.expire(retain_max=1, retain_min=1, older_than="0 s").removed


@pytest.fixture
def at_first_task(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Lets another job act before the first task of the next job."""

    def arrange(act: Callable[[], object]) -> None:
        def disturbed(name: str) -> Callable[..., Any]:
            undisturbed = getattr(LocalEngine, name)

            def call(*given: Any, **named: Any) -> Any:
                patched.undo()
                act()
                return undisturbed(*given, **named)

            return call

        patched = pytest.MonkeyPatch()
        for name in ("run_tasks", "write_rows"):
            patched.setattr(LocalEngine, name, disturbed(name))

    return arrange


def check_sound(table: Table) -> None:
    table.refresh()
    assert table.verify("full").violations == []
    assert data_files(table.context) == named_files(table.context)


@of_all_kinds
@pytest.mark.in_part(2)
def test_an_update_starts_again(tmp_path: Path, at_first_task: Any, kind: str) -> None:
    table = new_table(tmp_path, kind)
    at_first_task(lambda: replace_all_files(table))
    done = table.update({"n": "-7"}, where="id BETWEEN 50 AND 120")
    assert (done.rows, done.conflicts) == (71, 1)
    assert table.scan(where="n = -7").count() == 71
    assert table.scan(where="id = 1000").count() == 1
    check_sound(table)


@of_all_kinds
@pytest.mark.in_part(2)
def test_a_delete_starts_again(tmp_path: Path, at_first_task: Any, kind: str) -> None:
    table = new_table(tmp_path, kind)
    at_first_task(lambda: replace_all_files(table))
    assert table.delete("id BETWEEN 50 AND 119").conflicts == 1
    assert table.scan(where="id >= 50").count() == 31
    check_sound(table)


def test_a_rescale_is_to_be_run_again(tmp_path: Path, at_first_task: Any) -> None:
    table = new_table(tmp_path, "fixed buckets")
    at_first_task(lambda: replace_all_files(table))
    with pytest.raises(SnapshotExpired, match="has expired while the job was reading it") as refusal:
        table.rescale(3)
    assert refusal.value.hint == "run it again, or keep snapshots longer"
    check_sound(table)
    assert table.rescale(3).rows == 151


def test_a_sort_starts_again(tmp_path: Path, at_first_task: Any) -> None:
    table = new_table(tmp_path, "append")
    at_first_task(lambda: replace_all_files(table))
    assert table.compact(order_by="n").conflicts == 1
    assert table.scan().to_arrow().column("n").to_pylist() == sorted([*range(100), *range(50), 0])
    check_sound(table)


def test_a_distribution_of_postponed_rows_starts_again(tmp_path: Path, at_first_task: Any) -> None:
    options = {"postpone.batch-write-fixed-bucket": "false"}
    table = Table.create(
        str(tmp_path / "t"), columns=["id bigint not null", "n bigint"], primary_key=["id"], bucket=-2, options=options
    )
    table.write(OLD)
    at_first_task(lambda: replace_all_files(table))
    assert table.compact().conflicts == 1
    assert table.scan().count() == 101
    check_sound(table)


def test_an_export_says_that_its_snapshot_is_gone(tmp_path: Path, at_first_task: Any) -> None:
    table = new_table(tmp_path, "fixed buckets")
    at_first_task(lambda: replace_all_files(table))
    with pytest.raises(NotFound, match="it probably expired while it was being read"):
        table.scan().export(str(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []


@of_all_kinds
def test_a_missing_file_of_an_existing_snapshot_is_damage(tmp_path: Path, at_first_task: Any, kind: str) -> None:
    table = new_table(tmp_path, kind)
    lost = Path(table.url) / sorted(live_files(table.context))[0]
    at_first_task(lost.unlink)
    with pytest.raises(DamagedFile, match=lost.name):
        table.update({"n": "-7"}, where="n IS NOT NULL")


@pytest.mark.in_part(3)
@pytest.mark.parametrize("kind", ["vectors", "lookup", "append"])
def test_a_verification_finds_no_damage_in_what_expires_meanwhile(tmp_path: Path, kind: str) -> None:
    """The other job, which also deletes a tag, acts before every fifth call of the storage in turn."""
    new_table(tmp_path, kind).tags.create("before", snapshot=1)
    left_out = 0
    for table, number in copies(tmp_path, 5):

        def act(table: Table = table) -> None:
            table.tags.rm("before")
            replace_all_files(table)

        storage = Busy(number, act)
        report = on_storage(table, storage).verify("full", all_snapshots=True)
        assert report.violations == []
        left_out += report.expired_files > 0
        if not storage.has_acted:
            assert (number > 40, left_out > 2) == (True, True)
            return


def test_a_repair_plans_nothing_for_what_expires_meanwhile(tmp_path: Path) -> None:
    new_table(tmp_path, "vectors")
    refused = 0
    for table, number in copies(tmp_path, 4):
        storage = Busy(number, partial(replace_all_files, table))
        try:
            assert on_storage(table, storage).plan_repair().plan.steps == []
        except SnapshotExpired as expired:
            assert expired.hint == "run it again"
            refused += 1
        if not storage.has_acted:
            assert (number > 20, refused > 2) == (True, True)
            return


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("show", "unseen"),
    [
        (lambda table: table.snapshots(), ()),
        (lambda table: table.state(), (SnapshotGone,)),
        (lambda table: table.foreign_reads(), (SnapshotGone,)),
        (lambda table: table.write(NEW, compact="none"), (CommitUnknown,)),
        (lambda table: table.compact(), (SnapshotExpired, CommitUnknown)),
    ],
    ids=["snapshots", "state", "foreign reads", "write", "compact"],
)
def test_no_command_takes_an_expired_snapshot_for_damage(tmp_path: Path, show: Any, unseen: Any) -> None:
    """`unseen`: how a command may end instead."""
    new_table(tmp_path, "fixed buckets")
    for table, number in copies(tmp_path, 3):
        storage = Busy(number, partial(replace_all_files, table))
        with suppress(*unseen):
            show(on_storage(table, storage))
        if not storage.has_acted:
            assert number > 5
            return


@pytest.mark.parametrize("number", [1, 20, 30])
def test_what_a_version_still_needs_is_reported_although_others_expire(tmp_path: Path, number: int) -> None:
    table = new_table(tmp_path, "fixed buckets")
    table.tags.create("kept", snapshot=1)
    context = table.context
    kept = context.manifests.live_entries(context.snapshots.get(1))[0]
    lost = Path(context.data_file_path_of(kept.partition, kept.bucket, kept.file.file_name))

    def act() -> None:
        replace_all_files(table)
        lost.unlink()

    report = on_storage(table, Busy(number, act)).verify("full", all_snapshots=True)
    assert {violation.path for violation in report.violations} == {str(lost)}
