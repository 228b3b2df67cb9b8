"""Transactions on several kinds of tables, against a dictionary; conflicts, exceptions, and what is refused."""

from __future__ import annotations

import gc
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.api.transaction import Transaction
from paimon_cli.errors import BadInput, DataConflict, NotSupported, PaimonError, StorageUnavailable, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.transaction_job import OpenTransaction
from tests.jobs.test_merge_job import KINDS, SCHEMA, create, kind, rivalled, stored
from tests.rivals import files_of
from tests.tables import data_files, named_files

Rows = dict[int, dict[str, Any]]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def a_row(i: int, points: int = 0) -> dict[str, Any]:
    return {"dt": "ab"[i % 2], "id": i, "name": f"n{i}", "points": points}


def step(t: Transaction, rows: Rows, chance: random.Random, by_day: bool) -> None:
    """One random step, in the table and in the dictionary. `by_day`: whether an overwrite replaces only the days of its rows."""
    ids = chance.sample(range(12), 3)
    known, new = [i for i in ids if i in rows], [i for i in ids if i not in rows]
    points = chance.randrange(100)
    what = chance.choice(["write", "update", "delete", "merge", "overwrite"])
    if what == "overwrite":
        t.write(table_of([a_row(i, points) for i in ids]), overwrite=True)
        days = {a_row(i)["dt"] for i in ids}
        for i in [i for i in rows if not by_day or rows[i]["dt"] in days]:
            del rows[i]
        rows.update({i: a_row(i, points) for i in ids})
    elif what == "write" and new:
        t.write(table_of([a_row(i, points) for i in new]))
        rows.update({i: a_row(i, points) for i in new})
    elif what == "update":
        t.update({"points": "points + 1"}, values={"name": "changed"}, where="id IN :ids", params={"ids": ids})
        rows.update({i: {**rows[i], "points": rows[i]["points"] + 1, "name": "changed"} for i in known})
    elif what == "delete":
        t.delete("id = :id", params={"id": ids[0]})
        rows.pop(ids[0], None)
    elif what == "merge":
        source = table_of([a_row(i, points) for i in ids])
        merge = t.merge(source, on="id").when_matched_update({"points": "points + source.points"})
        merge.when_not_matched_insert_all().execute()
        rows.update({i: {**rows[i], "points": rows[i]["points"] + points} for i in known})
        rows.update({i: a_row(i, points) for i in new})


