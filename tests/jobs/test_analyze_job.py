"""`analyze`: what is counted, and the statistics file that Java reads with each of its commits."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.api.table import Table
from paimon_cli.commit.committer import Committer
from paimon_cli.errors import CommitUnknown, PaimonError, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs import analyze_job
from paimon_cli.jobs.analyze_job import analyze, commit_analysis
from paimon_cli.metadata.snapshot import ANALYZE
from paimon_cli.pieces import PIECES
from tests.rivals import Busy, beside, raising
from tests.tables import make_table, write

COLUMNS = {
    **{"id": "INT NOT NULL", "v": "STRING", "d": "DECIMAL(10, 2)", "t": "TIMESTAMP(3)", "day": "DATE"},
    **{"f": "DOUBLE", "y": "BYTES", "tags": "ARRAY<INT>"},
}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "v": "é", "d": "1.50", "t": "2020-01-01T00:00:00", "day": "2020-01-02", "f": 1.5, "y": "6162", "tags": [1]},
    {"id": 2, "v": None, "d": "-3.5", "t": "2021-01-01T10:00:01.5", "day": "1969-12-31", "f": "NaN", "y": "61", "tags": None},
    {"id": 3, "v": "abc", "d": None, "t": None, "day": None, "f": None, "y": None, "tags": []},
]


def made(folder: Path) -> TableContext:
    context = make_table(folder / "t", COLUMNS, ["id"])
    write(context, ROWS)
    return context


def statistics(context: TableContext) -> dict[str, Any]:
    latest = context.snapshots.latest()
    assert latest is not None and latest.statistics is not None
    return dict(json.loads(Path(context.layout.statistics_directory, latest.statistics).read_text()))


def test_the_file_holds_what_java_reads(tmp_path: Path) -> None:
    context = made(tmp_path)
    write(context, ROWS[:1])
    analysis = analyze(context)
    (day,) = (column for column in analysis.columns if column.name == "day")
    assert (day.low, day.high) == ("1969-12-31", "2020-01-02"), "what people see is a date"
    (snapshot,) = commit_analysis(context, analysis)
    assert (snapshot.commit_kind, snapshot.delta_record_count, snapshot.operation) == (ANALYZE, 0, None)
    found = statistics(context)
    stored = sum(entry.file.file_size for entry in context.manifests.live_entries(snapshot))
    assert found["mergedRecordSize"] == stored * 3 // 4, "one of four stored rows is hidden"
    assert {name: found[name] for name in ("snapshotId", "schemaId", "mergedRecordCount")} == {
        "snapshotId": 2,
        "schemaId": 0,
        "mergedRecordCount": 3,
    }
    assert found["colStats"] == {
        "id": {"colId": 0, "distinctCount": 3, "min": "1", "max": "3", "nullCount": 0, "avgLen": 4, "maxLen": 4},
        "v": {"colId": 1, "distinctCount": 2, "nullCount": 1, "avgLen": 3, "maxLen": 3},
        "d": {"colId": 2, "min": "-3.50", "max": "1.50", "nullCount": 1, "avgLen": 8, "maxLen": 8},
        "t": {
            **{"colId": 3, "distinctCount": 2, "min": "2020-01-01 00:00:00", "max": "2021-01-01 10:00:01.5"},
            **{"nullCount": 1, "avgLen": 8, "maxLen": 8},
        },
        "day": {"colId": 4, "distinctCount": 2, "min": "-1", "max": "18263", "nullCount": 1, "avgLen": 4, "maxLen": 4},
        "f": {"colId": 5, "distinctCount": 2, "min": "1.5", "max": "1.5", "nullCount": 1, "avgLen": 8, "maxLen": 8},
        "y": {"colId": 6, "distinctCount": 2, "nullCount": 1, "avgLen": 2, "maxLen": 2},
        "tags": {"colId": 7, "nullCount": 1, "avgLen": 8, "maxLen": 8},
    }
    assert list(check_table(context)) == []


def test_statistics_stay_with_later_snapshots_until_the_schema_changes(tmp_path: Path) -> None:
    context = made(tmp_path)
    (snapshot,) = commit_analysis(context, analyze(context, ["id"]))
    write(context, ROWS)
    assert statistics(context) and (context.snapshots.latest() or snapshot).statistics == snapshot.statistics
    Table.open(context.url).alter.add_column("more INT")
    write(TableContext.open(context.url), ROWS)
    latest = context.snapshots.latest()
    assert latest is not None and latest.statistics is None


def test_rows_alone_and_chosen_columns(tmp_path: Path) -> None:
    context = made(tmp_path)
    write(context, ROWS[:2])
    table = Table.open(context.url)
    assert (table.plan_analyze(only_rows=True).plan.rows, table.plan_analyze(only_rows=True).plan.columns) == (3, ())
    assert [column.name for column in table.plan_analyze(columns="v,id").plan.columns] == ["v", "id"]
    assert table.analyze(columns=["v"]).snapshots[0].id == 3
    with pytest.raises(UsageError):
        table.plan_analyze(columns="v", only_rows=True)
    with pytest.raises(UsageError, match="nothing to analyze"):
        analyze(make_table(tmp_path / "empty", COLUMNS, ["id"]))


def test_years_that_java_does_not_read_are_left_out(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"t": "TIMESTAMP(3)"}, [], bucket=-1)
    write(context, [{"t": "2020-01-01T00:00:00"}, {"t": "+10000-01-01T00:00:00"}])
    assert [(column.low, column.high) for column in analyze(context).columns] == [(None, None)]


def test_many_values_are_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyze_job, "_HASHES", 256)
    context = make_table(tmp_path / "t", {"n": "BIGINT"}, [], bucket=-1)
    write(context, [{"n": number % 5000} for number in range(10_000)])
    (column,) = analyze(context).columns
    assert column.distinct_count is not None and 4000 < column.distinct_count < 6000


def test_batches_and_files_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is greatest, least, longest or null in one of them stays so after the next one."""
    context = make_table(tmp_path / "t", {"n": "INT", "v": "STRING", "f": "DOUBLE"}, [], bucket=-1)
    cells = [(4, "a", 2.5), (None, "longest", 9.5), (9, None, "NaN"), (1, "b", None), (None, None, -7.5), (4, "cc", 2.5)]
    for part in (cells[:4], cells[4:]):
        write(context, [dict(zip(context.schema.field_names, row, strict=True)) for row in part])
    monkeypatch.setattr(PIECES, "batch_rows", 1)
    n, v, f = analyze(context).columns
    assert (n.null_count, n.distinct_count, n.low, n.high) == (2, 3, "1", "9")
    assert (v.null_count, v.distinct_count, v.avg_length, v.max_length) == (2, 4, 3, 7)
    assert (f.null_count, f.low, f.high) == (1, "-7.5", "9.5")


