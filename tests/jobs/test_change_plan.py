"""Plans of writes, updates and deletes: what they show is what the run does, or nothing is committed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.api.maintenance import Planned
from paimon_cli.errors import BadInput, DataConflict, NotFound
from paimon_cli.ingest.row_sources import JsonObjects
from paimon_cli.jobs import change_plan
from paimon_cli.read.split_reader import read_split

COLUMNS = ["id BIGINT NOT NULL", "name STRING", "d DATE"]


def files_below(root: str) -> set[str]:
    return {str(path) for path in Path(root).rglob("*") if path.is_file()}


def rows_of(*rows: dict[str, Any]) -> JsonObjects:
    return JsonObjects(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


@pytest.fixture(params=["keyed", "append", "vectors", "postponed", "ordered"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    options = {
        "keyed": {"bucket": "2"},
        "append": {},
        "vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
        "postponed": {"bucket": "-2"},
        "ordered": {"bucket": "1", "sequence.snapshot-ordering": "true", "write-only": "true"},
    }[request.param]
    key = None if request.param == "append" else ["id"]
    table = Table.create(tmp_path / "wh" / "shop.db" / "t", columns=COLUMNS, options=options, primary_key=key)
    table.write([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}])
    table.compact()
    return table


def contents(table: Table) -> list[tuple[int, str]]:
    return sorted((row["id"], row["name"]) for row in table.to_arrow().to_pylist())


def test_a_plan_shows_what_the_run_does_and_writes_nothing(table: Table) -> None:
    before = files_below(table.url)
    update = table.plan_update({"name": "upper(name)"}, where="id < 3")
    assert (update.plan.rows, update.plan.snapshot_id) == (2, table.snapshot_id)
    assert update.plan.files >= 1 and update.plan.size > 0
    assert update.plan.before is not None and update.plan.after is not None
    assert {row["name"] for row in update.plan.before.to_pylist()} == {"a", "b"}
    assert {row["name"] for row in update.plan.after.to_pylist()} == {"A", "B"}
    delete = table.plan_delete(where="id = 3")
    assert (delete.plan.rows, delete.plan.after) == (1, None)
    write = table.plan_write(rows_of({"id": 3, "name": "z"}, {"id": 4, "name": "d", "d": "2026-11-29"}))
    assert write.plan.rows == 2
    assert write.plan.existing_rows == (1 if table.primary_keys else None)
    assert files_below(table.url) == before
    update.run()
    assert contents(table)[:2] == [(1, "A"), (2, "B")]


@pytest.mark.parametrize("kind", ["write", "update", "delete"])
def test_any_commit_in_between_refuses_the_run(table: Table, kind: str) -> None:
    planned: dict[str, Callable[[], Planned[Any, Any]]] = {
        "write": lambda: table.plan_write(rows_of({"id": 9, "name": "z"})),
        "update": lambda: table.plan_update(values={"name": "z"}, where="id = 1"),
        "delete": lambda: table.plan_delete(where="id = 1"),
    }
    found = planned[kind]()
    Table.open(table.url).write([{"id": 8, "name": "other"}])
    snapshot, files = table.snapshot_id, files_below(table.url)
    with pytest.raises(DataConflict, match="the change was planned at snapshot"):
        found.run()
    assert (table.snapshot_id, files_below(table.url)) == (snapshot, files)


def test_a_commit_between_the_look_of_a_run_and_its_publication_refuses_it(tmp_path: Path) -> None:
    """The run is bound in the commit itself. No other check would refuse it: the data conflict check of writes is off."""
    table = Table.create(tmp_path / "t", columns=COLUMNS, primary_key=["id"], options={"bucket": "4"})
    table.write([{"id": number, "name": "a"} for number in range(8)])
    planned = table.plan_write(rows_of({"id": 1, "name": "z"}))
    storage = table.context.storage
    publish, others = storage.put_if_absent, list[Any]()

    def raced(path: str, content: bytes) -> Any:
        if path.endswith("/snapshot-2") and not others:
            others.append(Table.open(table.url).write([{"id": 100, "name": "o"}]))
        return publish(path, content)

    object.__setattr__(storage, "put_if_absent", raced)
    with pytest.raises(DataConflict):
        planned.run()
    assert others and table.scan(where="name = 'z'").count() == 0


def test_a_plan_of_an_empty_table_is_bound_to_its_emptiness(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=COLUMNS, primary_key=["id"], options={"bucket": "1"})
    first, second = (table.plan_write(rows_of({"id": number})) for number in (1, 2))
    assert (first.plan.snapshot_id, first.plan.existing_rows) == (None, 0)
    assert table.plan_delete(where="true").plan.rows == 0
    first.run()
    with pytest.raises(DataConflict):
        second.run()


def test_a_plan_names_all_bad_cells_of_its_rows(table: Table) -> None:
    with pytest.raises(BadInput) as caught:
        table.plan_write(rows_of({"id": "x"}, {"id": 1, "d": "yesterday"}))
    assert caught.value.details["bad_cells"] == 2
    with pytest.raises(BadInput, match="id"):
        table.plan_write(rows_of({"name": "no key"}))


def test_equal_keys_of_the_input_are_one_existing_row(tmp_path: Path) -> None:
    table = Table.create(
        tmp_path / "t", columns=["a STRING NOT NULL", "b DECIMAL(9,2) NOT NULL", "v INT"], primary_key=["a", "b"], bucket=1
    )
    table.write(rows_of({"a": "x", "b": "1.50", "v": 1}, {"a": "y", "b": "2", "v": 1}, {"a": "x", "b": "9", "v": 1}))
    same = {"a": "x", "b": "1.5", "v": 2}
    assert table.plan_write(rows_of(same, same, {"a": "x", "b": "3", "v": 1})).plan.existing_rows == 1


KEY_VALUES = {
    **{"STRING": "it's `x`", "INT": 7, "DATE": "2026-11-29", "DECIMAL(9,2)": "1.50", "BOOLEAN": True, "DOUBLE": 0.1},
    **{"TIMESTAMP(9)": "2026-11-29T01:02:03.123456789", "TIMESTAMP_LTZ(3)": "2026-11-29T01:02:03Z", "BYTES": "00ff"},
}


@pytest.mark.parametrize("key", KEY_VALUES)
def test_keys_of_each_type_are_found(tmp_path: Path, key: str) -> None:
    columns = [f"`a b` {key} NOT NULL", "v INT"]
    table = Table.create(tmp_path / "t", columns=columns, primary_key=["a b"], options={"bucket": "1"})
    table.write(rows_of({"a b": KEY_VALUES[key], "v": 1}))
    assert table.plan_write(rows_of({"a b": KEY_VALUES[key], "v": 2})).plan.existing_rows == 1


@pytest.mark.parametrize("key", KEY_VALUES)
def test_keys_with_a_null_are_found_where_keys_may_have_one(tmp_path: Path, key: str) -> None:
    options = {"bucket": "1", "primary-key.nullable": "true"}
    columns = [f"`a b` {key}", "n BIGINT", "v INT"]
    table = Table.create(tmp_path / "t", columns=columns, primary_key=["a b", "n"], options=options)
    keys = [{"a b": value, "n": number} for value in (KEY_VALUES[key], None) for number in (None, 7)]
    table.write(rows_of(*keys, {"a b": None, "n": 8}))
    assert table.plan_write(rows_of(*keys, *keys)).plan.existing_rows == 4
    assert table.plan_write(rows_of({"a b": None, "n": 9})).plan.existing_rows == 0


def test_a_plan_leaves_out_the_rows_that_a_run_does(tmp_path: Path) -> None:
    """Bad rows that are skipped, rows of other writers' buckets, and deletes that the table ignores."""
    options = {"bucket": "2", "ignore-delete": "true"}
    table = Table.create(tmp_path / "t", columns=COLUMNS, primary_key=["id"], options=options)
    table.write([{"id": number, "name": "a"} for number in range(10)])
    given = rows_of(*({"id": number, "name": "z"} for number in range(12)), {"id": 1, "d": "yesterday"}, {"id": "x"})
    for on_error in ("skip", str(tmp_path / "bad.csv")):
        own = [table.plan_write(given, bucket=[bucket], other_buckets="skip", on_error=on_error) for bucket in (0, 1)]
        assert sum(found.plan.rows for found in own) == 12 and all(found.plan.rows for found in own)
        assert sum(found.plan.existing_rows or 0 for found in own) == 10
    assert not (tmp_path / "bad.csv").exists()
    deleted = table.plan_write(rows_of({"id": 1}), op="delete").plan
    assert (deleted.rows, deleted.existing_rows, deleted.after) == (0, 0, None)
    kinds = table.plan_write(rows_of({"id": 1, "k": "-D"}, {"id": 2, "k": "+I"}), op_column="k").plan
    assert (kinds.rows, kinds.existing_rows) == (1, 1)
    assert own[0].run().rows_read == own[0].plan.rows


