"""`paimon_cli.spark.read`: the rows of the engine's own scans, read by Spark's Parquet reader wherever that is right."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from paimon_cli import Table, spark
from paimon_cli.datatypes.data_type import TimestampType
from paimon_cli.errors import DamagedFile, NotFound, NotSupported, UsageError
from paimon_cli.jobs.row_scan import RowScan
from paimon_cli.read.scan_plan import Split
from paimon_cli.spark import native_files as division
from paimon_cli.spark import reading
from paimon_cli.spark.native_files import NativeFile
from paimon_cli.spark.reading import _native_frame
from tests.goldens import golden_table
from tests.tables import make_table, write

GOLDENS = {
    "java-0.9/append_fixed": "native",
    "java-0.9/dv_partitioned": "native",
    "java-0.9/partition_escapes": "native",
    "java-0.9/key_ts6": "native",
    "java-0.9/schema_evolution": "native",
    "java-0.9/types_orc": "python",
    "pypaimon-2.1/append": "native",
    "rust-0.4/append": "native",
}
"""Which way the files of a table are read."""


def as_sorted(rows: pa.Table) -> list[str]:
    return sorted(repr(list(row.values())) for row in rows.to_pylist())


def check(frame: DataFrame, scanned: pa.Table) -> None:
    """Equal rows, in any order; Spark's timestamps have microseconds, whatever the table's precision."""
    found = frame.toArrow()
    assert found.column_names == scanned.column_names
    assert as_sorted(found) == as_sorted(scanned.cast(found.schema))


def divided(scan: RowScan, native: bool | None) -> tuple[list[NativeFile], list[Split]]:
    found = division.divided(scan, native)
    return list(found.files), list(found.splits)


def readable(table: Table) -> list[str]:
    """The columns that Spark can hold."""
    types = {column.name: column.type for column in table.context.schema.fields}
    return [name for name, t in types.items() if t.root != "TIME" and not (isinstance(t, TimestampType) and t.precision > 6)]


@pytest.mark.parametrize(("golden", "way"), GOLDENS.items())
@pytest.mark.in_part(2)
def test_tables_of_other_writers(session: SparkSession, tmp_path: Path, golden: str, way: str) -> None:
    table = Table.open(str(golden_table(golden.partition("/")[0], golden.partition("/")[2], tmp_path)))
    columns = readable(table)
    scan = table.scan(columns)
    files, splits = divided(scan.rows, None)
    assert ("native" if not splits else "both" if files else "python") == way
    check(spark.read(session, table.url, columns), scan.to_arrow())
    if way == "native":
        check(spark.read(session, table.url, columns, native=False), scan.to_arrow())


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A compacted table with nulls, and one in whose newest file a row was deleted."""
    context = make_table(
        tmp_path_factory.mktemp("orders") / "t",
        {"id": "BIGINT NOT NULL", "name": "STRING", "qty": "INT", "price": "DECIMAL(10, 2)", "day": "DATE", "score": "DOUBLE"},
        ["id"],
        options={"num-levels": "3", "write-only": "true"},
    )
    table = Table.open(context.url)
    ids = list(range(40))
    table.write(
        pa.table(
            {
                "id": ids,
                "name": [None if n % 5 == 0 else f"n{n % 7}" for n in ids],
                "qty": [None if n % 4 == 0 else n for n in ids],
                "price": pa.array([n / 4 for n in ids]).cast(pa.decimal128(10, 2)),
                "day": pa.array([19000 + n for n in ids], pa.int32()).cast(pa.date32()),
                "score": [float("nan") if n % 9 == 0 else n / 2 for n in ids],
            }
        )
    )
    table.compact(strategy="full")
    return table


CONDITIONS = {
    "id = 7": True,
    "id <> 7 AND qty > 20": True,
    "NOT (qty > 20)": True,
    "qty IS NULL OR name = 'n3'": True,
    "name IN ('n1', 'n2') AND NOT (id IN (1, 2, 8))": True,
    "day >= DATE '2022-01-20' AND price < 5.25": True,
    "day > DATE '0001-01-01' AND day IN (DATE '0999-12-31', DATE '2022-01-20')": True,
    "name IS NOT NULL AND NOT (name = 'n1' OR qty < 10)": True,
    "qty BETWEEN 3 AND 9": True,
    "score > 3": False,
    "NOT (score < 3)": False,
    "name LIKE 'n%' AND id > 3": False,
    "qty * 2 = 12": False,
}
"""Whether Spark computes the condition itself."""


