"""Staged writes of a table: what a writer is told, whose commit they become, and what a directory of them leaves."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.api.staging import Stage
from paimon_cli.errors import PartialSuccess, Refused, UsageError
from paimon_cli.jobs.staging.stage_watch import CheckpointDone
from paimon_cli.jobs.write_job import WriteSummary

KEYED: dict[str, Any] = {"columns": ["id INT NOT NULL", "v STRING"], "primary_key": "id", "bucket": 1}


def staged(table: Table, file: Path, rows: dict[int, str], **given: Any) -> str:
    file.parent.mkdir(exist_ok=True)
    table.write([{"id": id, "v": v} for id, v in rows.items()], stage=str(file), **given)
    return str(file)


def rows_of(table: Table) -> dict[int, str]:
    return {row["id"]: row["v"] for row in Table.open(table.url).scan().to_arrow().to_pylist()}


def facts(summary: WriteSummary) -> dict[str, Any]:
    names = ("rows", "delete_rows", "files", "buckets", "rows_read", "skipped_rows", "bad_cells", "missing_columns")
    return {name: getattr(summary, name) for name in (*names, "other_bucket_rows", "unordered_deletes")}


@pytest.mark.filterwarnings("ignore")
def test_a_staged_write_tells_what_the_same_write_would(tmp_path: Path) -> None:
    lines = [f"{id},{kind},{n}" for id, kind, n in [(1, "+I", 1), (2, "+I", 2), (3, "+I", "x"), (4, "-D", 4), (5, "-D", "")]]
    (tmp_path / "rows.csv").write_text(
        "id,op,n\n" + "".join(f"{line}\n" for line in [*lines, *(f"{id},+I,1" for id in range(6, 30))])
    )
    told = []
    ways: dict[str, dict[str, Any]] = {"plain": {}, "staged": {"stage": str(tmp_path / "stage")}}
    for name, given in ways.items():
        columns = ["id INT NOT NULL", "n INT", "v STRING"]
        table = Table.create(tmp_path / name, columns=columns, primary_key="id", bucket=2, options={"sequence.field": "n"})
        given |= {"op_column": "op", "on_error": "skip", "bucket": 0, "other_buckets": "skip"}
        told.append(facts(table.write(str(tmp_path / "rows.csv"), **given)))
        given = {**given, "bucket": [0, 1], "other_buckets": "refuse"}
        given |= {"stage": str(tmp_path / "all")} if name == "staged" else {}
        told.append(facts(table.write(str(tmp_path / "rows.csv"), **given)))
    assert told[:2] == told[2:]
    of_one, of_all = told[2:]
    assert of_one["other_bucket_rows"] > 0 and of_one["buckets"] == 1
    assert (of_all["rows"], of_all["delete_rows"], of_all["files"], of_all["buckets"]) == (28, 2, 2, 2)
    assert (of_all["rows_read"], of_all["skipped_rows"], of_all["bad_cells"]) == (28, 1, 1)
    assert (of_all["missing_columns"], of_all["unordered_deletes"]) == (("v",), 1)


def test_nothing_staged_is_committed_where_no_commit_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create(tmp_path / "t", **KEYED)
    file = staged(table, tmp_path / "landing" / "1", {1: "a"})

    def refuse(storage: Any) -> None:
        raise Refused("no safe commit")

    monkeypatch.setattr("paimon_cli.storage.guarded_storage.check_commits", refuse)
    with pytest.raises(Refused, match="no safe commit"):
        Table.open(table.url).stage.commit(file)
    with pytest.raises(Refused, match="no safe commit"):
        Table.open(table.url).stage.watch(str(tmp_path / "landing"), max_rounds=1)
    assert rows_of(table) == {} and Path(file).exists() and table.stage.show(file).state == "staged"


def test_all_that_are_named_are_one_commit_of_the_one_who_asks(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", **{**KEYED, "bucket": 2})
    for number in (0, 1):
        parts = [{10 * number + id: "a" for id in range(10)}] * 2
        files = [
            staged(table, tmp_path / f"{number}-{part}", rows, bucket=part, other_buckets="skip")
            for part, rows in enumerate(parts)
        ]
        summary = table.stage.commit(files, commit_user="u", commit_id=number, assume_new=number == 0)
        assert [(one.commit_user, one.commit_identifier) for one in summary.snapshots] == [("u", number)]
        assert rows_of(table) == {id: "a" for id in range(10 * number + 10)}
        assert table.stage.commit(files, commit_user="u", commit_id=number).already_committed
    assert len(table.snapshots()) == 2


@pytest.mark.parametrize("identity", [{"commit_user": "u"}, {"commit_id": 0}])
def test_half_an_identity_is_none(tmp_path: Path, identity: dict[str, Any]) -> None:
    table = Table.create(tmp_path / "t", **KEYED)
    file = staged(table, tmp_path / "1", {1: "a"})
    with pytest.raises(UsageError, match="go together"):
        table.stage.commit(file, **identity)
    assert rows_of(table) == {}


def test_what_was_staged_for_another_table_stays(tmp_path: Path) -> None:
    table, other = Table.create(tmp_path / "t", **KEYED), Table.create(tmp_path / "o", **KEYED)
    files = [staged(table, tmp_path / "1", {1: "a"}), staged(other, tmp_path / "2", {2: "b"})]
    for call in (table.stage.show, table.stage.commit, table.stage.abort):
        with pytest.raises(UsageError, match="was staged for"):
            call(files[1])
    with pytest.raises(UsageError, match="was staged for"):
        table.stage.commit(files)
    assert rows_of(table) == rows_of(other) == {}
    assert other.stage.commit(files[1]).snapshots and rows_of(other) == {2: "b"}


def watched(stage: Stage, landing: Path, **given: Any) -> list[tuple[str, str]]:
    done: list[CheckpointDone] = []
    try:
        stage.watch(str(landing), on_checkpoint=done.append, **{"max_rounds": 1, **given})
    except PartialSuccess:
        assert any(one.state == "failed" for one in done)
    return [(one.name, one.state) for one in done]


def test_every_file_of_a_checkpoint_is_checked(tmp_path: Path) -> None:
    table, other = Table.create(tmp_path / "t", **KEYED), Table.create(tmp_path / "o", **KEYED)
    landing = tmp_path / "landing"
    landing.mkdir()
    staged(table, landing / "1" / "a", {1: "a"})
    staged(other, landing / "1" / "b", {2: "b"})
    (landing / "1" / "_SUCCESS").touch()
    assert watched(table.stage, landing, order="given") == [("1", "failed")]
    assert rows_of(table) == rows_of(other) == {}


def test_a_watched_table_has_the_schema_of_each_checkpoint(tmp_path: Path) -> None:
    table, landing = Table.create(tmp_path / "t", **KEYED), tmp_path / "landing"
    staged(table, landing / "1", {1: "a"})

    def change(done: CheckpointDone) -> None:
        if done.name == "1":
            Table.open(table.url).alter.add_columns("w INT")
            Table.open(table.url).write([{"id": 2, "v": "b", "w": 2}], stage=str(landing / "2"))

    table.stage.watch(str(landing), on_checkpoint=change, max_rounds=2, interval="0 s")
    assert [row.schema_id for row in Table.open(table.url).snapshots() if row.kind == "APPEND"] == [1, 0]
    found = Table.open(table.url).scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["w"]) for row in found) == [(1, None), (2, 2)]


@pytest.mark.parametrize("order", ["given", "refuse"])
def test_a_watch_orders_and_compacts_as_it_is_asked_to(tmp_path: Path, order: str) -> None:
    table = Table.create(tmp_path / "t", **KEYED, options={"num-sorted-run.compaction-trigger": "2"})
    landing = tmp_path / "landing"
    landing.mkdir()
    for name in "ab":
        staged(table, landing / "1" / name, {1: name})
    (landing / "1" / "_SUCCESS").touch()
    for number in (2, 3, 4):
        staged(table, landing / str(number), {number: "c"})
    first = "committed" if order == "given" else "failed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = watched(table.stage, landing, order=order, compact="none")
    assert found == [("1", first), *((str(number), "committed") for number in (2, 3, 4))]
    assert rows_of(table) == {**({1: "b"} if order == "given" else {}), 2: "c", 3: "c", 4: "c"}
    assert {row.kind for row in Table.open(table.url).snapshots()} == {"APPEND"}


def test_rounds_begin_after_the_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, slept = Table.create(tmp_path / "t", **KEYED), list[float]()
    (tmp_path / "landing").mkdir()
    monkeypatch.setattr("paimon_cli.storage.injected.SystemClock.sleep", lambda _, seconds: slept.append(seconds))
    table.stage.watch(str(tmp_path / "landing"), interval="1500 ms", max_rounds=3)
    assert slept == [1.5, 1.5]


def test_partitions_of_all_staged_writes_are_marked(tmp_path: Path) -> None:
    options = {"partition.end-input-to-done": "true", "partition.mark-done-action": "success-file"}
    table = Table.create(tmp_path / "t", columns=["p STRING", "n INT"], partition_by="p", bucket=-1, options=options)
    files = []
    for p in "abc":
        table.write([{"p": p, "n": 1}], stage=str(tmp_path / p))
        files.append(str(tmp_path / p))
    table.stage.commit(files)
    assert sorted(path.parent.name for path in Path(table.url).glob("p=*/_SUCCESS")) == ["p=a", "p=b", "p=c"]
