"""Arguments of a wrong type are `UsageError`s that name the argument, before anything has happened."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from paimon_cli import Catalog, Runtime, Table, TextForm
from paimon_cli.api.arguments import checks_call, takes
from paimon_cli.errors import NotFound, StorageUnavailable, UsageError
from paimon_cli.requests.dropping import EmptyOptions
from tests.api.test_examples import example_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def call(function: Any, *positional: Any, **named: Any) -> Any:
    """Call a function with arguments of types that a type checker would refuse."""
    return function(*positional, **named)


class Frameless:
    """What a runtime takes for a session."""

    def createDataFrame(self) -> None: ...


HALF = "\ud800"

WRONG: list[tuple[str, Callable[[Any], Any], str]] = [
    ("scan", lambda t: t.scan(limit="x"), "limit 'x': it must be a whole number or None"),
    ("scan", lambda t: t.scan(limit=2.5), "limit 2.5: it must be a whole number or None"),
    ("scan", lambda t: t.scan(limit=True), "limit True: it must be a whole number or None"),
    (
        "scan",
        lambda t: t.scan(snapshot=1.5),
        "snapshot 1.5: it must be a whole number or a string or a date or a timedelta or None",
    ),
    ("scan", lambda t: t.scan(tag=5), "tag 5: it must be a string or None"),
    ("scan", lambda t: t.scan(as_of=dt.time(1)), "it must be a whole number or a string or a date or a timedelta or None"),
    ("scan", lambda t: t.scan(columns=["id", 1]), "it must be a string or a list or None"),
    ("scan", lambda t: t.scan(columns=5), "columns 5: it must be a string or a list or None"),
    ("scan", lambda t: t.scan(None, 5), "where 5: it must be a string or None"),
    ("scan", lambda t: t.scan(where=polars.DataFrame({"a": range(9)})), "where of type DataFrame: it must be a string or None"),
    ("scan", lambda t: t.scan(row_kind="yes"), "row_kind 'yes': it must be True or False"),
    ("changelog", lambda t: t.changelog(None), "begin None: it must be a whole number or a string or a date or a timedelta"),
    ("update", lambda t: t.update({"price": "1"}, where=5), "where 5: it must be a string"),
    ("delete", lambda t: t.delete(5), "where 5: it must be a string"),
    (
        "write",
        lambda t: t.write(pa.table({"id": [1]}), commit_user="u", commit_id="4"),
        "commit_id '4': it must be a whole number",
    ),
    ("write", lambda t: t.write("a.csv", form={"delimiter": ";"}), "form of type dict: it must be a paimon_cli.TextForm"),
    (
        "create",
        lambda t: type(t).create("other", from_file="a.csv", form="csv"),
        "form 'csv': it must be a TextForm or None",
    ),
    ("compact", lambda t: t.compact(bucket="0"), "bucket '0': it must be a whole number, a range, or a list of these"),
    ("compact", lambda t: t.compact(bucket=["0"]), "bucket '0': it must be a whole number, a range, or a list of these"),
    ("compact", lambda t: t.compact(bucket=[]), "no bucket is named: an empty selection does not mean all buckets"),
    ("files", lambda t: t.files(partition={"x"}), "partition 'x': it must be a dict of keys and values, or a list of these"),
    ("files", lambda t: t.files(bucket=[]), "no bucket is named: an empty selection does not mean all buckets"),
    ("write", lambda t: t.write(pa.table({"id": [1]}), on_written=5), "on_written 5: it must be a function or None"),
    ("write", lambda t: t.write(""), "the path of an input file is empty: it would mean the current directory"),
    (
        "write_file",
        lambda t: t.scan().write_file("rows.csv", format="xls"),
        "format xls: choose one of parquet, csv, arrow, ndjson",
    ),
    ("write_file", lambda t: t.scan().write_file("rows/", file_size=5), "file_size 5: it must be a string or None"),
    ("snapshots", lambda t: t.snapshots(limit=-1), "limit -1: the number of rows cannot be negative"),
    ("scan", lambda t: t.scan(limit=2**80), "the maximum is 2^63 - 1"),
    ("open", lambda t: type(t).open(t.url, runtime="spark"), "runtime 'spark': it must be a Runtime or None"),
    ("Runtime", lambda t: call(Runtime, spark_threshold=5), "spark_threshold 5: it must be a string or None"),
    ("Runtime", lambda t: call(Runtime, session="local[2]"), "session 'local[2]': it must be a SparkSession or None"),
    ("Runtime", lambda t: call(Runtime, session=Frameless(), engine="local"), "session cannot be combined with engine='local'"),
    ("Runtime", lambda t: call(Runtime, session=[]), "list is not a Spark session"),
    ("Catalog", lambda t: call(Catalog, options=5), "options 5: it must be a dict with strings as keys or None"),
    ("TextForm", lambda t: call(TextForm, delimiter=1), "delimiter 1: it must be a string"),
    ("TextForm", lambda t: call(TextForm, null_values=[1]), "null_value [1]: it must be a list of strings"),
    ("expire", lambda t: t.expire(retain_max="x"), "retain_max 'x': it must be a whole number or None"),
    ("expire", lambda t: t.expire(older_than=1.5), "it must be a whole number or a string or a date or a timedelta or None"),
    ("to_duckdb", lambda t: t.scan().to_duckdb("x"), "connection 'x': it must be a DuckDBPyConnection or None"),
    ("to_duckdb", lambda t: t.scan().to_duckdb([]), "connection of type list: it must be a connection of DuckDB or None"),
    (
        "create",
        lambda t: type(t).create("other", columns=["id INT"], primary_key=0),
        "primary_key 0: it must be a string or a list",
    ),
    ("with_options", lambda t: t.with_options(None), "options None: it must be a dict with strings as keys"),
    ("orphan_rows", lambda t: t.orphan_rows(None), "orphans None: it must be an Orphans"),
    ("stage", lambda t: t.stage.write(None, "file"), "request None: it must be a WriteRequest"),
    (
        "compare",
        lambda t: call(Catalog().compare, t.url, t.url, snapshot_a=1.5),
        "snapshot_a 1.5: it must be a whole number or a string or a date or a timedelta or None",
    ),
    ("open", lambda t: type(t).open("a\0b"), "a name or path holds a NUL character"),
    ("stage", lambda t: t.stage.show("a\0b"), "a name or path holds a NUL character"),
    ("report", lambda t: t.report("a\0b"), "a name or path holds a NUL character"),
    ("write", lambda t: t.write("a\0b"), "a name or path holds a NUL character"),
    ("create", lambda t: type(t).create("other", from_file="a\0b"), "a name or path holds a NUL character"),
    ("create", lambda t: type(t).create("other", ddl="a\0b"), "a name or path holds a NUL character"),
    ("compact", lambda t: Catalog(t.url).compact(database="a\0b"), "a name or path holds a NUL character"),
    ("rescale", lambda t: t.rescale("x"), "buckets 'x': it must be a whole number or None"),
    ("tags", lambda t: t.tags.create(5), "name 5: it must be a string"),
    ("open", lambda t: type(t).open(None), "name None: it must be a string or a path"),
    ("open", lambda t: type(t).open(t.url, "x"), "options 'x': it must be a dict with strings as keys or None"),
    (
        "create",
        lambda t: type(t).create("other", columns=["id INT"], schema=pa.schema([("id", pa.int32())])),
        "the columns must come from a single source: columns and schema were given",
    ),
    (
        "create",
        lambda t: type(t).create("other", columns=["id INT"], options={1: "2"}),
        "options {1: '2'}: it must be a dict with strings",
    ),
    ("catalog", lambda t: call(Catalog().table, 5), "name 5: it must be a string"),
]


@pytest.mark.parametrize(("method", "wrong", "message"), WRONG)
def test_an_argument_of_a_wrong_type_is_named(tmp_path: Path, method: str, wrong: Callable[[Any], Any], message: str) -> None:
    table = example_table(tmp_path)
    before = table.snapshot_ids()
    with pytest.raises(UsageError) as raised:
        wrong(table)
    assert message in str(raised.value)
    assert table.snapshot_ids() == before


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table.scan(as_of=HALF),
        lambda table: table.scan(where=f"name = '{HALF}'"),
        lambda table: table.alter.set({"x.y": HALF}),
        lambda table: table.alter.set({HALF: "1"}),
        lambda table: table.tags.create(HALF),
        lambda table: Table.open(HALF),
    ],
    ids=range(6),
)
def test_a_text_that_no_table_can_store_is_refused(tmp_path: Path, use: Callable[[Table], Any]) -> None:
    table = example_table(tmp_path)
    with pytest.raises(UsageError, match=r"\\ud800.*: it has half of a surrogate pair, which is no character"):
        use(table)
    assert not list(table.tags.list())


def test_a_file_whose_name_is_no_text_may_be_named(tmp_path: Path) -> None:
    """The systems of other languages call their files so."""
    table = example_table(tmp_path)
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jsonl")
    Path(path).write_text('{"id": 77}\n')
    assert table.write(path, missing_columns="null").rows == 1


def test_the_parts_of_a_list_are_looked_at_whatever_list_it_is(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    for columns in (range(2), np.array([1, 2]), bytearray(b"ab"), {1}):
        with pytest.raises(UsageError, match=r"^columns .* it must be a string or a list"):
            call(table.scan, columns=columns)


def test_numbers_and_lists_of_other_libraries_are_taken(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    assert call(table.scan, limit=np.int64(2)).count() == 2
    assert call(table.scan, columns=pd.Index(["id"])).schema.names == ["id"]
    assert call(table.scan, columns=("id", "price"), row_kind=np.bool_(False)).schema.names == ["id", "price"]
    time = table.snapshots()[0].time
    assert table.scan(as_of=time).count() == table.scan(as_of=str(time)).count() == table.scan().count()
    with pytest.raises(NotFound):
        table.scan(as_of=99)


def test_integers_of_numpy_and_paths_are_taken_wherever_plain_ones_are(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    done = call(table.write, pa.table({"id": [9]}), commit_user="n", commit_id=np.int64(7))
    assert done.snapshots[0].commit_identifier == 7
    assert {file.bucket for file in call(table.files, bucket=np.int64(0))} == {0}
    assert call(table.compact, bucket=np.array([0])).buckets == 1
    call(table.consumers.reset, "c", next_snapshot=np.int64(1))
    call(table.scan().write_file, tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").exists()
    call(Table.create, "shop.t", columns=["id INT"], warehouse=tmp_path / "lake")
    assert [row.table for row in call(Catalog, tmp_path / "lake").tables()] == ["shop.t"]


def test_errors_of_the_system_are_errors_of_the_library(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StorageUnavailable, match=r"cannot write or read .*No such file or directory"):
        table.scan().export(str(tmp_path / "file" / "rows"))


def test_unknown_keywords_name_the_method(tmp_path: Path) -> None:
    table: Any = example_table(tmp_path)
    with pytest.raises(TypeError, match=r"Table.write\(\) got an unexpected keyword argument 'mode'"):
        table.write(pa.table({"id": [1]}), mode="append")
    with pytest.raises(TypeError, match=r"compact\(\) got an unexpected keyword argument 'full'"):
        table.compact(full=True)


def test_paths_name_tables(tmp_path: Path) -> None:
    created = Table.create(tmp_path / "t", columns=["id INT NOT NULL"], primary_key="id", bucket=1)
    assert Table.open(tmp_path / "t").url == created.url


@pytest.mark.parametrize(
    "data", [pd.DataFrame({"id": [1]}), polars.DataFrame({"id": [1]}), polars.LazyFrame({"id": [1]}), pa.table({"id": [1]})]
)
def test_data_in_memory_has_a_schema(tmp_path: Path, data: Any) -> None:
    created = Table.create(tmp_path / "t", schema=data, primary_key="id", bucket=1)
    assert created.columns == ["id"] and created.write(data).rows == 1


def test_a_schema_that_is_none_says_how_to_get_one(tmp_path: Path) -> None:
    schema: Any = {"id": "INT"}
    with pytest.raises(UsageError, match="it must be a pyarrow") as raised:
        Table.create(tmp_path / "t", schema=schema, primary_key="id")
    assert "frame.limit(0).toArrow().schema" in raised.value.hint
    scan: Any = example_table(tmp_path).scan(["id"])
    copy = Table.create(tmp_path / "copy", schema=scan, primary_key="id", bucket=1)
    assert copy.scan().schema.names == ["id"]


def test_a_class_for_type_checkers_only_is_any_that_is_not_plain() -> None:
    @checks_call
    def takes(first: SparkSession, *rest: int, second: Sequence[SparkSession] | None = None) -> Any:
        return first, rest, second

    assert call(takes, [], 2, 3, second=[()]) == ([], (2, 3), [()])
    with pytest.raises(UsageError, match="first 1: it must be a SparkSession"):
        call(takes, 1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        call(takes)


def test_what_precedes_a_request_may_be_named_as_well() -> None:
    @takes(EmptyOptions)
    def emptied(first: str, second: int, options: EmptyOptions) -> tuple[str, int, bool]:
        """Empty."""
        return first, second, options.expired

    named: Any = emptied  # type checkers know what precedes by its place only
    assert emptied("a", 2, expired=True) == named("a", second=2, expired=True) == named(first="a", second=2, expired=True)
