"""`paimon_cli.spark.write`: DataFrames into tables of every kind, one writer for each bucket."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from paimon_cli import Runtime, Table, spark
from paimon_cli.datatypes.variant_text import variant_texts
from paimon_cli.errors import BadInput, NotSupported, StorageUnavailable, UsageError
from paimon_cli.ingest.typed_columns import local_times
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.spark.java_runtime import find_java
from paimon_cli.pieces import PIECES
from paimon_cli.spark.spark_types import JAVA_ZONES, arrow_timezone
from tests.nightly import BRIEF, at_night
from tests.spark.beating_rows import BeatingRows
from tests.spark.notebook import Notebook
from tests.tables import data_files, make_table, named_files

COLUMNS = {"id": "BIGINT NOT NULL", "p": "STRING NOT NULL", "n": "BIGINT"}
KINDS = {
    "fixed buckets": (["id"], [], 3, {}),
    "partitions": (["p", "id"], ["p"], 2, {"merge-engine": "aggregation", "fields.n.aggregate-function": "max"}),
    "vectors": (["id"], [], 2, {"deletion-vectors.enabled": "true"}),
    "dynamic buckets": (["p", "id"], ["p"], -1, {"dynamic-bucket.target-row-num": "40"}),
    "no keys": ([], ["p"], -1, {}),
    "no keys, but buckets": ([], [], 3, {"bucket-key": "id"}),
}
ROWS_SQL = ("id % 200 as id", "concat('p', id % 2) as p", "id as n")
"""Each key twice, if there are 400 rows; the greater number comes later."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_part(3)
def test_rows_of_frames_are_those_of_local_writes(session: SparkSession, tmp_path: Path, kind: str) -> None:
    keys, partitions, bucket, options = KINDS[kind]
    tables = [
        Table.open(make_table(tmp_path / name, COLUMNS, keys, partitions, bucket, options).url) for name in ("spark", "local")
    ]
    frames = [session.range(start, start + 400, 1, 3).selectExpr(*ROWS_SQL) for start in (0, 100)]
    for frame in frames:
        summary = spark.write(frame.sortWithinPartitions("n"), tables[0].url)
        assert (summary.engine, summary.rows_read) == ("spark", 400)
        tables[1].write(frame.toArrow().sort_by("n"))
    found, expected = (sorted(map(repr, table.scan().to_arrow().to_pylist())) for table in tables)
    assert found == expected
    assert tables[0].verify(level="full").errors == 0
    assert data_files(tables[0].context) == named_files(tables[0].context)
    highest = max(file.max_sequence_number for s in tables[0].scan().rows.plan.splits for file in s.files)
    assert highest < 1000, "sequence numbers are not used up by the numbers of partitions"
    assert spark.read(session, tables[0].url).count() == len(expected)


@BRIEF
def test_a_notebook_on_this_machine(session: SparkSession, tmp_path: Path, brief: bool) -> None:
    Notebook(session, tmp_path, brief).run()