@pytest.mark.parametrize(("where", "native"), CONDITIONS.items())
def test_conditions_select_what_the_engine_selects(session: SparkSession, orders: Table, where: str, native: bool) -> None:
    scan = orders.scan(["name", "id"], where)
    assert bool(divided(scan.rows, None)[0]) == native
    check(spark.read(session, orders.url, ["name", "id"], where), scan.to_arrow())


@pytest.mark.parametrize("native", [None, False])
def test_conditions_take_parameters(session: SparkSession, tmp_path: Path, native: bool | None) -> None:
    table = Table.open(make_table(tmp_path / "t", {"k": "BIGINT NOT NULL", "v": "STRING"}, ["k"], bucket=1).url)
    table.write([{"k": 1, "v": "O'Brien"}, {"k": 2, "v": "v"}, {"k": 3, "v": "x"}])
    where, params = "v IN :names AND k < :most", {"names": ["O'Brien", "v"], "most": 2}
    assert [row["k"] for row in spark.read(session, table.url, where=where, params=params, native=native).collect()] == [1]


def test_a_frame_keeps_its_snapshot_and_takes_conditions_of_spark(session: SparkSession, orders: Table) -> None:
    frame = spark.read(session, orders.url)
    before = frame.where("qty > 20").count()
    orders.write(pa.table({"id": [100], "qty": [99]}))
    assert frame.where("qty > 20").count() == before
    latest = spark.read(session, orders.url)
    assert latest.where("qty > 20").count() == before + 1
    assert latest.agg(F.max("id")).collect()[0][0] == 100


def test_deleted_rows_stay_hidden_in_files_that_no_compaction_has_seen(session: SparkSession, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "INT"}, ["id"], options={"write-only": "true"})
    table = Table.open(context.url)
    kinds = ["+I", "-D", "+U", "-U"]
    table.write(pa.table({"id": [1, 2, 3, 4], "n": [1, 2, 3, 4], "op": kinds}), op_column="op")
    (file,) = native_files(table)
    assert file.has_retractions
    check(spark.read(session, table.url), table.scan().to_arrow())
    changes = spark.read(session, table.url, row_kind=True).toArrow()
    assert sorted(changes.column("rowkind").to_pylist()) == ["+I", "+U", "-D", "-U"]


def native_files(table: Table, columns: list[str] | None = None) -> list[NativeFile]:
    files, splits = divided(table.scan(columns).rows, None)
    assert not splits
    return files


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
        ("spark.sql.sources.useV1SourceList", "avro,csv"),
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.parquet.enableVectorizedReader", "false"),
    ],
)
def test_settings_of_the_session_change_no_row(session: SparkSession, tmp_path: Path, key: str, value: str) -> None:
    """A day of the Julian calendar, in a file in which another row is marked as deleted."""
    columns = {"id": "BIGINT NOT NULL", "day": "DATE"}
    table = Table.open(make_table(tmp_path / "t", columns, ["id"], options={"deletion-vectors.enabled": "true"}).url)
    table.write(pa.table({"id": [1, 2], "day": [date(1400, 3, 1), date(2026, 3, 1)]}))
    table.delete("id = 2")
    session.conf.set(key, value)
    try:
        check(spark.read(session, table.url), table.scan().to_arrow())
    finally:
        session.conf.unset(key)


