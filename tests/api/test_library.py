"""The library beyond its examples: what it loads, which data it takes, what it refuses."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli import Catalog, Runtime, Table
from paimon_cli.api.health import examine_installation
from paimon_cli.api.history import all_options
from paimon_cli.api.inspection import simulate
from paimon_cli.api.integrity import invariants
from paimon_cli.errors import BadInput, NotFound, PartialSuccess, Refused, UsageError
from paimon_cli.installation import install_command
from paimon_cli.jobs.write_job import WriteSummary
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.local_storage import LocalStorage
from tests.api.test_examples import example_table
from tests.goldens import golden_table

HEAVY = ("pyarrow", "pyspark", "pandas", "numpy", "sqlglot", "fsspec", "yaml", "typer", "rich")
ROWS = pa.table({"id": [3, 4], "name": ["x", None], "price": [1.5, 2.5]})


def run_python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_library_loads_nothing_before_it_is_needed(tmp_path: Path) -> None:
    table = golden_table("java-0.9", "tags_and_expire", tmp_path)
    program = f"""
import sys
from paimon_cli import Table
table = Table.open({str(table)!r})
assert table.snapshots() and list(table.tags) and table.schema().fields and table.options
loaded = [name for name in {HEAVY!r} if name in sys.modules]
assert not loaded, loaded
table.scan(limit=1).to_batches()
assert "pyarrow" in sys.modules and "pyspark" not in sys.modules and "pandas" not in sys.modules
"""
    run_python(program)


def test_a_write_plans_on_the_commit_that_the_same_object_made_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On object stores a first call fetches the newest snapshot ahead. `update` does not use it, and a later write must not."""
    url = example_table(tmp_path).context.url
    monkeypatch.setattr(LocalStorage, "is_remote", True)
    table = Table.open(url)
    table.update("name = 'updated'", where="id > 0")
    table.write(pa.table({"id": [3], "name": ["written"], "price": [0.0]}))
    assert table.scan(["id", "name"]).to_arrow().to_pydict() == {"id": [1, 2, 3], "name": ["updated", "updated", "written"]}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(ImportError):
        exec("from paimon_cli import Tabel")


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        ROWS.to_batches()[0],
        ROWS.to_batches(),
        iter(ROWS.to_batches()),
        ROWS.to_reader(),
        ROWS.to_pandas(),
        ROWS.to_pandas().set_index("id", drop=False),
    ],
    ids=["table", "batch", "batches", "iterator", "reader", "pandas", "pandas with index"],
)
def test_rows_in_memory(tmp_path: Path, data: Any) -> None:
    table = example_table(tmp_path)
    assert table.write(data).rows == 2
    assert table.scan(["id", "name"], where="id >= 3").to_arrow().to_pylist() == [
        {"id": 3, "name": "x"},
        {"id": 4, "name": None},
    ]