def test_a_frame_given_to_a_table_is_written_by_its_session(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows do not come to the driver."""
    monkeypatch.setattr(DataFrame, "__arrow_c_stream__", None, raising=False)
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], [], 2).url)
    frame = session.range(0, 400, 1, 3).selectExpr(*ROWS_SQL)
    summaries = [table.write(frame, commit_user="u", commit_id=1), spark.write(frame, table)]
    assert [(summary.engine, summary.rows_read) for summary in summaries] == [("spark", 400)] * 2
    assert table.count() == 200
    with pytest.raises(UsageError, match="the table is open"):
        spark.write(frame, table, branch="b")
    with pytest.raises(NotSupported, match="DataFrame of Spark"), table.transaction() as t:
        t.write(frame)
    with pytest.raises(UsageError, match="DataFrame of Spark"):
        table.merge(frame, on="id").when_matched_delete().execute()


def test_progress_of_the_table_is_shown(session: SparkSession, tmp_path: Path) -> None:
    phases: list[str] = []

    class Phases(NoProgress):
        def start(self, description: str, total: int | None) -> None:
            phases.append(description)

    url = make_table(tmp_path / "t", COLUMNS, ["id"], [], 2).url
    table = Table.open(url, runtime=Runtime(progress=Phases))
    frame = session.range(0, 40, 1, 3).selectExpr(*ROWS_SQL)
    spark.write(frame, table)
    spark.merge(frame, table, on="id").when_matched_delete().execute()
    assert phases == ["Writing rows", "Changing rows"]


def test_a_frame_is_merged_by_its_session(session: SparkSession, tmp_path: Path) -> None:
    for name, keys in (("keyed", ["id"]), ("append", [])):
        table = Table.open(make_table(tmp_path / name, COLUMNS, keys, [], 2 if keys else -1).url)
        table.write(session.range(0, 100, 1, 2).selectExpr(*ROWS_SQL))
        news = session.range(50, 150, 1, 2).selectExpr("id", "'new' as p", "id * 2 as n", "id % 10 = 0 as gone")
        merge = spark.merge(news, table if keys else table.url, on="id").when_matched_delete(condition="source.gone")
        done = merge.when_matched_update_all().when_not_matched_insert_all(condition="NOT gone").execute()
        assert (done.engine, done.updated, done.inserted, done.deleted) == ("spark", 45, 45, 5)
        rows = table.scan(order_by="id").to_arrow().to_pylist()
        expected = {i: i if i < 50 else 2 * i for i in range(150) if i < 50 or i % 10}
        assert {row["id"]: row["n"] for row in rows} == expected and len(rows) == len(expected)
    with pytest.raises(UsageError, match="not a Spark DataFrame"):
        spark.merge(pa.table({"id": [1]}), table.url, on="id")


@pytest.mark.parametrize("source_bytes", [PIECES.source_bytes, 500], ids=["in memory", "on disk"])
def test_rows_of_this_process_are_merged_in_a_session(
    session: SparkSession, tmp_path: Path, source_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks are other processes of this machine: they open the files of a large source."""
    monkeypatch.setattr(PIECES, "source_bytes", source_bytes)
    url = make_table(tmp_path / "t", COLUMNS, ["id"], [], 2).url
    table = Table.open(url, runtime=Runtime(session=session))
    table.write(pa.table({"id": range(100), "p": ["old"] * 100, "n": pa.array(range(100), pa.int32())}))
    news = pa.table({"id": range(50, 150), "p": ["new"] * 100, "n": pa.array(range(100), pa.int32())})
    done = table.merge(news, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.engine, done.updated, done.inserted) == ("spark", 50, 50)
    assert table.scan(where="p = 'new'").count() == 100 == 150 - table.scan(where="p = 'old'").count()


def test_rows_that_wait_for_their_buckets(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], bucket=-2).url)
    spark.write(session.range(0, 50, 1, 2).selectExpr(*ROWS_SQL), table.url)
    table.compact()
    assert table.scan().count() == 50
    assert table.verify(level="full").errors == 0


def test_rows_that_move_away_and_back(session: SparkSession, tmp_path: Path) -> None:
    """What deletes a row where it was comes before the row that comes back."""
    context = make_table(tmp_path / "t", {"p": "STRING", "id": "INT NOT NULL", "v": "INT"}, ["id"], ["p"], -1)
    home = [("a", number, 0) for number in range(50)]
    away_and_back = [row for number in range(50) for row in (("b", number, 1), ("a", number, 2))]
    for rows in (home, away_and_back):
        frame = session.createDataFrame([("c", 1000, 0), *rows], "p string, id int, v int").coalesce(1)
        spark.write(frame, context.url)
    found = sorted((row["p"], row["id"], row["v"]) for row in Table.open(context.url).scan().to_arrow().to_pylist())
    assert found == [*(("a", number, 2) for number in range(50)), ("c", 1000, 0)]


