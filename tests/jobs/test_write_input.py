"""What a write reports about its input: all bad cells at once, skipped rows, missing columns, and no rows at all."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.errors import BadInput, DataConflict, NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.row_sources import ArrowRows, FileRows
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.text_form import PLAIN, TextForm
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import WriteSummary, _Attempts, run_write, write_rejects
from paimon_cli.jobs.write_request import WriteRequest, plan_write, splits_of
from paimon_cli.pieces import PIECES
from tests.tables import data_files, live_files, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "a": "BIGINT", "s": "STRING"}
BAD_ROWS = 30


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    return make_table(tmp_path / "t", COLUMNS, ["k"])


@pytest.fixture
def sources(tmp_path: Path) -> tuple[str, ...]:
    """Two files with 30 bad rows: a row with two bad cells, one with too few cells, one that is not JSON."""
    lines = [f"{n},NA,x" if n % 3 == 0 else f"{n},{n},x" for n in range(81)]
    lines[4], lines[5] = "x,y,z", "5"
    (tmp_path / "a.csv").write_text("\n".join(["k,a,s", *lines]))
    (tmp_path / "b.json").write_text('{"k": 100, "a": 1}\n{"k": \n{"k": 101, "a": 2, "s": null}\n')
    return str(tmp_path / "a.csv"), str(tmp_path / "b.json")


def load(
    context: TableContext, sources: tuple[str, ...], format: str | None = None, form: TextForm = PLAIN, **request: Any
) -> WriteSummary:
    return run_write(context, WriteRequest(FileRows(sources, format, form), **request), LocalEngine(), NoProgress())


def load_arrow(context: TableContext, given: pa.Table, threads: int = 1, **request: Any) -> WriteSummary:
    return run_write(context, WriteRequest(ArrowRows(given), **request), LocalEngine(threads), NoProgress())


@pytest.mark.parametrize(
    ("given", "kind_column"),
    [
        ({"k": ["1"], "c": ["n/a"], "op": ["+I"]}, "op"),
        ({"k": ["1"], "c": ["a"], "op": ["n/a"]}, "op"),
    ],
)
def test_a_hint_names_no_option_that_would_change_nothing(tmp_path: Path, given: dict[str, list[str]], kind_column: str) -> None:
    """Options of text read no cell of a DataFrame or Arrow data, no cell of a text column, and no row kind."""
    table = make_table(tmp_path / "t", {"k": "STRING NOT NULL", "c": "VARCHAR(1)"}, ["k"])
    for format in ("csv", "json", "parquet", "arrow"):
        with pytest.raises(BadInput, match="cannot take 'n/a'") as caught:
            if format == "arrow":
                load_arrow(table, pa.table(given), op_column=kind_column)
            else:
                path, row = tmp_path / f"a.{format}", {name: cells[0] for name, cells in given.items()}
                if format == "parquet":
                    pq.write_table(pa.table(given), path)
                else:
                    path.write_text(json.dumps(row) if format == "json" else ",".join(row) + "\n" + ",".join(row.values()))
                load(table, (str(path),), op_column=kind_column)
        assert caught.value.hint == "nothing was committed; correct the input and run again"


def test_all_bad_cells_are_in_one_error(table: TableContext, sources: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        load(table, sources)
    error = caught.value
    assert error.what == f"{sources[0]}: row 1, column 'a' cannot take 'NA', and 30 more in {BAD_ROWS} rows"
    assert len(error.details["faults"]) == 20 and error.details["bad_cells"] == 31 and error.details["bad_rows"] == BAD_ROWS
    assert [fault["row"] for fault in error.details["faults"]][:6] == [1, 4, 5, 5, 6, 7]
    assert "and 11 more" in error.why and "--null-value 'NA'" in error.hint
    assert table.snapshots.latest_id() is None and not data_files(table)


def test_bad_rows_are_skipped_and_counted(table: TableContext, sources: tuple[str, ...]) -> None:
    summary = load(table, sources, on_error="skip")
    assert (summary.rows_read, summary.skipped_rows, summary.bad_cells) == (54, BAD_ROWS, 31)
    assert len(rows(table)) == 54
    assert load(table, sources, on_error="skip", form=TextForm(null_values=("NA",))).skipped_rows == 3


@pytest.mark.parametrize("name", ["bad.ndjson", "bad.csv"])
def test_the_file_of_bad_cells_holds_all_of_them_in_order(
    name: str, table: TableContext, sources: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text("of yesterday")
    load(table, sources, on_error=str(file))
    with file.open() as text:
        found = list(csv.DictReader(text)) if name.endswith("csv") else [json.loads(line) for line in text]
    assert len(found) == 31 and list(found[0]) == ["source", "row", "column", "value", "reason"]
    assert [int(one["row"]) for one in found[:-1]] == sorted(int(one["row"]) for one in found[:-1])
    assert found[0] | {"reason": ""} == {
        "source": sources[0],
        "row": "1" if name.endswith("csv") else 1,
        "column": "a",
        "value": "NA",
        "reason": "",
    }
    assert found[-1]["source"] == sources[1] and not found[-1]["column"]
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_a_line_that_is_not_json_is_in_the_file_as_it_was(table: TableContext, sources: tuple[str, ...], tmp_path: Path) -> None:
    load(table, sources[1:], on_error=str(tmp_path / "bad"))
    assert json.loads((tmp_path / "bad").read_text())["value"] == '{"k": '


def test_the_file_of_bad_cells_is_whole_or_as_it_was(table: TableContext, sources: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "bad.ndjson"
    file.write_text("of yesterday")
    (tmp_path / "c.csv").write_text("k,b\n1,1\n")
    with pytest.raises(BadInput, match="no column 'b'"):
        load(table, (*sources, str(tmp_path / "c.csv")), on_error=str(file))
    assert file.read_text() == "of yesterday" and not data_files(table)
    for place in (sources[0], str(tmp_path), str(tmp_path / "no" / "where.csv"), "s3://bucket/bad.csv"):
        with pytest.raises(UsageError, match="on_error"):
            load(table, sources, on_error=place)
    load(table, (sources[1],), on_error=str(file), format="json")
    assert len(file.read_text().splitlines()) == 1
    (tmp_path / "good.json").write_text('{"k": 1}')
    load(table, (str(tmp_path / "good.json"),), on_error=str(file))
    assert file.read_text() == ""


@pytest.mark.parametrize("source", ["in", "in/*.csv", "in/**"])
def test_the_file_of_bad_cells_is_none_of_those_that_are_read(table: TableContext, source: str, tmp_path: Path) -> None:
    """A directory or a pattern may have it among its files: it would be replaced."""
    (tmp_path / "in").mkdir()
    good = tmp_path / "in/good.csv"
    (tmp_path / "in/bad.csv").write_text("k,a,s\n1,x,y\n")
    good.write_text("k,a,s\n2,2,y\n")
    with pytest.raises(UsageError, match="one of the sources"):
        load(table, (str(tmp_path / source),), on_error=str(good))
    assert good.read_text() == "k,a,s\n2,2,y\n"
    assert table.snapshot() is None


def test_missing_columns_are_null_and_named(table: TableContext, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k\n1\n")
    (tmp_path / "b.json").write_text('{"k": 2, "a": 1, "s": "x"}\n{"k": 3, "a": null}\n')
    assert load(table, (str(tmp_path / "a.csv"),)).missing_columns == ("a", "s")
    assert load(table, (str(tmp_path / "b.json"),)).missing_columns == ("s",)
    with pytest.raises(BadInput, match="column 'a' is missing"):
        load(table, (str(tmp_path / "a.csv"),), missing_columns="error")
    with pytest.raises(BadInput, match="row 2") as caught:
        load(table, (str(tmp_path / "b.json"),), missing_columns="error")
    assert caught.value.why == "key 's' is missing"
    (tmp_path / "c.json").write_text('{"k":4,"a":1,"s":null}')
    assert load(table, (str(tmp_path / "c.json"),), missing_columns="error").missing_columns == ()


def test_what_all_files_lack_and_hold_is_summed_up(table: TableContext, tmp_path: Path) -> None:
    """Also what only the first of several files lacks."""
    (tmp_path / "1.csv").write_text("k\n1\n")
    (tmp_path / "2.csv").write_text("k,a\n2,2\n")
    (tmp_path / "3.csv").write_text("k,a,s\n3,3,x\n")
    assert load(table, tuple(str(tmp_path / f"{n}.csv") for n in (1, 2, 3))).missing_columns == ("a", "s")
    summed = Tally.of([Tally(1, unordered_deletes=2, other_bucket_rows=1), Tally(2, unordered_deletes=1), Tally(1)])
    assert (summed.rows, summed.unordered_deletes, summed.other_bucket_rows) == (4, 3, 1)


def test_a_bad_cell_is_counted_once(table: TableContext, tmp_path: Path) -> None:
    """Steps of a conversion refuse one after the other, and each refuses what it can tell."""
    (tmp_path / "bad.csv").write_text("k,a,s\n1,x,a\n2,y,b\n99999999999,3,c\n4,99999999999999999999,d\n")
    with pytest.raises(BadInput) as refused:
        load(table, (str(tmp_path / "bad.csv"),))
    assert (refused.value.details["bad_rows"], refused.value.details["bad_cells"]) == (4, 4)


@pytest.mark.parametrize("content", ["", "k,a,s\n"])
@pytest.mark.parametrize("partition", [None, {"p": "a"}])
def test_an_overwrite_with_nothing_is_refused(content: str, partition: dict[str, str] | None, tmp_path: Path) -> None:
    plain = make_table(tmp_path / "t", COLUMNS, ["k"])
    parted = make_table(tmp_path / "p", {"p": "STRING NOT NULL", **COLUMNS}, ["p", "k"], ["p"])
    (tmp_path / "full.csv").write_text("k,a,s\n1,1,x\n")
    (tmp_path / "fullp.csv").write_text("p,k,a,s\na,1,1,x\nb,1,1,x\n")
    (tmp_path / "empty.csv").write_text(content)
    (tmp_path / "emptyp.csv").write_text("p," + content if content else "")
    load(plain, (str(tmp_path / "full.csv"),))
    load(parted, (str(tmp_path / "fullp.csv"),))
    for context, name in ((plain, "empty.csv"), (parted, "emptyp.csv")):
        replaced = partition if context is parted else None
        for source in (name, "*.nothing"):
            deletes = partition or context is plain
            expected = "overwrite would delete all rows" if deletes else "overwrite has no partition to replace"
            with pytest.raises(BadInput, match=expected):
                load(context, (str(tmp_path / source),), overwrite=True, partition=replaced)
        assert context.snapshots.latest_id() == 1
        load(context, (str(tmp_path / "*.nothing"),), allow_empty=True, overwrite=True, partition=replaced)
    assert rows(plain) == []
    assert [row["p"] for row in rows(parted)] == (["b"] if partition else ["a", "b"])


def test_a_write_of_nothing_commits_nothing(table: TableContext, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    assert load(table, (str(tmp_path / "empty.csv"),)).snapshots == ()
    with pytest.raises(NotFound):
        load(table, (str(tmp_path / "*.nothing"),))
    assert load(table, (str(tmp_path / "*.nothing"),), allow_empty=True).snapshots == ()


def test_rows_read_and_rows_that_equal_keys_left(table: TableContext, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,a,s\n1,1,x\n1,2,y\n2,1,z\n")
    summary = load(table, (str(tmp_path / "a.csv"),))
    assert (summary.rows_read, summary.rows) == (3, 2)


def test_a_setting_that_no_source_uses_is_an_error(table: TableContext, tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"k": 1}'))
    for form in (TextForm(delimiter=";"), TextForm(header=False), TextForm(columns=("a",)), TextForm(escape="\\")):
        with pytest.raises(UsageError, match="has no effect on json input"):
            load(table, (str(tmp_path / "a.json.gz"),), form=form)
    assert load(table, (str(tmp_path / "a.json.gz"),), form=TextForm(null_values=("NA",))).rows == 1


def test_arrow_data_is_checked_and_conformed_like_a_file(table: TableContext) -> None:
    good = pa.table({"k": pa.array([2, 1], pa.int64()), "s": pa.array(["b", "a"]).dictionary_encode()})
    summary = load_arrow(table, good)
    assert (summary.rows_read, summary.rows, summary.missing_columns) == (2, 2, ("a",))
    assert rows(table) == [{"k": 1, "a": None, "s": "a"}, {"k": 2, "a": None, "s": "b"}]
    load_arrow(table, pa.table({"k": pa.array([1], pa.int32())}), op="delete")
    assert rows(table) == [{"k": 2, "a": None, "s": "b"}]
    with pytest.raises(BadInput, match="the Arrow data: the table has no column 'x'"):
        load_arrow(table, pa.table({"k": pa.array([], pa.int32()), "x": pa.array([], pa.int32())}))
    with pytest.raises(BadInput, match="column 'k' has type bool, the table's is INT"):
        load_arrow(table, pa.table({"k": pa.array([True])}))


def test_bad_cells_of_arrow_data_are_reported_and_rejected_by_row(table: TableContext, tmp_path: Path) -> None:
    given = pa.table({"k": pa.array([1, 2**40, 3, None], pa.int64()), "a": pa.array([1, 2, 2**63, 4], pa.uint64())})
    with pytest.raises(BadInput) as caught:
        load_arrow(table, given)
    assert caught.value.what.startswith("the Arrow data: row 2, column 'k' cannot take 1099511627776")
    assert caught.value.details["bad_rows"] == 3 and not data_files(table)
    summary = load_arrow(table, given, on_error=str(tmp_path / "bad.csv"))
    assert (summary.rows_read, summary.skipped_rows, summary.bad_cells) == (1, 3, 3)
    assert [line.split(",")[:3] for line in (tmp_path / "bad.csv").read_text().splitlines()[1:]] == [
        ["the Arrow data", "2", "k"],
        ["the Arrow data", "3", "a"],
        ["the Arrow data", "4", "k"],
    ]


def test_an_overwrite_with_arrow_data_that_has_no_rows_must_be_intended(table: TableContext) -> None:
    load_arrow(table, pa.table({"k": pa.array([1], pa.int32())}))
    nothing = pa.table({"k": pa.array([], pa.int32())})
    with pytest.raises(BadInput, match="the input is empty"):
        load_arrow(table, nothing, overwrite=True)
    load_arrow(table, nothing, overwrite=True, allow_empty=True)
    assert rows(table) == []


def test_the_last_of_equal_keys_in_arrow_data_wins_over_all_its_splits(
    table: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "arrow_split_bytes", 512)
    keys = [k % 50 for k in range(1000)]
    given = pa.table({"k": pa.array(keys, pa.int32()), "a": pa.array(range(1000), pa.int32())})
    assert len(ArrowRows(given).plan()) > 10
    assert load_arrow(table, given, threads=4).rows_read == 1000
    assert [row["a"] for row in sorted(rows(table), key=lambda row: int(row["k"]))] == list(range(950, 1000))


def test_a_cell_that_is_never_closed_is_listed_but_never_skipped(table: TableContext, tmp_path: Path) -> None:
    (tmp_path / "cut.csv").write_text('k,a,s\n1,2,"a"\n2,3,"b\n3,4,c\n')
    rejects = tmp_path / "rejects.ndjson"
    for on_error in ("fail", "skip", str(rejects)):
        with pytest.raises(BadInput, match="line 3: a quoted cell is never closed"):
            load(table, (str(tmp_path / "cut.csv"),), on_error=on_error)
    assert table.snapshots.latest_id() is None and not data_files(table)
    listed = json.loads(rejects.read_text())
    assert listed["value"] == '"b\n3,4,c\n' and listed["reason"] == "line 3: a quoted cell is never closed" and listed["row"] == 2


def test_a_write_counts_deletes_and_keeps_its_properties(table: TableContext) -> None:
    given = [{"k": 1, "_op": "+I"}, {"k": 2, "_op": "-D"}, {"k": 3, "_op": "+I"}]
    done = write(table, given, properties=(("batch", "7"),))
    assert (done.rows, done.delete_rows, done.rows_read) == (3, 1, 3)
    assert done.snapshots[0].properties and done.snapshots[0].properties["batch"] == "7"


def test_the_file_of_bad_cells_is_of_the_input_that_was_written(table: TableContext, tmp_path: Path) -> None:
    """It is written in a second pass. Rows that came in between are not in the table."""
    source, rejects = tmp_path / "in.csv", tmp_path / "bad.csv"
    source.write_text("k,a,s\n1,2,x\n2,NA,x\n")
    request = WriteRequest(FileRows((str(source),), "csv"), on_error=str(rejects))
    plan = plan_write(table, request)
    assert isinstance(plan.incoming, IncomingRows) and request.reject_file is not None
    tallies = {number: plan.incoming.find_faults(split) for number, split in enumerate(plan.splits)}
    write_rejects(request.reject_file, plan, tallies)
    assert rejects.read_text().count("\n") == 2
    rejects.unlink()
    for other in ("k,a,s\n1,2,x\n2,NA,x\n3,3,x\n", "k,a,s\n1,NB,x\n2,NA,x\n"):
        source.write_text(other)
        with pytest.raises(BadInput, match="changed while it was being read"):
            write_rejects(request.reject_file, replace(plan, splits=splits_of(table, request)), tallies)
        assert not rejects.exists()


CHECKED = {"commit.data-conflict-check": "bucket"}


def test_an_overwrite_that_is_repeated_builds_on_what_its_first_attempt_read(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=CHECKED)
    write(context, [{"k": 1}])
    request = WriteRequest(ArrowRows(pa.table({"k": pa.array([5], pa.int32())})), overwrite=True, missing_columns="null")
    first = attempts(context, request)
    write(context, [{"k": 2}])
    again = attempts(context, request)
    again.read_snapshot, again.rows = 1, 1
    with pytest.raises(DataConflict):
        again.run()
    nothing = replace(request, source=ArrowRows(pa.table({"k": pa.array([], pa.int32())})), allow_empty=True)
    for one in (request, nothing):
        with pytest.raises(DataConflict):
            attempts(context, replace(one, read_snapshot=1)).run()
    again.rows = 2
    with pytest.raises(BadInput, match="it had 2 rows, and then 1"):
        again.run()
    assert [row["k"] for row in rows(context)] == [1, 2] and data_files(context) == live_files(context)
    assert first.run().result.snapshots and (first.read_snapshot, first.rows) == (2, 1)
    empty = attempts(make_table(tmp_path / "empty", COLUMNS, ["k"], options=CHECKED), request)
    assert empty.run().result.snapshots and empty.read_snapshot == 0, "it has read that there was nothing"
    assert attempts(context, nothing).run().result.snapshots and not rows(context), "nobody else has written since"


def attempts(context: TableContext, request: WriteRequest) -> _Attempts:
    splits = splits_of(context, request)
    return _Attempts(context, Committer(context), request, fresh_identity(context), splits, LocalEngine(), NoProgress())


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_an_overwrite_is_one_snapshot_where_readers_skip_new_files(tmp_path: Path, producer: str) -> None:
    """Between two they would see neither the old rows nor the new ones. A changelog needs the second."""
    options = {"deletion-vectors.enabled": "true", "changelog-producer": producer}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=3, options=options)
    write(context, [{"k": 1}])
    done = write(context, [{"k": 2}, {"k": 3}, {"k": 4}], overwrite=True)
    assert [one.commit_kind for one in done.snapshots] == (["OVERWRITE"] if producer == "none" else ["OVERWRITE", "COMPACT"])
    assert done.snapshots[0].delta_record_count == (2 if producer == "none" else 3 - 1)
    assert [row["k"] for row in rows(context)] == [2, 3, 4] and data_files(context) >= live_files(context)