def test_counts_take_a_condition(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    table.write(ROWS)
    condition = "id = :one"
    with table.transaction() as t:
        t.delete(condition, params={"one": 1})
        assert (t.count(condition, params={"one": 1}), table.count(condition, params={"one": 1})) == (0, 1)
    assert table.count("id > 0") == table.count() == table.scan().count()
    with pytest.raises(UsageError, match="no column 'nope'"):
        table.count("nope = 1")


@pytest.mark.parametrize("as_list", [False, True])
def test_files(tmp_path: Path, as_list: bool) -> None:
    table, file = example_table(tmp_path), tmp_path / "rows.parquet"
    pq.write_table(ROWS, file)
    assert table.write([file] if as_list else str(file)).rows == 2
    assert table.scan().count() == 4


def test_row_kinds_and_deletes(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    table.write(pa.table({"id": [1, 5], "name": ["a", "e"], "kind": ["-D", "+I"]}), op_column="kind")
    table.write(pa.table({"id": [2]}), op="delete")
    assert table.scan("id").to_arrow().column("id").to_pylist() == [3, 5]


def test_a_repeated_commit_counts_once(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    first, second = (table.write(ROWS, commit_user="job", commit_id=7) for _ in range(2))
    assert (first.already_committed, second.already_committed) == (False, True)
    assert len(table.snapshots()) == 2


def test_commit_identifiers_start_at_0(tmp_path: Path) -> None:
    """As in Java's StreamTableWrite. Snapshots of other tools are read all the same, and do not hide later commits."""
    table = example_table(tmp_path)
    for change in (
        lambda: table.write(ROWS, commit_user="job", commit_id=-5),
        lambda: table.write(ROWS, commit_user="job", commit_id=-5, stage=str(tmp_path / "staged")),
        lambda: table.update({"name": "'x'"}, where="id = 1", commit_user="job", commit_id=-1),
        lambda: table.truncate(commit_user="job", commit_id=-1),
    ):
        with pytest.raises(UsageError, match=r"commit_id -\d: the minimum is 0"):
            change()
    assert len(table.snapshots()) == 1
    path = Path(table.context.layout.snapshot(1))
    foreign = replace(Snapshot.from_json(path.read_text()), commit_user="job", commit_identifier=-5, properties=None)
    path.write_text(foreign.to_json())
    table = Table.open(table.url)
    assert [row.commit_identifier for row in table.snapshots()] == [-5] and table.scan().count() == 3
    assert [table.write(ROWS, commit_user="job", commit_id=0).already_committed for _ in range(2)] == [False, True]


def test_overwrite_needs_rows(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    with pytest.raises(BadInput):
        table.write(ROWS.slice(0, 0), overwrite=True)
    assert table.scan().count() == 3
    table.write(ROWS, overwrite=True)
    assert table.scan().count() == 2
    table.write(ROWS.slice(0, 0), overwrite=True, allow_empty=True)
    assert table.scan().count() == 0


def test_compaction_after_a_write_is_reported(tmp_path: Path) -> None:
    table, seen = example_table(tmp_path), list[WriteSummary]()
    table.alter.set({"num-sorted-run.compaction-trigger": "2", "write-only": "true"})
    for _ in range(2):
        table.write(ROWS)
    done = table.write(ROWS, compact="after", on_written=seen.append)
    assert [summary.snapshots[-1].id for summary in seen] == [4]
    assert done.compaction is not None and [snapshot.id for snapshot in done.compaction.snapshots] == [5]


def test_results_fit_into_a_notebook(tmp_path: Path) -> None:
    """What differs from its default is shown; names of metadata files are not."""
    table = example_table(tmp_path)
    written = repr(table.write(ROWS))
    assert written.startswith("WriteSummary(rows=2, files=1, size=")
    assert "commit_kind='APPEND'" in written and "engine='local'" in written
    shown = (written, repr(table.compact()), repr(table.update("name = 'u'", where="id = 3")), repr(table.verify()))
    for text in shown:
        assert not any(hidden in text for hidden in ("manifest-list-", "properties=", "stalls=", "compaction_lost=", "request="))
        assert len(text) < 600, text


def test_the_schema_of_a_scan_without_rows(tmp_path: Path) -> None:
    scan = example_table(tmp_path).scan(where="id > 100")
    assert scan.to_arrow().schema == scan.schema
    assert scan.schema.names == ["id", "name", "price"]
    kinds = example_table(tmp_path / "b").scan(["id"], row_kind=True)
    assert kinds.to_arrow().to_pydict() == {"rowkind": ["+I"] * 3, "id": [1, 2, 3]}


def test_a_datetime_is_a_moment_to_read(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT NOT NULL"], primary_key="id", bucket=1)
    table.write(pa.table({"id": [1]}))
    made = dt.datetime.fromtimestamp(table.snapshots()[0].time / 1000, dt.timezone.utc)
    assert table.scan(as_of=made).count() == 1
    assert table.scan(as_of=made.astimezone(dt.timezone(dt.timedelta(hours=5)))).count() == 1
    with pytest.raises(NotFound, match="as old as"):
        table.scan(as_of=made - dt.timedelta(seconds=1))


def test_what_pandas_shows_can_be_written_again(tmp_path: Path) -> None:
    """It has floats where whole numbers are missing, and lists of pairs for maps."""
    columns = ["id BIGINT NOT NULL", "n BIGINT", "m MAP<STRING, INT>", "r ROW<a ARRAY<MAP<STRING, INT>>>"]
    table = Table.create(str(tmp_path / "t"), columns=columns, primary_key="id", bucket=1)
    rows = [
        {"id": 1, "n": 2**40, "m": [("k", 1), ("l", None)], "r": {"a": [[("x", 1)], None]}},
        {"id": 2, "n": None, "m": None, "r": None},
    ]
    table.write(pa.Table.from_pylist(rows, table.scan().schema))
    assert table.scan().to_arrow().to_pylist() == rows
    frame = table.scan().to_pandas()
    assert frame["n"].dtype == "float64"
    table.write(frame)
    assert table.scan().to_arrow().to_pylist() == rows
    table.write(pd.DataFrame({"id": [2], "m": [{"k": 7}]}))
    assert table.scan("m", "id = 2").to_arrow().to_pylist() == [{"m": [("k", 7)]}]


def test_nan_in_the_maps_of_a_pandas_frame_with_arrow_types_is_kept(tmp_path: Path) -> None:
    """Python objects in pandas have NaN for missing values; Arrow types have nulls for them."""
    columns = ["id BIGINT NOT NULL", "m MAP<STRING, DOUBLE>", "l ARRAY<ROW<m MAP<STRING, DOUBLE>>>"]
    table = Table.create(str(tmp_path / "t"), columns=columns, primary_key="id", bucket=1)
    entries = [("nan", float("nan")), ("null", None), ("one", 1.0)]
    table.write(pa.Table.from_pylist([{"id": 1, "m": entries, "l": [{"m": entries}]}], table.scan().schema))
    written = table.scan().to_arrow()
    table.write(table.scan().to_pandas(types_mapper=pd.ArrowDtype))
    assert str(table.scan().to_arrow().to_pylist()) == str(written.to_pylist())
    assert table.scan().to_arrow()["m"].chunk(0).items.null_count == 1


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"id": [1, 2], "s": ["a", 5]}),
        pd.DataFrame([[1, 2]], columns=["id", "id"]),
        pd.DataFrame({"id": pd.arrays.SparseArray([1])}),
    ],
)
def test_frames_without_an_arrow_form_are_bad_input(tmp_path: Path, frame: pd.DataFrame) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT NOT NULL", "s STRING"], primary_key="id", bucket=1)
    with pytest.raises(BadInput, match="the DataFrame cannot be converted"):
        table.write(frame)


def test_columns_in_the_index_of_a_frame_are_not_left_out(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT NOT NULL", "s STRING"], primary_key="id", bucket=1)
    frame = pd.DataFrame({"id": [1, 2, 2], "s": ["a", "b", "c"]})
    for indexed, column in ((frame.groupby("id").max(), "id"), (frame.set_index("s"), "s"), (frame.set_index(["id", "s"]), "id")):
        with pytest.raises(BadInput, match=f"column '{column}' is in the index of the DataFrame") as refused:
            table.write(indexed)
        assert refused.value.hint.endswith("frame.reset_index()")
    assert table.write(frame.groupby("id").max().reset_index()).rows == 2
    assert table.write(frame.set_index(pd.Index([7, 8, 9], name="other"))).rows == 2
    assert table.write(frame.set_index("s", drop=False)).rows == 2


def test_scans_stop_early_and_in_pandas(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    frame = table.scan(limit=2).to_pandas()
    assert isinstance(frame, pd.DataFrame) and list(frame["id"]) == [1, 2]
    assert next(iter(table.scan().to_batches())).num_rows == 3


def test_odd_column_names(tmp_path: Path) -> None:
    odd = ["key", "a b", "c,d", "e`f", "Größe", "x.y"]
    table = Table.create(
        str(tmp_path / "t"), schema=pa.schema([(name, pa.int32()) for name in odd]), primary_key=["key"], bucket=1
    )
    table.write(pa.table({name: pa.array([number], pa.int32()) for number, name in enumerate(odd)}))
    assert table.scan(odd).to_arrow().to_pylist() == [{name: number for number, name in enumerate(odd)}]
    table.update({"a b": 7, "e`f": None}, where="key = 0")
    assert table.scan(["a b", "e`f"]).to_arrow().to_pylist() == [{"a b": 7, "e`f": None}]


def test_a_column_in_a_list_is_itself_even_if_its_name_has_quotes(tmp_path: Path) -> None:
    names = ["key", '"q"', "q", "`t`", '"a.b"', "a.b"]
    table = Table.create(
        str(tmp_path / "t"), schema=pa.schema([(name, pa.int32()) for name in names]), primary_key="key", bucket=1
    )
    table.write(pa.table({name: pa.array([number], pa.int32()) for number, name in enumerate(names)}))
    for number, name in enumerate(names):
        assert table.scan([name]).to_arrow().to_pylist() == [{name: number}]
        assert table.changelog(1, columns=["key", name][number == 0 :]).to_arrow().column(name).to_pylist() == [number]
    assert table.scan('"q"').to_arrow().to_pylist() == [{"q": 2}]
    assert table.scan(['"key"', "`q`"]).to_arrow().to_pylist() == [{"key": 0, "q": 2}]


def test_updates_accept_expressions(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    table.update({"price": "price * 2", "name": "'it''s'"}, where="id = 1")
    table.update("price = 0", where="id = 2")
    table.update(["price = 1", "name = NULL"], where="id = 3")
    assert table.scan(["name", "price"]).to_arrow().to_pylist() == [
        {"name": "it's", "price": 20.0},
        {"name": "b", "price": 0.0},
        {"name": None, "price": 1.0},
    ]
    with pytest.raises(UsageError, match="nothing to set"):
        table.update({}, where="true")


@pytest.mark.parametrize("text", ["name, points = 0", "1) , points = (0", "name; DELETE FROM t", "", "upper(name"])
def test_an_expression_of_a_column_sets_no_other(tmp_path: Path, text: str) -> None:
    table = Table.create(tmp_path / "t", columns=["id INT NOT NULL", "name STRING", "points INT"], primary_key="id", bucket=1)
    table.write([{"id": 1, "name": "a", "points": 5}])
    with pytest.raises(UsageError):
        table.update({"name": text}, where="id = 1")
    with pytest.raises(UsageError):
        table.merge(table.to_arrow(), on="id").when_matched_update({"name": text}).execute()
    assert table.to_arrow().to_pylist() == [{"id": 1, "name": "a", "points": 5}]


def test_an_update_sets_columns_of_any_name_to_python_values(tmp_path: Path) -> None:
    columns = "id INT; `select` INT; d DATE; ts TIMESTAMP; t TIME(3); b BYTES; `null` DECIMAL(5, 2); `True` BOOLEAN"
    table = Table.create(str(tmp_path / "t"), columns=columns.split("; "), primary_key="id", bucket=1)
    table.write(pa.table({"id": pa.array([1], pa.int32())}))
    noon = datetime(2026, 1, 2, 12, 0, 0, 5)
    values = {
        "select": np.int64(7),
        "d": noon.date(),
        "ts": noon,
        "t": time(1, 2, 3, 4000),
        "b": b"\x00'",
        "null": Decimal("1.25"),
        "True": np.True_,
    }
    table.update(values, where="id = 1")
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, **values}]
    table.update({"ts": pd.Timestamp("2027-01-01"), "True": None, "null": "`null` + 1"}, where="id = 1")
    expected = [{"ts": datetime(2027, 1, 1), "True": None, "null": Decimal("2.25")}]
    assert table.scan(["ts", "True", "null"]).to_arrow().to_pylist() == expected
    # 2026-01-02 would be a subtraction, and nan the name of a column
    with pytest.raises(UsageError, match="DATE '2026-01-02' is not a valid INT"):
        table.update({"select": noon.date()}, where="id = 1")
    for value in (float("nan"), [1], pd.NA, 1 + 2j, Decimal("sNaN"), Decimal("-Infinity"), 10**400):
        with pytest.raises(UsageError, match=r"cannot set column 'select' to .*: a value is an expression, a number"):
            table.update({"select": value}, where="id = 1")


def test_a_table_that_was_dropped_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    other = Table.open(table.url)
    table.truncate()
    assert other.scan().count() == 0
    table.drop()
    uses: tuple[Callable[[Table], object], ...] = (
        Table.scan,
        lambda t: t.delete("id = 1"),
        lambda t: t.write(pa.table({"id": [1]})),
        Table.compact,
        Table.verify,
        Table.health,
        Table.doctor,
        Table.files,
        Table.snapshots,
    )
    for use, each in product(uses, (table, other)):
        with pytest.raises(NotFound, match="no table at"):
            use(each)
    assert not Path(table.url).exists(), "a failed write leaves no directories"


def test_a_count_of_an_expired_snapshot_says_so(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    scan = table.scan(where="id > 1", snapshot=1)
    table.truncate()
    table.expire(retain_max=1, retain_min=1, older_than="0 s")
    for read in (scan.count, scan.to_arrow):
        with pytest.raises(NotFound, match=r"snapshot 1 .* no longer exists"):
            read()


def test_time_travel_and_changes(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    table.delete(where="id = 1")
    table.tags.create("end")
    assert [table.scan(snapshot=1).count(), table.scan(tag="end").count()] == [3, 2]
    assert table.scan(incremental="1..2", row_kind=True).to_arrow().column("rowkind").to_pylist() == ["-D"]
    assert table.changelog(2).to_arrow().column("rowkind").to_pylist() == ["-D"]
    for changes in (table.changelog, table.follow_changelog):
        with pytest.raises(UsageError, match="snapshot 2 is after snapshot 1"):
            changes(2, 1)
    assert [(change.kind, change.values["id"]) for change in table.row_changes(1)] == [("-D", 1)]
    with pytest.raises(NotFound):
        table.scan(snapshot=9)


def test_hints_are_notes_of_the_exception_in_words_of_the_library() -> None:
    error = Refused("no", "because", "pass --retain-max")
    assert error.__notes__ == ["hint: pass retain_max"]
    assert pickle.loads(pickle.dumps(error)).__notes__ == error.__notes__
    error.set_hint("run: paimon-cli expire t --retain-max 1")
    assert [error.hint, *error.__notes__] == [error.hint, "hint: run: paimon-cli expire t --retain-max 1"]
    assert Refused("no").__notes__ == []


def test_maintenance(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    table.write(ROWS)
    assert table.compact("full").buckets == 1
    plan = table.plan_expire(retain_max=1, retain_min=1)
    assert plan.plan.names == ("1", "2") and plan.files() and len(table.snapshots()) == 3
    assert table.expire(retain_max=1, retain_min=1).removed == ("1", "2")
    assert table.rescale(3).option_changed
    assert table.options["bucket"] == "3"
    assert table.write(ROWS).buckets <= 2
    assert table.verify("full").errors == 0
    assert not table.plan_repair().plan.changes
    assert table.remove_orphans() == (0, 0)


def test_going_back(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    table.truncate()
    assert table.plan_restore(1).target.id == 1
    assert table.rollback(1, as_new=True).snapshot == 3
    assert table.rollback(1).snapshots_removed == 2
    assert table.scan().count() == 3


def test_dropping(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    assert table.plan_drop().plan.files
    assert table.drop().snapshots == 1
    with pytest.raises(NotFound):
        Table.open(table.url)


def test_a_view_is_not_written(tmp_path: Path) -> None:
    view = Table.open(f"{example_table(tmp_path).url}$ro")
    for change in (
        lambda: view.write(ROWS),
        lambda: view.delete("true"),
        lambda: view.truncate(),
        lambda: view.compact(),
        lambda: view.rollback(1),
        lambda: view.plan_rollback(1).run(),
        lambda: view.plan_truncate(),
        lambda: view.drop(),
        lambda: view.alter.set({"write-only": "true"}),
    ):
        with pytest.raises(UsageError, match="is a view"):
            change()


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda table: table.write(ROWS, op="insert"), "op insert"),
        (lambda table: table.write(ROWS, compact="always"), "compact always"),
        (lambda table: table.write(ROWS, missing_columns="x"), "missing_columns x"),
        (lambda table: table.write(7), "int data"),
        (lambda table: table.write([1, 2]), "list data"),
        (lambda table: table.write(ROWS, format="csv"), "format and form need files"),
        (lambda table: table.write(ROWS, partition={"a": "b"}), "partition needs overwrite"),
        (lambda table: table.write(ROWS, overwrite=True, op="delete"), "op delete cannot be combined with overwrite"),
        (lambda table: Table.open("s3://"), "s3:// names no table: nothing follows the scheme"),
        (lambda table: table.write(ROWS, data_conflict_check="rows"), "rows"),
        (lambda table: table.compact("some"), "strategy some"),
        (lambda table: table.compact(on_conflict="x"), "on_conflict x"),
        (lambda table: table.verify("deep"), "level deep"),
        (lambda table: table.expire("everything"), "everything"),
        (lambda table: table.expire(retain_max=0), "retain_max 0"),
        (lambda table: table.rescale(0), "buckets 0"),
        (lambda table: table.delete("true", max_attempts=0), "max_attempts 0"),
        (lambda table: table.scan(limit=-1), "limit -1"),
        (lambda table: table.scan(incremental="1..", snapshot=1), "incremental"),
        (lambda table: table.scan(incremental_mode="diff"), "incremental_mode diff"),
        (lambda table: table.drop_partition({}), "no partition"),
        (lambda table: table.drop_partition([{}]), "no partition is named"),
        (lambda table: table.plan_truncate(partition=[]), "no partition is named"),
        (lambda table: table.rescale(2, partition=[]), "no partition is named"),
        (lambda table: table.compact(partition={}), "no partition is named"),
        (lambda table: table.compact(partition="a=b"), "partition 'a=b': it must be a dict with strings as keys or a list"),
        (lambda table: table.files(partition=[]), "no partition is named"),
        (lambda table: table.write(ROWS, overwrite=True, partition={}), "no partition is named"),
        (lambda table: table.delete("true", data_conflict_check="off"), "always run"),
    ],
)
def test_mistakes_are_usage_errors(tmp_path: Path, call: Any, what: str) -> None:
    table = example_table(tmp_path)
    with pytest.raises(UsageError, match=what) as mistake:
        call(table)
    assert "--" not in str(mistake.value)
    assert len(table.snapshots()) == 1


def test_none_is_the_partition_of_nulls_and_not_its_name(tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path / "t"), columns=["p STRING", "d DATE", "b BOOLEAN"], partition_by=["p", "d", "b"], bucket=-1
    )
    day = date(2026, 11, 22)
    rows = [{"p": p, "d": d, "b": b} for p in ("None", None) for d, b in ((day, True), (None, None))]
    table.write(pa.Table.from_pylist(rows, pa.schema([("p", pa.string()), ("d", pa.date32()), ("b", pa.bool_())])))
    null = [{"p": None, "d": None, "b": None}]
    assert [row.rows for row in table.buckets(partition=null)] == [1]
    assert [row.rows for row in table.buckets(partition={"p": "None"})] == [1, 1]
    assert table.drop_partition({"p": None, "d": day, "b": True}).rows == 1
    assert table.drop_partition({"p": "None", "d": None}).rows == 1
    staged = str(tmp_path / "staged.json")
    table.write(pa.Table.from_pylist(null * 2, table.scan().to_arrow().schema), overwrite=True, partition=null[0], stage=staged)
    table.stage.commit(staged)
    assert sorted(map(str, table.scan().to_arrow().to_pylist())) == sorted(map(str, [rows[0], *null, *null]))


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.compact(max_bucket=1),
        lambda table: table.plan_compaction(on_conflicts="skip"),
        lambda table: table.expire(retain=1),
        lambda table: table.truncate(commit_no=1),
        lambda table: table.delete("true", commit_no=1),
        lambda table: table.write(ROWS, commit_no=1),
    ],
)
def test_misspelt_options_are_type_errors(tmp_path: Path, call: Any) -> None:
    table = example_table(tmp_path)
    with pytest.raises(TypeError):
        call(table)
    assert table.scan().count() == 3


def test_doubtful_options_are_warnings(tmp_path: Path) -> None:
    url = example_table(tmp_path).url
    with pytest.warns(UserWarning, match="no-such-option"):
        Table.open(url, {"no-such-option": "1"})
    with pytest.raises(UsageError, match="no-such-option"):
        Table.open(url, {"no-such-option": "1"}, strict_options=True)
    doubts: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Table.open(url, {"no-such-option": "1"}, runtime=Runtime(warn=doubts.append))
    assert len(doubts) == 1


def test_options_of_a_call_do_not_damage_the_table(tmp_path: Path) -> None:
    table = Table.open(example_table(tmp_path).url, {"merge-engine": "aggregation"})
    with pytest.raises(UsageError, match="merge-engine"):
        table.write(ROWS)


def test_commits_are_refused_where_none_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = example_table(tmp_path).url

    def refuse(storage: Any) -> None:
        raise Refused("no safe commit")

    monkeypatch.setattr("paimon_cli.storage.guarded_storage.check_commits", refuse)
    table = Table.open(url)
    for change in (lambda: table.write(ROWS), lambda: table.compact(), lambda: table.plan_rescale(2).run()):
        with pytest.raises(Refused):
            change()
    assert len(table.snapshots()) == 1


def test_another_process_changes_the_schema(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    Table.open(table.url).alter.add_column("more INT")
    assert table.scan().schema.names == ["id", "name", "price"]
    table.refresh()
    assert table.scan().schema.names == ["id", "name", "price", "more"]


def test_a_schema_is_read_at_first_use(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    other = Table.open(table.url)
    table.alter.add_column("more INT")
    assert other.scan().schema.names == ["id", "name", "price", "more"]


def test_a_commit_expires_nothing(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    table.alter.set({"snapshot.num-retained.max": "1", "snapshot.num-retained.min": "1"})
    table.write(ROWS)
    table.write(ROWS)
    assert len(table.snapshots()) == 3
    table.expire()
    assert len(table.snapshots()) == 1


def test_a_warehouse(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False)])
    Table.create("shop.orders", schema=schema, primary_key="id", bucket=1, warehouse=str(tmp_path))
    assert Table.open("shop.orders", warehouse=str(tmp_path)).name == "shop.orders"
    assert (tmp_path / "shop.db" / "orders" / "schema" / "schema-0").exists()


def test_a_catalog_lists_its_tables(tmp_path: Path) -> None:
    columns = ["id INT NOT NULL"]
    for name in ("shop.orders", "shop.returns", "hr.people"):
        Table.create(name, columns=columns, primary_key="id", bucket=1, warehouse=str(tmp_path))
    catalog = Catalog(str(tmp_path))
    assert [(row.database, row.tables) for row in catalog.databases()] == [("hr", 1), ("shop", 2)]
    assert [row.table for row in catalog.tables()] == ["hr.people", "shop.orders", "shop.returns"]
    assert [row.table for row in catalog.tables("hr")] == [row.table for row in catalog.tables(database="hr")] == ["hr.people"]
    assert [row.table for row in Catalog().tables(f"{tmp_path}/hr.db")] == [f"{tmp_path}/hr.db/people"]
    assert catalog.locks("hr.people").mechanism == catalog.locks().mechanism == "put-if-absent"
    with pytest.raises(UsageError, match="has no commit lock"):
        catalog.break_lock("hr.people")
    with pytest.raises(UsageError, match="cannot be combined with database"):
        catalog.tables("hr", database="hr")


def test_a_catalog_compacts_several_tables(tmp_path: Path) -> None:
    for name in ("orders", "returns"):
        table = Table.create(f"shop.{name}", columns=["id INT NOT NULL"], primary_key="id", bucket=1, warehouse=str(tmp_path))
        for number in (1, 2):
            table.write(pa.table({"id": [number]}), compact="none")
    catalog, missing = Catalog(str(tmp_path)), "shop.gone"
    plans = {table.name: len(plan.tasks) for table, plan in catalog.plan_compaction(database="shop", exclude=["ord.*"])}
    assert plans == {"shop.returns": 1}
    rounds: list[Any] = []
    with pytest.raises(PartialSuccess, match=r"1 of 2 tables could not be compacted: there is no table shop\.gone"):
        catalog.compact(["shop.orders", missing], on_compacted=rounds.append)
    assert [(done.table, done.state) for done in rounds] == [("shop.orders", "compacted"), (missing, "failed")]
    assert isinstance(rounds[1].error, NotFound)
    with pytest.raises(NotFound):
        catalog.compact([missing])
    with pytest.raises(PartialSuccess) as several:
        catalog.compact(["shop.orders", missing, "shop.lost"])
    first, *lines = several.value.message.split("\n")
    assert first == "2 of 3 tables could not be compacted: these have failed"
    assert [line.split(":")[0] for line in lines] == ["  shop.gone", "  shop.lost"]
    assert {name: cause["code"] for name, cause in several.value.details["failed"].items()} == {
        "shop.gone": NotFound.code,
        "shop.lost": NotFound.code,
    }
    assert [done.state for done in catalog.compact(["shop.orders"])] == ["nothing to do"]
    seen: list[Any] = []
    catalog.watch(database="shop", watcher=Watcher(seen), strategy="full", max_rounds=1)
    assert [(done.table, done.state) for done in seen] == [("shop.orders", "nothing to do"), ("shop.returns", "compacted")]
    for pattern in ("(", "a{99999999999999999999}", "(" * 5000 + ")" * 5000):
        with pytest.raises(UsageError, match="not a regular expression"):
            catalog.compact(database="shop", include=[pattern])


def test_a_dedicated_compaction_warns_of_writers_that_compact_too(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    with pytest.warns(UserWarning, match="its writers may compact too: set write-only=true"):
        table.compact("minor", dedicated=True)
    table.alter.set({"write-only": "true"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Table.open(table.url).compact("minor", dedicated=True)


class Watcher:
    """Keeps what a service reports about its tables."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def table_begins(self, number: int, table: str) -> Any:
        return Runtime().new_progress()

    def table_done(self, done: Any) -> None:
        self.seen.append(done)

    def round_done(self, done: Any, pause_seconds: float | None) -> None:
        assert (len(done.tables), pause_seconds) == (2, None)


def test_simulations(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    table.write(ROWS, compact="none")
    replayed = table.simulate({"num-sorted-run.compaction-trigger": "2"})
    assert replayed.workload == f"the history of {table.name}"
    assert [row.scenario for row in replayed.scenarios] == ["as is", "num-sorted-run.compaction-trigger=2"]
    assert [row.commits for row in table.simulate(workload={"commits": 3, "rows": 10}).scenarios] == [3]
    described = simulate({"commits": 4, "rows": 1}, options={"num-sorted-run.compaction-trigger": "2"})
    assert described.workload.startswith("4 commits of 1 row,") and described.scenarios[0].compactions > 0
    with pytest.raises(UsageError, match="nothing to simulate"):
        simulate()


def test_what_belongs_to_no_table() -> None:
    assert {"bucket", "merge-engine"} <= {row.key for row in all_options()}
    assert invariants()[0].code == "PV001"
    assert "python" in {found.subject for found in examine_installation()}


class ConnectFrame:
    """Like a DataFrame of Spark Connect, which has a column for every name."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return object()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table({"id": [7], "name": ["a"]}).__arrow_c_stream__(requested_schema)


def test_data_that_has_every_attribute_is_read_as_arrow_data(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=["id BIGINT NOT NULL", "name STRING"], primary_key="id")
    assert table.write(ConnectFrame()).rows == 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 7, "name": "a"}]


def test_polars_and_duckdb_read_and_write_every_type(tmp_path: Path) -> None:
    """What a scan gives them, and what they give back, is equal to the Arrow rows."""
    import duckdb
    import polars

    table = Table.open(str(golden_table("java-0.9", "types_parquet", tmp_path)))
    rows = table.scan(order_by=",".join(table.schema().primary_keys)).to_arrow()
    plain = [name for name in rows.column_names if not pa.types.is_nested(rows.schema.field(name).type)]
    polars_rows = table.scan(order_by=",".join(table.schema().primary_keys)).to_polars()
    assert polars_rows.select(plain).to_arrow().cast(rows.select(plain).schema).to_pylist() == rows.select(plain).to_pylist()
    scan = table.scan(plain)
    relation = scan.to_duckdb(duckdb.connect())
    assert relation.count("*").fetchall() == [(rows.num_rows,)] == relation.count("*").fetchall()

    copy = Table.create(str(tmp_path / "copy"), schema=pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string())]),
                        primary_key=["id"], options={"bucket": "1"})  # fmt: skip
    copy.write(polars.DataFrame({"id": [1, 2], "name": ["a", None]}))
    copy.write(duckdb.sql("select 3::bigint as id, 'c' as name"))
    assert pa.table(copy.scan()).to_pydict() == {"id": [1, 2, 3], "name": ["a", None, "c"]}


