"""A rollback between any two steps of another job, and the reverse: the table stays whole, and no job claims what is not so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.errors import CommitUnknown, Conflict, NotFound
from paimon_cli.invariants.violation import ERROR
from tests.nightly import first
from tests.rivals import Busy, copies, on_storage
from tests.simulation.conftest import _quick_metadata as _quick_metadata

KINDS: dict[str, dict[str, Any]] = {
    "fixed buckets": {"bucket": 1},
    "vectors": {"bucket": 1, "options": {"deletion-vectors.enabled": "true"}},
    "dynamic buckets": {"bucket": -1},
    "append": {"bucket": -1, "primary_key": ()},
}
OURS = pa.table({"id": [1, 500], "n": [7, 7]})
Job = Callable[[Table], object]


def roll_back(table: Table) -> None:
    table.rollback(2)


def expire(table: Table) -> None:
    table.expire(retain_max=1, retain_min=1, older_than="0 s")


def write(table: Table) -> None:
    table.write(OURS)


def overwrite(table: Table) -> None:
    table.write(OURS, overwrite=True)


def compact(table: Table) -> None:
    table.compact()


def compact_and_expire(table: Table) -> None:
    """A commit on whatever is there, and the expiry of everything before it."""
    table.write(OURS.slice(0, 0), overwrite=False)
    table.compact_manifests()
    expire(table)


def made(folder: Path, kind: str) -> Table:
    """Four commits or more, the second of which is the target of rollbacks."""
    arguments: dict[str, Any] = {"primary_key": ["id"], **KINDS[kind]}
    table = Table.create(str(folder / "t"), columns=["id bigint not null", "n bigint"], **arguments)
    for start in range(0, 80, 20):
        table.write(pa.table({"id": range(start, start + 30), "n": range(30)}), compact="inline" if kind == "vectors" else "none")
    table.compact()
    return table


def shown(table: Table, snapshot: int | None = None) -> list[tuple[int, int]]:
    rows = table.scan(snapshot=snapshot).to_arrow()
    return sorted(zip(rows.column("id").to_pylist(), rows.column("n").to_pylist(), strict=True))


def tables_after(folder: Path, job: Job, rival: Job, step: int) -> list[tuple[Table, bool]]:
    """The tables after `job`, each with the rival before another call of its storage, and whether the job succeeded."""
    tables: list[tuple[Table, bool]] = []
    for table, number in copies(folder, step):

        def act(table: Table = table) -> None:
            with suppress(Conflict, NotFound):
                rival(Table.open(table.url))

        storage, succeeded = Busy(number, act), False
        with suppress(Conflict, NotFound, CommitUnknown):
            job(on_storage(table, storage))
            succeeded = True
        if not storage.has_acted:
            break
        tables.append((Table.open(table.url), succeeded))
    assert len(tables) > 3
    for table, _ in tables:
        found = table.verify("full", all_snapshots=True).violations
        # A commit writes its hint last, and may write it after a whole rollback. The next commit or rollback corrects it.
        assert [str(violation) for violation in found if violation.severity == ERROR and violation.code != "PV003"] == []
    return tables


@pytest.mark.in_part(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("job", "step"), [(write, 2), (overwrite, 3), (compact, 4)])
def test_a_commit_beside_a_rollback_names_no_file_that_is_gone(tmp_path: Path, kind: str, job: Job, step: int) -> None:
    made(tmp_path, kind)
    for table, _ in tables_after(tmp_path, job, roll_back, step):
        assert table.scan().count() > 0


@pytest.mark.parametrize("kind", first(1, ["fixed buckets", "append"]))
def test_an_expiry_beside_a_rollback_leaves_the_target(tmp_path: Path, kind: str) -> None:
    """The snapshot that the expiry was to keep is gone: it must not delete the target of the rollback, too."""
    table = made(tmp_path, kind)
    states = [shown(table), shown(table, snapshot=2)]
    outcomes = tables_after(tmp_path, expire, roll_back, 1)
    assert {succeeded for _, succeeded in outcomes} == {True, False}
    for table, _ in outcomes:
        assert shown(table) in states


def test_an_expiry_that_was_planned_before_a_rollback_deletes_nothing(tmp_path: Path) -> None:
    """Files that the plan calls dead are live again, and another snapshot has the number of the one to stay."""
    table = made(tmp_path, "fixed buckets")
    planned = table.plan_expire(retain_max=1, retain_min=1, older_than="0 s")
    roll_back(table)
    for _ in range(5):
        write(table)
    rows, snapshots = shown(table), table.snapshots()
    with pytest.raises(Conflict, match="a rollback has removed snapshot 5"):
        planned.run()
    assert (shown(table), table.snapshots()) == (rows, snapshots)
    assert table.verify("full", all_snapshots=True).errors == 0


@pytest.mark.nightly
def test_of_two_expiries_neither_puts_anything_back(tmp_path: Path) -> None:
    table = made(tmp_path, "fixed buckets")
    rows = shown(table)
    for table, _ in tables_after(tmp_path, expire, compact_and_expire, 1):
        assert shown(table) == rows
        assert len(table.snapshots()) == 1


@pytest.mark.in_part(7)
@pytest.mark.parametrize("kind", ["fixed buckets", "vectors"])
@pytest.mark.parametrize("rival", [expire, write, compact, compact_and_expire])
def test_a_rollback_beside_other_jobs(tmp_path: Path, kind: str, rival: Job) -> None:
    made(tmp_path, kind)
    for table, succeeded in tables_after(tmp_path, roll_back, rival, 2):
        rows = shown(table)
        assert rows
        if rival is write and not succeeded:
            assert (500, 7) in rows