def test_the_rows_are_those_of_the_snapshot_that_is_named(tmp_path: Path) -> None:
    """Another job commits before each call of the storage."""
    make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    write(TableContext.open(str(tmp_path / "t")), [{"id": 0}])
    seen: set[tuple[bool, int]] = set()
    for number in range(1, 30):
        url = str(shutil.copytree(tmp_path / "t", tmp_path / str(number)))
        busy = Busy(number, partial(write, TableContext.open(url), [{"id": 1}]))
        found = analyze(replace(TableContext.open(url), storage=busy))
        assert (found.rows, found.columns[0].high) == (found.snapshot_id, str(found.snapshot_id - 1))
        seen.add((busy.has_acted, found.snapshot_id))
    assert seen == {(True, 1), (True, 2), (False, 1)}


def test_columns_that_are_newer_than_the_snapshot(tmp_path: Path) -> None:
    table = Table.open(made(tmp_path).url)
    table.alter.rename_column("v", "w")
    table.alter.add_column("more INT")
    columns = {column.name: column for column in analyze(TableContext.open(table.url)).columns}
    assert set(columns) >= {"id", "w", "more"} and columns["more"].null_count == 3


def test_other_commits_do_not_matter(tmp_path: Path) -> None:
    context = made(tmp_path)
    found = analyze(context)
    (snapshot,) = commit_analysis(beside(context, lambda: write(context, ROWS)), found)
    assert snapshot.id == 3 and statistics(context)["snapshotId"] == 1