def test_options_that_are_python_values_are_stored_as_paimon_writes_them(tmp_path: Path) -> None:
    """Some readers take only `true` for a truth value, not Python's `True`."""
    table = Table.create(tmp_path / "t", columns=["id INT"], options={"write-only": True, "bucket": -1})
    table.alter.set({"deletion-vectors.enabled": False, "target-file-row-num": 7})
    stored = {"write-only": "true", "bucket": "-1", "deletion-vectors.enabled": "false", "target-file-row-num": "7"}
    assert stored.items() <= table.options.items()
    assert Table.open(table.url, {"write-only": False}).context.options.write_only is False
    for call in (
        lambda: table.alter.set({"write-only": None}),
        lambda: Table.open(table.url, {"write-only": None}),
        lambda: Catalog(options={"warehouse": None}),
        lambda: Table.create(tmp_path / "u", columns=["id INT"], options={"bucket": None}),
    ):
        with pytest.raises(UsageError, match="None: it is not the value of an option"):
            call()


def test_a_database_that_holds_more_than_tables_is_not_dropped(tmp_path: Path) -> None:
    """An interrupted write to a dropped table, for example, leaves empty directories."""
    catalog = Catalog(str(tmp_path))
    catalog.create_database("shop")
    (tmp_path / "shop.db" / "orders" / "bucket-0").mkdir(parents=True)
    with pytest.raises(UsageError, match="is not empty") as refused:
        catalog.drop_database("shop", cascade=True)
    assert refused.value.why == f"{tmp_path}/shop.db contains files or directories that belong to no table"
    assert (tmp_path / "shop.db" / "orders" / "bucket-0").is_dir()