def test_kinds_overwrites_and_repeats(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], bucket=2).url)
    rows = session.range(0, 20, 1, 3).selectExpr(*ROWS_SQL)
    assert spark.write(rows, table.url, commit_user="q", commit_id=1).rows == 20
    assert spark.write(rows, table.url, commit_user="q", commit_id=1).already_committed
    kinds = rows.selectExpr("*", "if(id < 5, '-D', '+U') as op")
    spark.write(kinds, table.url, op_column="op")
    assert table.scan().count() == 15
    spark.write(rows.where("id = 7"), table.url, op="delete")
    assert table.scan().count() == 14
    spark.write(rows.where("id > 17"), table.url, overwrite=True)
    assert sorted(table.scan(["id"]).to_arrow().column("id").to_pylist()) == [18, 19]
    with pytest.raises(BadInput, match="the input is empty"):
        spark.write(rows.where("id > 100"), table.url, overwrite=True)
    spark.write(session.createDataFrame([], rows.schema), table.url)
    assert table.scan().count() == 2
    assert table.verify().errors == 0


def test_a_writer_that_owns_some_buckets(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], bucket=4).url)
    rows = session.range(0, 100, 1, 3).selectExpr(*ROWS_SQL)
    done = [spark.write(rows, table.url, bucket=own, other_buckets="skip") for own in (0, [1, 2], 3)]
    assert [one.rows + one.other_bucket_rows for one in done] == [100] * 3 and table.scan().count() == 100
    assert [len(one.touched) for one in done] == [1, 2, 1]
    with pytest.raises(BadInput, match="belongs to bucket"):
        spark.write(rows, table.url, bucket=2)
    assert len(table.snapshots()) == 3 and data_files(table.context) == named_files(table.context)


def test_bad_rows_fail_the_write_and_leave_no_files(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], bucket=2).url)
    rows = session.range(0, 20, 1, 3).selectExpr("id", "if(id = 13, null, 'p') as p", "id as n")
    with pytest.raises(BadInput, match=r"partition 2 of the DataFrame: row .*NOT NULL"):
        spark.write(rows, table.url)
    with pytest.raises(BadInput, match="the table has no column 'm'"):
        spark.write(rows.withColumnRenamed("n", "m"), table.url)
    with pytest.raises(UsageError):
        spark.write(rows, table.url, op="merge")  # type: ignore[arg-type]
    with pytest.raises(NotSupported, match=r"on_error='bad.csv' for a DataFrame: its rows cannot be read again"):
        spark.write(rows, table.url, on_error="bad.csv")
    assert table.snapshots() == []
    assert data_files(table.context) == set()


def test_times_are_shown_in_the_zone_of_the_session(session: SparkSession, tmp_path: Path) -> None:
    columns = {
        "id": "INT NOT NULL",
        "plain": "TIMESTAMP(6)",
        "zoned": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "kept": "TIMESTAMP(3)",
    }
    table = Table.open(make_table(tmp_path / "t", columns, ["id"]).url)
    moment = "timestamp'2024-07-01 12:00:00.123456+00:00'"
    text = f"select 1 as id, {moment} as plain, {moment} as zoned, timestamp_ntz'2024-07-01 12:00:00' as kept"
    spark.write(session.sql(text), table.url)
    (row,) = table.scan().to_arrow().to_pylist()
    assert str(row["plain"]) == "2024-07-01 08:00:00.123456"
    assert (
        str(row["zoned"].astimezone(pa.scalar(0, pa.timestamp("us", "UTC")).as_py().tzinfo)) == "2024-07-01 12:00:00.123456+00:00"
    )
    assert str(row["kept"]) == "2024-07-01 12:00:00"
    (shown,) = spark.read(session, table.url).selectExpr("cast(plain as string)", "cast(zoned as string)").collect()
    assert tuple(shown) == ("2024-07-01 08:00:00.123456",) * 2


@pytest.mark.parametrize("zone", ["GMT+02:00", "UTC+2", "+02:00", "Etc/GMT-2", "Z", "UT"])
def test_zones_of_spark_that_arrow_spells_differently(zone: str) -> None:
    seconds = local_times(pa.array([0], pa.timestamp("s", "UTC")), arrow_timezone(zone)).cast("int64").to_pylist()
    assert seconds == [0 if zone in ("Z", "UT") else 2 * 3600]