@pytest.mark.parametrize("keys", [[], ["id"]])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("bounds_of_arrow", [False, True])
@pytest.mark.in_part(4)
def test_nan_is_the_greatest_number_in_conditions_of_spark(
    session: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: list[str],
    nested: bool,
    bounds_of_arrow: bool,
) -> None:
    """Arrow's bounds of row groups and pages ignore NaN, so that Spark's reader would skip what `x > 6` selects.

    Files of other writers have them. Spark may read files of this one by itself.
    """
    if bounds_of_arrow:
        monkeypatch.setattr("paimon_cli.bucket.nan_bounds.without_bounds", lambda footer, chunks: footer)
    columns = {"id": "BIGINT NOT NULL", "x": "ROW<y ROW<z FLOAT>>" if nested else "DOUBLE"}
    table = Table.open(make_table(tmp_path / "t", columns, keys, bucket=1 if keys else -1).url)
    for numbers in ([0.5, float("nan"), 5.0], [1.5, None, 7.0]):
        first = 3 * len(table.snapshot_ids())
        values = [{"y": {"z": number}} for number in numbers] if nested else numbers
        table.write(pa.table({"id": range(first, first + 3), "x": pa.array(values, table.scan("x").schema.field("x").type)}))
    assert [file.may_hold_nan for file in native_files(table)] == [True, nested]
    assert not any(file.may_hold_nan for file in native_files(table, ["id"]))
    frames, x = [spark.read(session, table.url)], "x.y.z" if nested else "x"
    if not bounds_of_arrow:
        frames.append(session.read.parquet(*map(str, Path(table.url).glob("bucket-*/data-*.parquet"))))
    for condition, found in {f"{x} > 6": [1, 5], f"{x} = double('NaN')": [1], f"{x} < 1": [0]}.items():
        for rows in frames:
            assert [row.id for row in rows.where(condition).select("id").sort("id").collect()] == found


@pytest.mark.parametrize("key", ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"])
def test_a_lost_file_is_an_error_even_if_the_session_ignores_such_files(session: SparkSession, tmp_path: Path, key: str) -> None:
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "n": "INT"}, ["id"]).url)
    table.write(pa.table({"id": [1], "n": [1]}))
    frame = spark.read(session, table.url)
    for file in Path(table.url).glob("bucket-*/data-*"):
        file.unlink() if key.endswith("MissingFiles") else file.write_bytes(b"PAR1 damaged PAR1")
    session.conf.set(key, "true")
    try:
        with pytest.raises((PySparkException, Py4JJavaError), match=r"FAILED_READ_FILE"):
            frame.collect()
    finally:
        session.conf.unset(key)


@pytest.mark.parametrize("native", [None, False])
def test_a_limit_counts_the_rows_of_all_files(session: SparkSession, tmp_path: Path, native: bool | None) -> None:
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "n": "INT"}, ["id"], bucket=3).url)
    for n in range(2):
        table.write(pa.table({"id": range(30), "n": [n] * 30}))
    few = spark.read(session, table.url, limit=7, native=native).collect()
    assert len({row.id for row in few}) == 7
    assert {row.n for row in few} == {1}
    assert spark.read(session, table.url, limit=99, where="id >= 10", native=native).count() == 20
    with pytest.raises(UsageError, match="limit -1"):
        spark.read(session, table.url, limit=-1)


def test_a_session_is_expected(session: SparkSession, orders: Table) -> None:
    others: list[Any] = [None, session.range(1)]
    for given in others:
        with pytest.raises(UsageError, match=r"spark None: it must be a SparkSession|DataFrame is not a Spark session"):
            spark.read(given, orders.url)


def test_rows_that_wait_for_their_buckets_are_merged(session: SparkSession, tmp_path: Path) -> None:
    """The files that give them buckets are of this process, and Spark's own reader would look for them in the table."""
    options = {"postpone.batch-write-fixed-bucket": "false", "postpone.merge-on-read": "true"}
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "s": "STRING"}, ["id"], bucket=-2, options=options)
    write(context, [{"id": n, "s": "a"} for n in range(4)])
    write(context, [{"id": 2, "s": "b"}])
    frame = spark.read(session, context.url)
    gc.collect()
    assert sorted(map(tuple, frame.collect())) == [(0, "a"), (1, "a"), (2, "b"), (3, "a")]
    by_format = session.read.format("paimon").load(context.url)
    write(context, [{"id": 1, "s": "c"}])
    assert [by_format.count(), by_format.where("s = 'b'").count()] == [4, 1]
    older = session.read.format("paimon").schema("s STRING").option("snapshot", "1").load(context.url)
    assert [row.s for row in older.collect()] == ["a"] * 4