@pytest.mark.in_part(6)
@pytest.mark.parametrize("name", KINDS)
def test_random_transactions_give_the_rows_of_a_dictionary(tmp_path: Path, name: str) -> None:
    chance = random.Random(name)
    table, rows = create(tmp_path, KINDS[name]), dict[int, dict[str, Any]]()
    for number in range(4):
        before, files, is_failing = stored(table), files_of(table.context), number == 2
        trial = dict(rows)
        transaction = table.transaction()
        try:
            with transaction as t:
                for _ in range(4):
                    step(t, trial, chance, bool(KINDS[name]["partition_by"]))
                    seen = sorted(t.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
                    assert seen == [trial[i] for i in sorted(trial)]
                    assert stored(table) == before
                if is_failing:
                    raise KeyError("stop")
        except KeyError:
            assert files_of(table.context) == files
            continue
        rows = trial
        assert stored(table) == [rows[i] for i in sorted(rows)]
        assert transaction.summary is not None
        assert len({snapshot.id for snapshot in transaction.summary.snapshots}) <= 2  # the rows, and their compaction
        assert data_files(table.context) == named_files(table.context)
    assert not [violation for violation in check_table(table.context) if violation.severity == "error"]


@pytest.fixture(params=["fixed", "append", "append with vectors"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    table = create(tmp_path, KINDS[request.param])
    table.write(table_of([a_row(i, i) for i in range(4)]))
    return table


def test_a_transaction_is_one_snapshot(table: Table) -> None:
    with table.transaction() as t:
        t.write(table_of([a_row(7, 7)]))
        t.update({"points": "points * 2"}, where="id IN (1, 7)")
        t.delete("id = 2")
        assert (t.count(), table.scan().count(), len(table.snapshots())) == (4, 4, 1)
        assert [7 in rows.to_arrow().column("id").to_pylist() for rows in (t, table)] == [True, False]
        assert t.head(2).num_rows == 2
    assert t.summary is not None and t.summary.steps == 3
    assert [snapshot.kind for snapshot in table.snapshots() if snapshot.kind != "COMPACT"] in (
        ["APPEND", "APPEND"],
        ["OVERWRITE", "APPEND"],
    )
    assert [(row["id"], row["points"]) for row in stored(table)] == [(0, 0), (1, 2), (3, 3), (7, 14)]


def test_a_commit_that_changes_the_same_rows_meanwhile_is_a_conflict(table: Table) -> None:
    other, files = Table.open(table.url), set[str]()
    with pytest.raises(PaimonError, match=r"another|changed|no longer") as raised, table.transaction() as t:
        t.update({"points": "points + 100"}, where="id = 1")
        other.update({"points": "points + 1"}, where="id = 1")
        files = files_of(Table.open(table.url).context)
    assert raised.value.exit_code == 5
    assert stored(table)[1]["points"] == 2
    assert data_files(table.context) == named_files(table.context)
    assert {path for path in files_of(table.context) if path.startswith("snapshot/")} <= files


def test_a_commit_at_the_moment_of_publication_is_a_conflict(table: Table) -> None:
    other = Table.open(table.url)
    mine = rivalled(table, lambda: other.update({"points": "points + 1"}, where="id = 1"))
    with pytest.raises(PaimonError) as raised, mine.transaction() as t:
        t.update({"points": "points + 100"}, where="id = 1")
        t.delete("id = 2")
    assert raised.value.exit_code == 5
    assert [row["points"] for row in stored(table)] == [0, 2, 2, 3]
    assert data_files(table.context) == named_files(table.context)


def test_a_transaction_in_the_block_of_another_commits_for_itself(table: Table) -> None:
    with pytest.raises(PaimonError) as raised, table.transaction() as outer:
        outer.update({"points": "points + 100"}, where="id = 1")
        with table.transaction() as inner:
            inner.update({"points": "points + 1"}, where="id = 1")
    assert raised.value.exit_code == 5
    assert stored(table)[1]["points"] == 2
    assert data_files(table.context) == named_files(table.context)


def test_commits_of_other_rows_are_no_conflict(tmp_path: Path) -> None:
    table = create(tmp_path, KINDS["partitioned"])
    table.write(table_of([a_row(i, i) for i in range(4)]))
    with table.transaction() as t:
        t.update({"points": "points + 100"}, where="dt = 'a'")
        Table.open(table.url).update({"points": "points + 1"}, where="dt = 'b'")
    assert [row["points"] for row in stored(table)] == [100, 2, 102, 4]


@pytest.mark.parametrize("merges_again", [False, True])
def test_rows_that_a_merge_inserted_must_still_be_new(tmp_path: Path, merges_again: bool) -> None:
    table = create(tmp_path, KINDS["append"])
    with pytest.raises(DataConflict), table.transaction() as t:
        for _ in range(1 + merges_again):  # the second one inserts nothing
            t.merge(table_of([a_row(1)]), on="id").when_not_matched_insert_all().execute()
        Table.open(table.url).write(table_of([a_row(1)]))
    assert len(stored(table)) == 1


def test_a_failed_publication_leaves_no_file(table: Table) -> None:
    before = files_of(table.context)

    def fail() -> None:
        raise StorageUnavailable("the disk is gone")

    with pytest.raises(StorageUnavailable, match="the disk is gone"), rivalled(table, fail).transaction() as t:
        t.write(table_of([a_row(8)]))
        t.delete("id = 1")
    assert files_of(table.context) == before


def test_an_engine_that_cannot_be_opened_for_the_commit_leaves_no_file(table: Table) -> None:
    before = files_of(table.context)
    with pytest.raises(UsageError, match="soon"), table.transaction() as t:
        t.write(table_of([a_row(8)]))
        table.runtime = replace(table.runtime, spark_threshold="soon")
    assert files_of(table.context) == before


def test_a_step_that_fails_leaves_the_transaction_as_it_was(table: Table) -> None:
    with table.transaction() as t:
        t.write(table_of([a_row(8)]))
        with pytest.raises(BadInput):
            t.update(values={"points": "x"}, where="true")
        with pytest.raises(BadInput):
            t.update({"points": "1 / (id - 8)"}, where="true")
        assert t.count() == 5
    assert len(stored(table)) == 5
    assert data_files(table.context) == named_files(table.context)


def test_a_repeated_transaction_counts_once(table: Table) -> None:
    for repeated in (False, True):
        with table.transaction(commit_user="u", commit_id=3) as t:
            t.update({"points": "points + 1"}, where="id = 1")
        assert t.summary is not None and t.summary.already_committed == repeated
    assert stored(table)[1]["points"] == 2
    assert data_files(table.context) == named_files(table.context)


def test_a_transaction_without_changes_commits_nothing(table: Table) -> None:
    with table.transaction() as t:
        t.delete("id = 77")
    assert t.summary is not None and (t.summary.steps, t.summary.snapshots) == (0, ())
    assert len(table.snapshots()) == 1


def test_other_commands_are_refused(table: Table) -> None:
    with table.transaction() as t:
        for name in ("alter", "compact", "transaction", "expire", "truncate", "tags", "drop", "with_options"):
            with pytest.raises(NotSupported, match=f"{name} in a transaction"):
                getattr(t, name)
        with pytest.raises(AttributeError):
            t.nothing  # noqa: B018
        with pytest.raises(NotSupported, match="a staged write in a transaction: its rows wait for another commit"):
            t.write(table_of([a_row(1)]), stage="f.stage")
        with pytest.raises(NotSupported, match="a compaction"):
            t.update(values={"points": 1}, where="true", compact="after")
        with pytest.raises(UsageError, match="checked as a whole"):
            t.write(table_of([a_row(1)]), read_snapshot=1)
        with pytest.raises(UsageError, match="checked as a whole"):
            t.delete("true", data_conflict_check="partition")
        with pytest.raises(UsageError, match="has no identity"):
            t.write(table_of([a_row(1)]), commit_user="u")
    merge_later = table.transaction()
    with merge_later as later:
        merge = later.merge(table_of([a_row(9)]), on="id").when_not_matched_insert_all()
    for use in (lambda: t.count(), lambda: t.delete("true"), merge.execute, lambda: t.__enter__()):
        with pytest.raises(UsageError, match=r"ended|begun already"):
            use()
    with pytest.raises(UsageError, match="has not begun"):
        table.transaction().count()
    assert len(table.snapshots()) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "1", "sequence.snapshot-ordering": "true", "write-only": "true"},
        {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"},
    ],
)
def test_tables_whose_steps_would_lose_their_order_are_refused(tmp_path: Path, options: dict[str, str]) -> None:
    table = create(tmp_path, {**kind(["id"]), "options": options})
    with pytest.raises(NotSupported, match="a transaction on"), table.transaction():
        pass


def test_partitions_are_marked_as_done_after_the_commit(tmp_path: Path) -> None:
    table = create(tmp_path, kind(["dt", "id"], ["dt"], bucket="1", options={"partition.end-input-to-done": "true"}))
    options = {"partition.mark-done-action": "success-file"}
    table = Table(replace(table.context, given=options), table.runtime)
    with table.transaction() as t:
        t.write(table_of([a_row(1)]))
        assert not list((Path(table.url) / "dt=b").glob("_SUCCESS"))
    assert list((Path(table.url) / "dt=b").glob("_SUCCESS"))


def test_what_an_overwrite_replaces_must_not_change_meanwhile(tmp_path: Path) -> None:
    """Also rows in buckets that the transaction does not write to: they would survive the overwrite."""
    table = create(tmp_path, kind(["dt", "id"], ["dt"], bucket="4"))
    table.write(table_of([a_row(i) for i in range(8)]))
    with table.transaction() as t:
        t.write(table_of([a_row(1, 7)]), overwrite=True)
        t.write(table_of([a_row(3, 8)]))
        assert t.count() == 6
        Table.open(table.url).write(table_of([a_row(10)]))  # the other day
    assert t.summary is not None and t.summary.snapshots[0].commit_kind == "OVERWRITE"
    assert [(row["id"], row["points"]) for row in stored(table) if row["dt"] == "b"] == [(1, 7), (3, 8)]
    before, files = stored(table), files_of(table.context)
    for partition in (None, {"dt": "b"}):
        with pytest.raises(DataConflict), table.transaction() as t:
            t.write(table_of([a_row(1, 9)]), overwrite=True, partition=partition)
            Table.open(table.url).write(table_of([a_row(i) for i in (5, 7, 9, 11, 13)]))
    after = [row for row in stored(table) if row["id"] not in (5, 7, 9, 11, 13)]
    assert after == before and len(files_of(table.context)) > len(files)
    assert not [violation for violation in check_table(table.context) if violation.severity == "error"]


def test_rows_that_only_the_first_step_marks_are_gone(tmp_path: Path) -> None:
    """In a bucket in which no file changes."""
    table = create(tmp_path, KINDS["append with vectors"])
    table.write(table_of([a_row(i) for i in range(4)]))
    with table.transaction() as t:
        t.delete("id = 2")
    with table.transaction() as t:
        t.delete("id = 1")
        t.delete("id = 0")
    assert [row["id"] for row in stored(table)] == [3]


def test_what_each_overwrite_replaces_must_not_change_meanwhile(tmp_path: Path) -> None:
    """Also what the first of two has replaced, in a bucket to which the transaction does not write."""
    table = create(tmp_path, kind(["dt", "id"], ["dt"], bucket="16"))
    table.write(table_of([a_row(i) for i in range(2)]))
    with pytest.raises(DataConflict), table.transaction() as t:
        t.write(table_of([a_row(1, 9)]), overwrite=True)
        t.write(table_of([a_row(0, 9)]), overwrite=True)
        Table.open(table.url).write(table_of([a_row(5)]))
    assert [row["points"] for row in stored(table)] == [0, 0, 0]


@pytest.mark.parametrize("name", ["dynamic", "any partition", "vectors"])
def test_a_transaction_may_empty_a_table(tmp_path: Path, name: str) -> None:
    table = create(tmp_path, KINDS[name])
    table.write(table_of([a_row(i) for i in range(6)]))
    table.delete("id = 0")
    whole = Table(table.context.with_options({"dynamic-partition-overwrite": "false"}), table.runtime)
    with whole.transaction() as t:
        t.write(table_of([]), overwrite=True, allow_empty=True)
        assert t.count() == 0
        t.write(table_of([a_row(5)]))
    assert stored(table) == [a_row(5)]
    table.write(table_of([a_row(i, 1) for i in range(6)]))
    assert stored(table) == [a_row(i, 1) for i in range(6)]
    assert not [violation for violation in check_table(table.context) if violation.severity == "error"]


def test_a_transaction_whose_block_never_ends_leaves_no_file(table: Table) -> None:
    before = files_of(table.context)
    abandoned = table.transaction()
    abandoned.__enter__()
    abandoned.write(table_of([a_row(7, 7)]))
    assert files_of(table.context) != before
    del abandoned
    gc.collect()
    assert files_of(table.context) == before


def opened_of(t: Transaction) -> OpenTransaction:
    assert t._open is not None
    return t._open


def test_rows_that_the_table_had_are_found_by_their_ids_beside_new_ones(tmp_path: Path) -> None:
    """The new ones get theirs with the commit, and it is known that these are greater."""
    table = create(tmp_path, kind(options={"row-tracking.enabled": "true"}))
    table.write(table_of([a_row(i) for i in range(4)]))
    with table.transaction() as t:
        t.write(table_of([a_row(i) for i in (4, 5)]))
        t.update({"points": "points + 1"}, where="_ROW_ID = 3")
        with pytest.raises(NotSupported, match="they get their ids with its commit"):
            t.update({"points": "points + 1"}, where="_ROW_ID = 4")
    assert [row["points"] for row in stored(table)] == [0, 0, 0, 1, 0, 0]
    ids = table.scan(columns=["_ROW_ID"]).to_arrow().column("_ROW_ID").to_pylist()
    assert sorted(ids) == list(range(6))


def test_all_that_an_overwrite_replaced_is_noted(tmp_path: Path) -> None:
    """Without a static partition it is what its snapshots touch; in a table without dynamic overwrites it is everything."""
    table = create(tmp_path, kind(["dt", "id"], ["dt"], bucket="1"))
    table.write(table_of([a_row(i) for i in range(4)]))
    a, b = sorted({file.partition for file in bucket_files(table.context, table.context.snapshots.latest()).values()})
    with table.transaction() as t:
        t.write(table_of([a_row(4)]))
        t.write(table_of([a_row(5)]))
        opened = opened_of(t)
        opened.replaced(opened.steps(), None)
        (both,) = opened.replaced_partitions
        assert [both(partition) for partition in (a, b, b"other")] == [True, True, False]
        opened.replaced_partitions.clear()


def test_an_overwrite_of_the_whole_table_replaces_what_others_write_to_new_partitions(tmp_path: Path) -> None:
    options = {"dynamic-partition-overwrite": "false"}
    table = create(tmp_path, kind(["dt", "id"], ["dt"], bucket="1", options=options))
    table.write(table_of([a_row(i) for i in range(2)]))
    with pytest.raises(DataConflict), table.transaction() as t:
        t.write(table_of([a_row(1, 9)]), overwrite=True)
        Table.open(table.url).write(table_of([{**a_row(9), "dt": "new"}]))
    assert [row["id"] for row in stored(table)] == [0, 1, 9]


def test_files_that_tasks_stored_for_any_step_are_deleted(tmp_path: Path) -> None:
    """On a cluster, this process learns of them only by what the steps have committed."""
    table = create(tmp_path, KINDS["fixed"])
    with table.transaction() as t:
        for number in range(3):
            t.write(table_of([a_row(number)]))
        opened, there = opened_of(t), data_files(table.context)
        written = opened._written_elsewhere()
        assert {path.removeprefix(f"{table.context.layout.root}/") for path in written} == there and len(there) == 3
        opened.pending.created.clear()
        opened.discard(written[1:])
        assert len(data_files(table.context)) == 2
        opened.discard()
    assert not data_files(table.context)


def test_a_transaction_whose_changes_cannot_be_told_leaves_no_file(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files_of(table.context)

    def fail(*_: object) -> None:
        raise StorageUnavailable("the lists cannot be read")

    with pytest.raises(StorageUnavailable, match="the lists"), table.transaction() as t:
        t.write(table_of([a_row(8)]))
        monkeypatch.setattr(OpenTransaction, "_changelog", fail)
    assert files_of(table.context) == before


def test_the_changes_of_all_steps_are_in_the_changelog(tmp_path: Path) -> None:
    """Several of one bucket, and those after a step that has none: an overwrite."""
    table = create(tmp_path, KINDS["input"])
    table.write(table_of([a_row(i) for i in range(2)]))
    with table.transaction() as t:
        t.write(table_of([a_row(7)]))
        t.update({"points": "points + 1"}, where="id = 1")
        t.write(table_of([a_row(8)]), overwrite=True)
        t.write(table_of([a_row(9)]))
    changes = [(row["rowkind"], row["id"]) for row in table.changelog(2, 2).to_arrow().to_pylist()]
    assert changes == [("+I", 7), ("-U", 1), ("+U", 1), ("+I", 9)]
    assert [row["id"] for row in stored(table)] == [8, 9]