def test_a_catalog_shows_its_warehouse_without_secrets() -> None:
    assert repr(Catalog()) == "Catalog()"
    assert repr(Catalog("s3://key:word@lake/bronze")) == "Catalog('s3://lake/bronze')"


def test_duckdb_reads_structs_in_structs_of_merged_rows(tmp_path: Path) -> None:
    """A merge yields slices of batches. DuckDB refuses a slice of a struct in a struct, and older releases read other rows."""
    nested = pa.array([{"x": number, "inner": {"y": number, "z": [number]}} for number in range(100)])
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", nested.type), ("l", pa.list_(nested.type))])
    table = Table.create(str(tmp_path / "t"), schema=columns, primary_key=["id"], bucket=1, options={"write-only": "true"})
    table.write(pa.table({"id": range(100), "s": nested, "l": [[cell] for cell in nested]}))
    table.write(pa.table({"id": [5], "s": nested.slice(5, 1)}))
    expected = table.scan().to_arrow()
    assert expected["s"].to_pylist() == nested.to_pylist()
    assert sorted(table.scan().to_duckdb().fetchall()) == sorted(tuple(row.values()) for row in expected.to_pylist())
    query = f"SELECT s.inner.y AS y FROM '{table.url}' WHERE id % 10 = 7 ORDER BY y"
    assert Catalog(str(tmp_path)).sql(query).to_arrow()["y"].to_pylist() == list(range(7, 100, 10))


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UsageError, match="polars is not installed") as raised:
        example_table(tmp_path).scan().to_polars()
    assert raised.value.hint == install_command("polars")


def test_pandas_columns_without_values_have_no_types(tmp_path: Path) -> None:
    """They are floats in pandas, whatever the table has."""
    columns = ["id INT NOT NULL", "m MAP<STRING, DECIMAL(10, 2)>", "at TIMESTAMP", "s STRING", "b BYTES"]
    table = Table.create(str(tmp_path / "t"), columns=columns, primary_key="id", bucket=1)
    others = ("m", "at", "s", "b")
    assert table.write(pd.DataFrame({name: pd.Series([], dtype="float64") for name in ("id", *others)})).rows == 0
    assert table.write(pd.DataFrame({"id": [1], **{name: [float("nan")] for name in others}})).rows == 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, **dict.fromkeys(others)}]