@pytest.mark.parametrize("max_literal_files", [16, 0])
@pytest.mark.in_part(2)
def test_overlapping_files_are_read_natively_without_superseded_rows(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_literal_files: int
) -> None:
    """Upserts, deletes and an older schema; Spark prunes columns and rows, and the frame keeps its snapshot."""
    monkeypatch.setattr(reading, "MAX_LITERAL_FILES", max_literal_files)
    columns = {"id": "INT NOT NULL", "day": "STRING NOT NULL", "n": "INT", "text": "STRING"}
    options = {"write-only": "true", "file.block-size": "4 kb"}
    context = make_table(tmp_path / "t", columns, ["id", "day"], ["day"], bucket=2, options=options)
    table = Table.open(context.url)

    def upsert(ids: range, word: str, op: Any = "upsert") -> None:
        days = ["mon" if n % 3 else "tue" for n in ids]
        table.write(pa.table({"id": ids, "day": days, "n": [n % 11 for n in ids], "text": [f"{word} {n}" for n in ids]}), op=op)

    upsert(range(2000), "first")
    upsert(range(500, 1500, 3), "second")
    table.alter.rename_column("n", "m")
    table.refresh()
    table.delete(where="m = 4 AND id < 900")
    frame = spark.read(session, table.url)
    expected = table.scan().to_arrow()
    conditions = ("m = 5", "id BETWEEN 490 AND 510", "text LIKE 'second%'", "day = 'tue' AND m < 2", "text IS NULL")
    matching = {where: table.scan(where=where).to_arrow() for where in conditions}
    assert not divided(table.scan().rows, None)[1]
    upsert_in_the_meantime = {"id": [1], "day": ["mon"], "m": [99], "text": ["later"]}
    table.write(pa.table(upsert_in_the_meantime))
    check(frame, expected)
    for where, rows in matching.items():
        check(frame.where(where), rows)
    assert frame.select("m").count() == len(expected)
    check(spark.read(session, table.url, ["m", "id"]), table.scan(["m", "id"]).to_arrow())


def test_keys_are_merged_on_the_driver_only_if_that_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "INT"}, ["id"], options={"write-only": "true"})
    table = Table.open(context.url)
    for _ in range(2):
        table.write(pa.table({"id": range(10), "n": range(10)}))
    assert {file.hidden is None for file in native_files(table)} == {True, False}
    for asked in ({"columns": ["n"]}, {"where": "n = 1"}):
        assert not divided(table.scan(**asked).rows, None)[0], "workers read no more than this"
    monkeypatch.setattr(division, "MAX_MERGED_ROWS", 19)
    assert not divided(table.scan().rows, None)[0]


def many_small_buckets(folder: Path, options: dict[str, str]) -> Table:
    """40 compacted buckets of about 100 rows each, of which some were replaced later."""
    columns = ["id BIGINT", "n INT"]
    table = Table.create(str(folder / "t"), columns=columns, primary_key=["id"], bucket=40, options=options)
    table.write(pa.table({"id": range(4000), "n": range(4000)}), compact="none")
    table.compact(strategy="full")
    table.write(pa.table({"id": range(0, 4000, 9), "n": [-1] * 445}))
    return table