@pytest.mark.parametrize("options", [{"deletion-vectors.enabled": "true"}, {"merge-engine": "first-row"}])
def test_a_plan_sees_rows_that_readers_do_not_see_yet(tmp_path: Path, options: dict[str, str]) -> None:
    """A run changes and replaces them, too."""
    options = {"bucket": "1", "write-only": "true", **options}
    table = Table.create(tmp_path / "t", columns=COLUMNS, primary_key=["id"], options=options)
    table.write([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    assert not contents(table)
    assert table.plan_write(rows_of({"id": 2, "name": "z"}, {"id": 3, "name": "z"})).plan.existing_rows == 1
    if "merge-engine" not in options:
        found = table.plan_update({"name": "upper(name)"}, where="id > 1").plan
        assert (found.rows, found.files) == (1, 1) and found.after is not None
        assert found.after.column("name").to_pylist() == ["B"]


def test_a_plan_names_bad_rows_among_good_ones_and_a_table_that_is_gone(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=COLUMNS, primary_key=["id"], options={"bucket": "1"})
    for number in range(3):
        (tmp_path / f"rows-{number}.jsonl").write_text(f'{{"id": {number}, "d": "{"no" if number else "2026-01-01"}"}}\n')
    with pytest.raises(BadInput, match="rows-1") as caught:
        table.plan_write(str(tmp_path / "rows-*.jsonl"))
    assert caught.value.details["bad_cells"] == 2
    shutil.rmtree(table.url)
    plans: list[Callable[[], object]] = [lambda: table.plan_write(rows_of({"id": 1})), lambda: table.plan_delete(where="id = 1")]
    for plan in plans:
        with pytest.raises(NotFound):
            plan()


def test_a_plan_counts_the_files_with_changing_rows_and_reads_the_numbers_of_rows(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=["id BIGINT", "n BIGINT"], options={"row-tracking.enabled": "true"})
    for number in range(3):
        table.write([{"id": number, "n": 7}, {"id": number + 10, "n": 8}])
    found = table.plan_update({"n": "_ROW_ID"}, where="id % 10 = 2")
    assert found.plan.after is not None and found.plan.after.column("n").to_pylist() == [4, 5]
    removed = table.plan_delete(where="id % 10 = 2").plan
    assert (found.plan.rows, found.plan.files, removed.files) == (2, 1, 1) and removed.size == found.plan.size
    done = found.run()
    assert (done.rows, done.removed_files, table.scan(where="id = 2").to_arrow()["n"].to_pylist()) == (2, 1, [4])


def test_a_plan_reads_the_buckets_of_its_keys_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create(tmp_path / "t", columns=COLUMNS, primary_key=["id"], options={"bucket": "8"})
    table.write([{"id": number, "name": "a"} for number in range(100)])
    read = list[int]()

    def noted(context: Any, split: Any, *more: Any) -> Any:
        read.append(split.bucket)
        return read_split(context, split, *more)

    monkeypatch.setattr(change_plan, "read_split", noted)
    assert table.plan_write(rows_of({"id": 5, "name": "z"})).plan.existing_rows == 1
    assert len(read) == 1


def test_a_bound_change_has_one_attempt_and_a_transaction_is_bound_as_a_whole(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=COLUMNS, primary_key=["id"], options={"bucket": "2"})
    table.write([{"id": 1, "name": "a"}])
    bound = table.only_on(table.snapshot_id)
    with bound.transaction() as t:
        t.update(values={"name": "b"}, where="id = 1")
        t.write([{"id": 2, "name": "c"}])
    assert contents(table) == [(1, "b"), (2, "c")]
    with pytest.raises(DataConflict), bound.transaction() as t:
        t.delete(where="true")
    with pytest.raises(DataConflict):
        bound.merge([{"id": 1, "name": "x"}], on=["id"]).when_matched_update_all().execute()
    with pytest.raises(DataConflict):
        bound.write([{"id": 3, "name": "x"}], overwrite=True)
    assert contents(table) == [(1, "b"), (2, "c")]
    table.only_on(table.snapshot_id).merge([{"id": 1, "name": "x"}], on=["id"]).when_matched_update_all().execute()
    assert contents(table)[0] == (1, "x")


def test_a_plan_is_not_carried_out_on_another_commit_with_the_number_of_its_snapshot(tmp_path: Path) -> None:
    """After a rollback numbers are used again, and what the plan has shown is gone."""
    table = Table.create(tmp_path / "t", columns=COLUMNS, primary_key=["id"], options={"bucket": "2"})
    table.write([{"id": 1, "name": "a"}])
    table.write([{"id": 2, "name": "b"}])
    planned = table.plan_delete(where="true")
    other = Table.open(table.url)
    other.rollback(1)
    other.write([{"id": 3, "name": "c"}])
    with pytest.raises(DataConflict, match="planned at snapshot 2"):
        planned.run()
    assert contents(table) == [(1, "a"), (3, "c")]
    table.plan_delete(where="true").run()
    assert contents(table) == []