@pytest.mark.parametrize(("failure", "files"), [(StorageUnavailable("no", "today"), 0), (CommitUnknown("perhaps", "unclear"), 1)])
def test_a_file_that_no_snapshot_can_name_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: PaimonError, files: int
) -> None:
    context = made(tmp_path)
    monkeypatch.setattr(Committer, "commit_statistics", lambda *_: raising(failure)())
    with pytest.raises(type(failure)):
        commit_analysis(context, analyze(context, ["id"]))
    assert len(list(Path(context.layout.statistics_directory).iterdir())) == files


def test_a_column_of_nulls_has_no_ends_and_no_length(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id"])
    write(context, [{"id": number} for number in range(3)])
    (snapshot,) = commit_analysis(context, analyze(context))
    found = statistics(context)["colStats"]
    fixed = {"d": 8, "t": 8, "day": 4, "f": 8, "v": 0, "y": 0, "tags": 8}
    for name, length in fixed.items():
        assert {"min", "max"}.isdisjoint(found[name]) and found[name]["nullCount"] == 3
        assert (found[name]["avgLen"], found[name]["maxLen"]) == (length, length), name
        assert found[name].get("distinctCount") == (None if name in ("d", "tags") else 0), name
    assert found["id"]["nullCount"] == 0 and snapshot.id == 2


def test_lengths_are_those_of_the_values_that_are_there(tmp_path: Path) -> None:
    """The average is rounded up, as by Spark."""
    context = make_table(tmp_path / "t", {"v": "STRING", "y": "BYTES"}, [], bucket=-1)
    texts = ["a", None, "abcd", "", "é", None]
    write(context, [{"v": text, "y": None if text is None else text.encode().hex()} for text in texts])
    commit_analysis(context, analyze(context))
    for column in statistics(context)["colStats"].values():
        assert (column["avgLen"], column["maxLen"], column["nullCount"], column["distinctCount"]) == (2, 4, 2, 4)


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        (
            "TIMESTAMP(6)",
            ["1960-02-29T23:59:59.000001", "0001-01-01T00:00:00"],
            "0001-01-01 00:00:00",
            "1960-02-29 23:59:59.000001",
        ),
        ("TIMESTAMP(3)", ["-0001-01-01T00:00:00", "2020-01-01T00:00:00"], None, None),
        ("TIMESTAMP(3)", ["+12345-01-01T00:00:00", "2020-01-01T00:00:00"], None, None),
        *(
            ("DATE", ["0001-01-01", "9999-12-31"], "-719162", "2932896"),
            ("DECIMAL(20, 12)", ["0.000000000001", "0"], "0.000000000000", "0.000000000001"),
        ),
        *(("DOUBLE", ["Infinity", "NaN", "-Infinity"], "-Infinity", "Infinity"), ("FLOAT", ["NaN"], None, None)),
        *(("DOUBLE", [2.5, 0.0, 1e300], "0.0", "1e+300"), ("BIGINT", [-(2**63), 2**63 - 1], str(-(2**63)), str(2**63 - 1))),
    ],
)
def test_the_ends_are_texts_that_java_reads(
    tmp_path: Path, kind: str, values: list[Any], low: str | None, high: str | None
) -> None:
    """Each is in a file of its own. Java's writers read the statistics with each commit: a wrong text would stop them."""
    context = make_table(tmp_path / "t", {"c": kind}, [], bucket=-1)
    for value in values:
        write(context, [{"c": value}])
    commit_analysis(context, analyze(context))
    found = statistics(context)["colStats"]["c"]
    assert (found.get("min"), found.get("max"), found["nullCount"]) == (low, high, 0)