@pytest.mark.parametrize("options", [{"write-only": "true"}, {"deletion-vectors.enabled": "true"}])
@pytest.mark.in_part(2)
def test_many_small_files_with_rows_to_leave_out_are_read_by_workers(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    table = many_small_buckets(tmp_path, options)
    assert not divided(table.scan().rows, None)[0]
    check(spark.read(session, table.url), table.scan().to_arrow())
    monkeypatch.setattr(division, "SMALL_FILE", 10)
    files, splits = divided(table.scan().rows, None)
    assert len([file for file in files if file.hidden is not None]) > 30 and not splits
    check(spark.read(session, table.url), table.scan().to_arrow())


@pytest.mark.parametrize("threshold", [None, "7"])
def test_spark_runs_no_job_to_list_files(session: SparkSession, tmp_path: Path, threshold: str | None) -> None:
    table = many_small_buckets(tmp_path, {"write-only": "true"})
    table.compact(strategy="full")
    context, setting = session.sparkContext, reading.LISTED_BY_JOB
    if threshold is not None:
        session.conf.set(setting, threshold)
    try:
        context.setJobGroup("listing", "")
        frame = spark.read(session, table.url)
        assert not context.statusTracker().getJobIdsForGroup("listing")
        assert session.conf.get(setting, None) == threshold
    finally:
        session.conf.unset(setting)
        context.setJobGroup("others", "")
    assert len(frame.inputFiles()) == 40
    check(frame, table.scan().to_arrow())


@pytest.mark.parametrize("most_literal_files", [16, 0])
@pytest.mark.in_part(2)
def test_marked_rows_of_files_in_many_pieces(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_literal_files: int
) -> None:
    """Row numbers stay right under Spark's filters, and where a file is cut into several tasks; by literals and by broadcast."""
    monkeypatch.setattr(reading, "MAX_LITERAL_FILES", most_literal_files)
    options = {"deletion-vectors.enabled": "true", "file.block-size": "8 kb", "bucket": "2"}
    columns = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64()), ("text", pa.string())])
    table = Table.create(str(tmp_path / "t"), schema=columns, primary_key=["id"], options=options)
    ids = range(6000)
    table.write(pa.table({"id": ids, "n": [n * 7919 % 6000 for n in ids], "text": [f"some text {n}" for n in ids]}))
    table.compact(strategy="full")
    table.write(pa.table({"id": range(0, 6000, 9), "n": [-1] * 667}), op="delete")
    table.write(pa.table({"id": range(1, 6000, 50), "n": [-1] * 120}))
    assert any(file.hidden is not None for file in native_files(table))
    session.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        frame = spark.read(session, table.url)
        check(frame, table.scan().to_arrow())
        for where in ("id BETWEEN 2000 AND 2100", "n = -1", "n > 5900", "text LIKE '%99'"):
            check(frame.where(where), table.scan(where=where).to_arrow())
        assert frame.select("n").count() == table.scan().count()
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.parametrize("most_literal_rows", [1000, 0])
@pytest.mark.in_part(2)
def test_marked_rows_of_files_of_equal_size(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_literal_rows: int
) -> None:
    monkeypatch.setattr(reading, "MAX_LITERAL_ROWS", most_literal_rows)
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT", "n INT"], options={"deletion-vectors.enabled": "true"})
    for number in range(3):
        table.write(pa.table({"id": range(100), "n": pa.array([number] * 100, pa.int32())}))
    table.delete(where="n = 0 AND id % 7 = 3 OR n = 1 AND id < 50 OR n = 2 AND id = 99")
    files = native_files(table)
    assert all(file.hidden is not None for file in files)
    assert len({file.size for file in files}) < len(files) == 3
    check(spark.read(session, table.url), table.scan().to_arrow())
    scan = table.scan().rows
    other = _native_frame(session, scan, [replace(files[0], size=1), *files[1:]])
    with pytest.raises(PySparkException, match="another size"):
        other.collect()


def test_marked_files_of_one_size_take_few_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"deletion-vectors.enabled": "true", "source.split.target-size": "1 b"}
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT"], options=options)
    for _ in range(3):
        table.write(pa.table({"id": range(100)}))
    table.delete(where="id = 7")
    scan = table.scan().rows
    assert len(divided(scan, None)[0]) == 3
    monkeypatch.setattr(division, "MAX_TWINS", 2)
    native, rest = divided(scan, None)
    assert (len(native), len(rest)) == (2, 1)


def test_no_bitmap_is_made_for_rows_that_a_file_does_not_hold(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT"], options={"deletion-vectors.enabled": "true"})
    table.write(pa.table({"id": range(100)}))
    table.delete(where="id = 7")
    scan = table.scan().rows
    (split,) = scan.plan.splits
    (file,) = split.files
    false = replace(split, bucket=replace(split.bucket, files=(replace(file, row_count=1 << 28),)))
    lying = replace(scan, plan=replace(scan.plan, splits=(false,)))
    tracemalloc.start()
    with pytest.raises(DamagedFile, match="it holds 100 rows, but its manifest says"):
        divided(lying, None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_files_of_older_schemas(session: SparkSession, tmp_path: Path) -> None:
    """A renamed column is found, an added one is null, and one that took an old name does not show the old values."""
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}, ["id"])
    table = Table.open(context.url)
    table.write(pa.table({"id": [1, 2], "a": [10, 20], "b": ["x", "y"]}))
    table.alter.rename_column("a", "aa")
    table.alter.drop_column("b")
    table.alter.add_column("b STRING")
    table.alter.add_column("c INT")
    table.refresh()
    table.write(pa.table({"id": [3], "aa": [30], "b": ["z"]}))
    assert len(native_files(table)) == 2
    frame = spark.read(session, table.url, where="aa >= 20")
    check(frame, table.scan(where="aa >= 20").to_arrow())
    assert dict(frame.dtypes) == {"id": "int", "aa": "int", "b": "string", "c": "int"}
    table.alter.alter_column("aa", "BIGINT")
    table.refresh()
    assert not divided(table.scan().rows, None)[0]
    check(spark.read(session, table.url), table.scan().to_arrow())
    assert native_files(table, ["id"])