def test_abbreviations_of_zones_are_those_of_java(session: SparkSession) -> None:
    of_java = dict(session._jvm.java.time.ZoneId.SHORT_IDS)  # type: ignore[union-attr]
    in_both = {"EST": -5, "MST": -7, "HST": -10}  # offsets in Java 17, regions with these offsets since Java 23
    assert {name: zone for name, zone in of_java.items() if name not in in_both} == JAVA_ZONES
    assert all(arrow_timezone(name) == JAVA_ZONES[name] for name in JAVA_ZONES)
    for name, hours in in_both.items():
        instants = pa.array([0], pa.timestamp("s", "UTC"))
        assert local_times(instants, arrow_timezone(name)).cast("int64").to_pylist() == [hours * 3600]


def test_a_zone_that_arrow_does_not_have_is_refused(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", {"id": "INT NOT NULL", "plain": "TIMESTAMP(6)"}, ["id"]).url)
    rows = session.sql("select 1 as id, timestamp'2024-07-01 12:00:00+00:00' as plain")
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", "+02:00:30")
    try:
        with pytest.raises(NotSupported, match=r"time zone '\+02:00:30'.*\n.*spark.sql.session.timeZone"):
            spark.write(rows, table.url)
    finally:
        session.conf.set("spark.sql.session.timeZone", str(before))
    assert table.snapshots() == []


def test_names_with_dots_and_names_that_come_twice(session: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["`Id` BIGINT", "`x.y` INT", "`a``b` INT"], primary_key=["Id"])
    rows = session.createDataFrame([(1, 2, 3), (4, None, 6)], "Id long, `x.y` int, `a``b` int")
    spark.write(rows, table.url)
    assert table.scan().to_arrow().to_pylist() == [{"Id": 1, "x.y": 2, "a`b": 3}, {"Id": 4, "x.y": None, "a`b": 6}]
    assert sorted(map(tuple, spark.read(session, table.url).collect())) == [(1, 2, 3), (4, None, 6)]
    with pytest.raises(BadInput, match="Id"):
        spark.write(rows.selectExpr("*", "Id"), table.url)


@pytest.mark.parametrize("way", ["write", "format"])
def test_columns_whose_values_have_no_type(session: SparkSession, tmp_path: Path, way: str) -> None:
    columns = {"id": "BIGINT NOT NULL", "text": "STRING", "tags": "ARRAY<STRING>", "place": "ROW<city STRING>"}
    columns |= {"kv": "MAP<STRING, INT>"}
    table = Table.open(make_table(tmp_path / "t", columns, ["id"]).url)
    rows = session.range(2).selectExpr("id", "null AS text", "array() AS tags", "named_struct('city', null) AS place")

    def write(rows: DataFrame) -> None:
        if way == "write":
            spark.write(rows, table.url)
        else:
            rows.write.format("paimon").mode("append").save(table.url)

    write(rows)
    expected: list[dict[str, Any]] = [{"id": n, "text": None, "tags": [], "place": {"city": None}, "kv": None} for n in range(2)]
    assert table.scan(order_by="id").to_arrow().to_pylist() == expected
    refused = r"'kv' has type map<void,void>: Arrow has no maps whose keys have no type"
    with pytest.raises((BadInput, PySparkException), match=refused):
        write(rows.selectExpr("id", "map() AS kv"))


def test_only_spark_dataframes_are_accepted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Table is not a Spark DataFrame"):
        spark.write(pa.table({"id": [1]}), str(tmp_path / "t"))


def test_a_failed_expression_is_shown_with_the_exception_of_spark(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"]).url)
    rows = session.range(3).selectExpr("id", "'p' AS p", "if(id = 2, raise_error('no price'), id) AS n")
    with pytest.raises(BadInput, match="no price") as failed:
        spark.write(rows, table.url)
    assert "Spark's exception" in failed.value.hint
    assert isinstance(failed.value.__cause__, PySparkException)
    assert table.snapshot_ids() == []
    assert data_files(table.context) == set()


@pytest.mark.parametrize("keys", [["id"], at_night([])])
def test_no_task_goes_on_after_a_failure(session: SparkSession, tmp_path: Path, keys: list[str]) -> None:
    beating = BeatingRows(tmp_path / "beats")
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL"}, keys, bucket=2 if keys else -1).url)
    with pytest.raises(BadInput, match="the first partition fails"):
        spark.write(beating.frame(session, first_fails=True), table.url)
    assert beating.have_ended()
    assert table.snapshot_ids() == []
    assert data_files(table.context) == set()


def test_a_job_that_another_thread_cancels(session: SparkSession, tmp_path: Path) -> None:
    beating = BeatingRows(tmp_path / "beats")
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL"}, [], bucket=-1).url)

    def cancel() -> None:
        while not beating.file.exists():
            time.sleep(0.01)
        session.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(StorageUnavailable, match="the Spark job was cancelled"):
        spark.write(beating.frame(session, first_fails=False), table.url)
    thread.join()
    assert beating.have_ended()
    assert table.snapshot_ids() == []
    assert data_files(table.context) == set()


def test_a_stream_is_not_a_frame_to_write(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"]).url)
    with pytest.raises(UsageError, match="the DataFrame is a stream"):
        spark.write(session.readStream.format("rate").load(), table.url)


STOPPED = """
import sys

import paimon_cli.spark as paimon
from paimon_cli.errors import UsageError
from paimon_cli.jobs.spark.session import SparkRequest, start_spark

spark = start_spark(SparkRequest("local[1]")).session
rows = spark.range(3)
paimon.write(rows, sys.argv[1])
spark.stop()
for use in (lambda: paimon.write(rows, sys.argv[1]), lambda: paimon.read(spark, sys.argv[1])):
    try:
        use()
    except UsageError as error:
        print(error)
"""
"""Uses a session in a process of its own before and after it stops."""


def test_a_session_without_its_jvm_context_is_named(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So PySpark leaves a session that has been stopped. The one that tests share is not."""
    table, rows = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"]).url), session.range(3)
    monkeypatch.setattr(session.sparkContext, "_jsc", None)
    with pytest.raises(UsageError, match="the Spark session is stopped: it can run no more queries"):
        spark.write(rows, table.url)
    with pytest.raises(UsageError, match="the Spark session is stopped: it can run no more queries"):
        spark.read(session, table.url)
    assert table.snapshot_ids() == []


@pytest.mark.nightly
def test_a_stopped_session_is_named(tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS | {"p": "STRING"}, ["id"]).url)
    environment = {**os.environ, "JAVA_HOME": str(find_java(os.environ).home)}
    run = subprocess.run(
        [sys.executable, "-c", STOPPED, table.url], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    first, second = run.stdout.splitlines()
    assert first == second
    assert first.startswith("the Spark session is stopped: it can run no more queries")
    assert len(table.snapshots()) == 1 and table.scan().count() == 3


@pytest.mark.parametrize("keys", [["id"], at_night([])], ids=["with a key", "append"])
def test_variants(session: SparkSession, tmp_path: Path, keys: list[str]) -> None:
    """Spark's own VARIANTs are written, compacted by tasks, and read by Spark and by us: the bytes stay what Spark made."""
    columns = {"id": "BIGINT NOT NULL", "v": "VARIANT"}
    table = Table.open(make_table(tmp_path / "t", columns, keys, [], 1 if keys else -1).url, runtime=Runtime(session=session))
    texts = ['{"a":{"b":5},"s":"x"}', "[1,2.5,null]", '"text"', None]
    for start in (0, 2):
        part = session.createDataFrame([(start + i, texts[start + i]) for i in range(2)], "id long, t string").coalesce(1)
        spark.write(part.selectExpr("id", "parse_json(t) AS v"), table.url, compact="none")
    before = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    done = table.compact(strategy="full")
    assert done.engine == "spark"
    assert {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == before
    frame = spark.read(session, table.url).selectExpr("id", "to_json(v) AS t", "try_variant_get(v, '$.a.b', 'int') AS b")
    found = {row.id: (row.t, row.b) for row in frame.collect()}
    assert found == dict(enumerate(zip(texts, [5, None, None, None], strict=True)))
    assert variant_texts(table.scan(order_by="id").to_arrow()["v"].combine_chunks()).to_pylist() == texts
    by_condition = spark.read(session, table.url, where="variant_get(v, '$.a.b', 'INT') = 5").collect()
    assert [row.id for row in by_condition] == [0]