def test_paths_that_spark_would_take_for_patterns(session: SparkSession, tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path / "a{b}[c]" / "t"), columns=["id INT NOT NULL"], primary_key=["id"], options={"bucket": "1"}
    )
    assert spark.read(session, table.url).collect() == []
    table.write(pa.table({"id": [1, 2]}))
    assert not divided(table.scan().rows, None)[0]
    check(spark.read(session, table.url), table.scan().to_arrow())


@pytest.mark.parametrize("prefix", ["_data-", ".data-", "a:b-"])
def test_files_that_spark_would_leave_out_for_their_names(session: SparkSession, tmp_path: Path, prefix: str) -> None:
    table = Table.create(tmp_path / "t", columns=["id INT"], options={"data-file.prefix": prefix})
    table.write(pa.table({"id": pa.array([1, 2], pa.int32())}))
    assert spark.explain(session, table, native=True).python_files == 1
    if prefix == "_data-":
        check(spark.read(session, table.url), table.scan().to_arrow())


def test_names_and_columns_that_spark_cannot_have(session: SparkSession, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "a.b": "INT", "at": "TIME", "ns": "TIMESTAMP(9)"}, ["id"])
    table = Table.open(context.url)
    table.write(pa.table({"id": [1], "a.b": [2]}))
    for column in ("at", "ns"):
        with pytest.raises(NotSupported, match=f"cannot read column '{column}' into Spark") as raised:
            spark.read(session, table.url, ["id", column])
        assert raised.value.hint.startswith("leave it out: name the other columns in columns")
    table.write(pa.table({"id": [3], "ns": pa.array([1_000_000_001], pa.timestamp("ns"))}))
    table.alter.alter_column("ns", "TIMESTAMP(6)")  # the hint of the error
    assert [row.ns for row in spark.read(session, table.url, ["ns"], "id = 3").collect()] == [datetime(1970, 1, 1, 0, 0, 1)]
    frame: Any = spark.read(session, table.url, ["id", "`a.b`"])
    assert frame.select("`a.b`").collect()[0][0] == 2
    with pytest.raises(NotFound):
        spark.read(session, str(tmp_path / "other"))


@pytest.mark.parametrize("case_sensitive", ["true", "false"])
def test_columns_that_differ_only_in_case(session: SparkSession, tmp_path: Path, case_sensitive: str) -> None:
    columns = ["id INT NOT NULL", "n INT", "N STRING"]
    table = Table.create(str(tmp_path / "t"), columns=columns, primary_key="id", bucket=1)
    table.write(pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([2], pa.int32()), "N": ["big"]}))
    session.conf.set(reading.CASE_SENSITIVE, case_sensitive)
    try:
        assert [row.asDict() for row in spark.read(session, table.url).collect()] == [{"id": 1, "n": 2, "N": "big"}]
        assert [row.asDict() for row in spark.read(session, table.url, columns=["N", "id"]).collect()] == [{"N": "big", "id": 1}]
        assert spark.read(session, table.url, columns=["id", "n"], where="N = 'big'").select("n").collect() == [(2,)]
    finally:
        session.conf.unset(reading.CASE_SENSITIVE)


@pytest.mark.parametrize("change", ["dropped", "renamed"])
def test_columns_of_old_files_that_differ_only_in_case(session: SparkSession, tmp_path: Path, change: str) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id INT NOT NULL", "n INT", "N STRING"])
    table.write(pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([2], pa.int32()), "N": ["big"]}))
    if change == "dropped":
        table.alter.drop_column("N")
    else:
        table.alter.rename_column("N", "m")
    assert [tuple(row)[:2] for row in spark.read(session, table.url).collect()] == [(1, 2)]


def test_fields_that_differ_only_in_case(session: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id INT", "s ARRAY<ROW<n INT, N INT>>"])
    rows = pa.StructArray.from_arrays([pa.array([2], pa.int32()), pa.array([3], pa.int32())], ["n", "N"])
    table.write(pa.table({"id": pa.array([1], pa.int32()), "s": pa.ListArray.from_arrays([0, 1], rows)}))
    assert [tuple(row.s[0]) for row in spark.read(session, table.url).collect()] == [(2, 3)]


@pytest.mark.parametrize("name", ["_key_id", "_value_kind", "_Sequence_Number"])
def test_a_column_that_differs_from_one_of_the_files_only_in_case(session: SparkSession, tmp_path: Path, name: str) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id INT NOT NULL", f"{name} INT"], primary_key="id", bucket=1)
    table.write(pa.table({"id": pa.array([1], pa.int32()), name: pa.array([7], pa.int32())}))
    assert [tuple(row) for row in spark.read(session, table.url).collect()] == [(1, 7)]


@pytest.mark.parametrize(
    ("name", "renamed"), [("_metadata", False), ("_Metadata", True), *((f"_paimon_{part}", False) for part in ("size", "Words"))]
)
def test_a_column_called_as_one_that_is_added_to_leave_rows_out(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, renamed: bool
) -> None:
    monkeypatch.setattr(reading, "MAX_LITERAL_FILES", 0)
    options = {"write-only": "true"}
    table = Table.open(make_table(tmp_path / "t", {"id": "INT NOT NULL", name: "INT"}, ["id"], options=options).url)
    for n in (1, 2):
        table.write(pa.table({"id": pa.array([n, 3], pa.int32()), name: pa.array([n, n], pa.int32())}))
    if renamed:
        table.alter.rename_column(name, "m")
    assert sorted(tuple(row) for row in spark.read(session, table.url).collect()) == [(1, 1), (2, 2), (3, 2)]


def test_the_plan_says_what_spark_reads_itself(session: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "BIGINT NOT NULL", "n": "BIGINT"}
    table = Table.open(make_table(tmp_path / "t", columns, ["id"], bucket=2).url)
    assert spark.explain(session, table).native_files == 0
    for first in (0, 50):
        table.write(pa.table({"id": range(first, first + 100), "n": range(100)}), compact="none")
    plan = spark.explain(session, table.url)
    assert (plan.native_files, plan.native_rows, plan.hidden_rows, plan.python_files, plan.reasons) == (4, 200, 50, 0, {})
    assert plan.native_rows - plan.hidden_rows == spark.read(session, table).count()
    merged = spark.explain(session, table, columns="id")
    assert (merged.native_files, merged.python_files, merged.python_tasks) == (0, 4, 2)
    assert merged.reasons == {"files overlap and must be merged": 4}
    assert spark.explain(session, table, native=False).reasons == {"native=False": 4}
    assert "python_files=4" in repr(merged) and "files overlap" in merged._repr_html_()
    orc = Table.open(make_table(tmp_path / "o", columns, [], bucket=-1, options={"file.format": "orc"}).url)
    orc.write(pa.table({"id": [1], "n": [1]}))
    assert spark.explain(session, orc).reasons == {"orc files": 1}


def test_tables_and_scans_become_frames(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "n": "BIGINT"}, ["id"], bucket=2).url)
    table.write(pa.table({"id": range(100), "n": range(100)}))
    scan = table.scan(["n"], where="id < 10", limit=4)
    table.write(pa.table({"id": [5], "n": [500]}))
    frames = [scan.to_spark(session), spark.read(session, scan), spark.read(session, scan, native=False)]
    for frame in frames:
        assert frame.columns == ["n"]
        rows = [row.n for row in frame.collect()]
        assert len(rows) == 4 and max(rows) < 10, "of the snapshot of the scan"
    assert table.to_spark(session, where="id = 5").collect() == [(5, 500)]
    assert table.to_spark(session, "n", snapshot=1, native=False).agg({"n": "max"}).collect() == [(99,)]
    with pytest.raises(UsageError, match="the scan is planned"):
        spark.read(session, scan, where="id = 1")
    with pytest.raises(UsageError, match="order_by of a scan"):
        table.scan(order_by="id").to_spark(session)
    with pytest.raises(UsageError, match="the table is open"):
        spark.read(session, table, branch="b")
