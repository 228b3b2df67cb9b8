"""`spark.read.format("paimon")` and `df.write.format("paimon")`, found by their name."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pyspark_paimon
from paimon_cli import Table, spark
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.jobs.spark.tasks import TASK_END_SECONDS
from paimon_cli.spark import PaimonDataSource
from paimon_cli.spark.data_source import PaimonReader
from tests.nightly import at_night
from tests.spark.beating_rows import BeatingRows
from tests.tables import data_files, live_files, make_table

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "qty": "INT"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Ten rows, the first of them written twice."""
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], bucket=2).url)
    table.write(pa.table({"id": range(10), "name": [f"n{n}" for n in range(10)], "qty": range(10)}))
    table.write(pa.table({"id": [0], "name": ["it's"], "qty": [50]}))
    return table


def test_reads_prune_by_schema_and_options(session: SparkSession, table: Table) -> None:
    rows = session.read.format("paimon").load(table.url)
    assert rows.schema.simpleString() == "struct<id:bigint,name:string,qty:int>"
    assert rows.count() == 10
    rows.createOrReplaceTempView("orders")
    assert session.sql("select sum(qty), count(name) from orders where id < 2").collect()[0][:] == (51, 2)
    pruned = session.read.format("paimon").schema("qty int, id bigint").option("where", "id = 0").load(table.url)
    assert [tuple(row) for row in pruned.collect()] == [(50, 0)]
    older = session.read.format("paimon").option("snapshot", 1).option("columns", "name").load(table.url)
    assert older.columns == ["name"] and "n0" in {row.name for row in older.collect()}
    changes = session.read.format("paimon").option("incremental", "1..2").option("row_kind", "true").load(table.url)
    assert [tuple(row) for row in changes.collect()] == [("+I", 0, "it's", 50)]


@pytest.mark.parametrize(
    ("option", "value"), [("snapshot", "2"), ("tag", "named"), ("scan.snapshot-id", "2"), ("scan.tag-name", "named")]
)
@pytest.mark.in_part(2)
def test_an_older_snapshot_has_the_columns_of_its_time(session: SparkSession, table: Table, option: str, value: str) -> None:
    table.tags.create("named", snapshot=2)
    table.alter.rename_column("name", "title")
    table.alter.add_column("price DOUBLE")
    older = session.read.format("paimon").option(option, value).load(table.url)
    assert older.columns == ["id", "name", "qty"] and older.count() == 10
    kinds = session.read.format("paimon").options(**{option: value, "row_kind": "true"}).load(table.url)
    assert kinds.columns == ["rowkind", "id", "name", "qty"] and kinds.count() == 10
    assert session.read.format("paimon").load(table.url).columns == ["id", "title", "qty", "price"]


def test_a_data_frame_keeps_its_rows_for_all_its_filters(session: SparkSession, table: Table) -> None:
    """Spark 4.3 plans a Python source once for each DataFrame, so that a filter pushed by one query would apply to all."""
    rows = session.read.format("paimon").load(table.url)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert [rows.where("id < 2").count(), rows.count(), rows.where("id >= 8").count()] == [2, 10, 2]
        assert rows.where("id < 2").union(rows.where("id = 9")).union(rows).count() == 13
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("wher", "id = 1", r"unknown option wher: (.|\n)*did you mean where\?"),
        ("rowKind", "true", r"unknown option rowkind: (.|\n)*did you mean row_kind\?"),
        ("readChangeFeed", "true", r"unknown option readchangefeed: (.|\n)*use the options incremental and row_kind"),
        ("commit_id", "3", "option commit_id has no meaning for reading"),
        ("snapshot", "first", "no snapshot, tag or time 'first'"),
        ("snapshot", "77", "snapshot 77"),
    ],
)
def test_wrong_options_are_named(session: SparkSession, table: Table, option: str, value: str, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        session.read.format("paimon").option(option, value).load(table.url).collect()


def test_several_paths_are_refused(session: SparkSession, table: Table) -> None:
    with pytest.raises(PySparkException, match=r"unknown option paths: (.|\n)*use one path"):
        session.read.format("paimon").load([table.url, table.url]).collect()


def test_sql_writes_through_views_alone(session: SparkSession, table: Table) -> None:
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW stock USING paimon OPTIONS (path '{table.url}')")
    session.sql("INSERT INTO stock (id, name) VALUES (77, 'it''s')")
    assert table.scan(["id", "qty"], "name = 'it''s' AND id > 0").to_arrow().to_pylist() == [{"id": 77, "qty": None}]
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        session.sql(f"CREATE TABLE stocks USING paimon OPTIONS (path '{table.url}')")
    session.sql(f"CREATE TABLE of_spark (id BIGINT, name STRING, qty INT) USING paimon LOCATION '{table.url}'")
    try:
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            session.table("of_spark").collect()
    finally:
        session.sql("DROP TABLE of_spark")


def test_a_schema_must_have_the_types_of_the_table(session: SparkSession, table: Table) -> None:
    with pytest.raises(PySparkException, match="column id is read as int: in the table it is bigint"):
        session.read.format("paimon").schema("id int").load(table.url).collect()


def test_a_write_is_one_commit(session: SparkSession, table: Table) -> None:
    rows = session.range(5, 25, 1, 3).selectExpr("id", "concat('new', id) as name", "cast(null as int) as qty")
    rows.write.format("paimon").mode("append").save(table.url)
    assert next(snapshot.kind for snapshot in table.snapshots()) == "APPEND"
    assert len(table.snapshots()) == 3
    assert table.scan().count() == 25
    assert table.scan(where="name LIKE 'new%'").count() == 20
    rows.limit(2).write.format("paimon").option("op", "delete").mode("append").save(table.url)
    assert table.scan().count() == 23
    rows.where("id > 22").write.format("paimon").mode("overwrite").save(table.url)
    assert sorted(table.scan(["id"]).to_arrow().column("id").to_pylist()) == [23, 24]
    assert table.verify().errors == 0


def test_a_write_that_fails_changes_nothing_and_leaves_no_files(
    session: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks beside the one that fails may still write: they are waited for, as in a user's Spark."""
    files = data_files(table.context)
    fails = session.range(0, 20, 1, 4).selectExpr("id", "if(id = 17, raise_error('boom'), 'x') as name", "1 as qty")
    with monkeypatch.context() as patch, pytest.raises(PySparkException, match="boom"):
        patch.setitem(session.sparkContext.environment, "TEST_TASK_END", str(TASK_END_SECONDS))
        fails.write.format("paimon").mode("append").save(table.url)
    with pytest.raises(PySparkException, match="'extra'"):
        session.sql("select 1L as id, 2 as extra").write.format("paimon").mode("append").save(table.url)
    for option, value in (("row_kind", "true"), ("tag", "monday"), ("scan.snapshot-id", "1")):
        with pytest.raises(PySparkException, match=f"{option} has no meaning for writing"):
            session.range(1).write.format("paimon").option(option, value).mode("append").save(table.url)
    assert len(table.snapshots()) == 2
    assert data_files(table.context) == files == live_files(table.context)


class PatientSource(PaimonDataSource):
    """Waits for tasks that go on, as the source of a user does."""

    @classmethod
    def name(cls) -> str:
        return "patient"


@pytest.mark.nightly
def test_no_task_goes_on_after_a_failure(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time, one is waited for over Connect, and `test_source_conflicts` has one that ends late."""
    monkeypatch.setitem(session.sparkContext.environment, "TEST_TASK_END", str(TASK_END_SECONDS))
    for known in (session, SparkSession.getActiveSession()):  # Spark looks for a writer in both
        assert known is not None
        known.dataSource.register(PatientSource)
    beating = BeatingRows(tmp_path / "beats")
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL"}, [], bucket=-1).url)
    with pytest.raises(PySparkException, match="the first partition fails"):
        beating.frame(session, first_fails=True).write.format("patient").mode("append").save(table.url)
    assert beating.have_ended()
    assert table.snapshots() == []
    assert data_files(table.context) == set()


def test_rows_that_readers_would_not_see_are_compacted(session: SparkSession, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id"], bucket=2, options={"deletion-vectors.enabled": "true"})
    session.range(10).selectExpr("id", "'a' as name", "1 as qty").write.format("paimon").mode("append").save(context.url)
    assert Table.open(context.url).scan().count() == 10


def test_a_repeated_write_counts_once(session: SparkSession, tmp_path: Path) -> None:
    options = {"merge-engine": "aggregation", "fields.qty.aggregate-function": "sum"}
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], options=options).url)
    rows = session.sql("select 1L as id, 'a' as name, 10 as qty")
    for _ in range(2):
        rows.write.format("paimon").option("commit_user", "job").option("commit_id", "7").mode("append").save(table.url)
    assert table.scan(["qty"]).to_arrow().column("qty").to_pylist() == [10]
    assert data_files(table.context) == live_files(table.context)


def test_rows_of_later_partitions_win(session: SparkSession, table: Table) -> None:
    """Tasks add to one bucket without knowing of each other: before and after a compaction the same version is the last."""
    rows = session.range(0, 30, 1, 3).where("id < 10 OR id % 10 = 0").selectExpr("1L AS id", "'a' AS name", "int(id) AS qty")
    assert rows.rdd.glom().map(len).collect() == [10, 1, 1]
    rows.write.format("paimon").mode("append").save(table.url)
    assert table.scan(["qty"], "id = 1").to_arrow().column("qty").to_pylist() == [20]
    table.compact()
    assert table.scan(["qty"], "id = 1").to_arrow().column("qty").to_pylist() == [20]


def test_columns_and_options_are_checked_before_any_task_runs(session: SparkSession, table: Table) -> None:
    """The only error is the one about the columns or options. A commit that refused an option would leave files behind."""
    never = session.range(1).selectExpr("if(id >= 0, raise_error('a task ran'), id) AS id", "'a' AS name")
    for rows, message in (
        (never.withColumn("extra", never.name), "the DataFrame: the table has no column 'extra'"),
        (never.drop("id"), "the DataFrame: column 'id' is missing"),
        (never.selectExpr("id", "array(name) AS qty"), r"the DataFrame: column 'qty' has type list<"),
    ):
        with pytest.raises(PySparkException, match=message):
            rows.write.format("paimon").mode("append").save(table.url)
        with pytest.raises(BadInput, match=message):
            spark.write(rows, table.url)
    files = data_files(table.context)
    for options, message in (
        ({"commit_id": "7"}, "without commit_user"),
        ({"commit_user": "job", "commit_id": "-1"}, "the minimum is 0"),
    ):
        with pytest.raises(PySparkException, match=message):
            never.write.format("paimon").options(**options).mode("append").save(table.url)
    assert data_files(table.context) == files


def test_instants_need_a_zone_for_a_column_without_one(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", {"id": "INT NOT NULL", "at": "TIMESTAMP(6)"}, ["id"]).url)
    writer = session.sql("select 1 as id, timestamp'2024-07-01 12:00:00+00:00' as at").write.format("paimon").mode("append")
    with pytest.raises(PySparkException, match="give the zone with timezone"):
        writer.save(table.url)
    with pytest.raises(PySparkException, match="no time zone 'Mars'"):
        writer.option("timezone", "Mars").save(table.url)
    writer.option("timezone", "Europe/Berlin").save(table.url)
    assert [str(row["at"]) for row in table.scan().to_arrow().to_pylist()] == ["2024-07-01 14:00:00"]


def test_rows_that_do_not_fit_are_skipped_on_demand(session: SparkSession, table: Table) -> None:
    rows = session.range(8, 12).selectExpr("id", "'new' AS name", "if(id = 9, id << 40, id) AS qty")
    with pytest.raises(PySparkException, match="outside the range of INT"):
        rows.write.format("paimon").mode("append").save(table.url)
    rows.write.format("paimon").option("on_error", "skip").mode("append").save(table.url)
    assert sorted(table.scan(["id"], "name = 'new'").to_arrow().column("id").to_pylist()) == [8, 10, 11]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("op", "merge", "choose one of upsert, delete"),
        ("on_error", "rejects.csv", "choose one of fail, skip"),
        ("missing_columns", "maybe", "choose one of null, error"),
        ("assume_new", "yes", "choose one of true, false"),
    ],
)
def test_wrong_values_of_a_write_are_named(session: SparkSession, table: Table, option: str, value: str, message: str) -> None:
    rows = session.range(3).selectExpr("id", "'a' as name", "1 as qty")
    with pytest.raises(PySparkException, match=message):
        rows.write.format("paimon").option(option, value).mode("append").save(table.url)
    assert len(table.snapshots()) == 2


@pytest.mark.parametrize("by", ["source", at_night("function"), at_night("source without keys")])
def test_writers_own_buckets(session: SparkSession, tmp_path: Path, by: str) -> None:
    """Each row is written once, although each of two writers is given all of them; a writer refuses the other one's rows.

    Each time, the function writes the buckets of one (`test_writing`).
    """
    keys = [] if by.endswith("keys") else ["id"]
    table = Table.open(make_table(tmp_path / "t", COLUMNS, keys, bucket=4, options={"bucket-key": "id"}).url)
    rows = session.range(40, numPartitions=3).selectExpr("id", "'a' AS name", "int(id) AS qty")

    def write(**options: Any) -> None:
        if by == "function":
            named = {"0, 2-3": [0, range(2, 4)], "1": 1, "4": 4}
            spark.write(rows, table.url, **{**options, "bucket": named[options["bucket"]]})
        else:
            rows.write.format("paimon").options(**options).mode("append").save(table.url)

    for owned, buckets in (("0, 2-3", {0, 2, 3}), ("1", {0, 1, 2, 3})):
        with pytest.raises((PySparkException, BadInput), match="belongs to bucket"):
            write(bucket=owned)
        write(bucket=owned, other_buckets="skip")
        assert {file.bucket for file in table.files()} == buckets
    assert sorted(table.scan(["id"]).to_arrow().column("id").to_pylist()) == list(range(40))
    with pytest.raises((PySparkException, UsageError), match="there is no bucket 4"):
        write(bucket="4")


def test_buckets_that_no_writer_can_own(session: SparkSession, table: Table, tmp_path: Path) -> None:
    rows = session.range(3).selectExpr("id", "'a' AS name", "1 AS qty")
    dynamic = make_table(tmp_path / "dynamic", COLUMNS, ["id"], bucket=-1).url
    for url, options, message in (
        (dynamic, {"bucket": "0"}, "follow from the row alone"),
        (table.url, {"bucket": "first"}, "neither a bucket nor a range"),
        (table.url, {"bucket": "0", "other_buckets": "leave"}, "choose one of refuse, skip"),
        (table.url, {"other_buckets": "skip"}, "other_buckets needs bucket"),
    ):
        with pytest.raises(PySparkException, match=message):
            rows.write.format("paimon").options(**options).mode("append").save(url)
    with pytest.raises(PySparkException, match="bucket cannot be combined with overwrite"):
        rows.write.format("paimon").option("bucket", "0").mode("overwrite").save(table.url)
    with pytest.raises(PySparkException, match="no meaning for reading"):
        session.read.format("paimon").option("bucket", "0").load(table.url).collect()


BUCKETS = {
    "dynamic": (["id"], [], -1, {}),
    "dynamic in partitions": (["id", "name"], ["name"], -1, {"dynamic-bucket.target-row-num": "2"}),
    "keys across partitions": (["id"], ["name"], -1, {}),
    "postponed": (["id"], [], -2, {"postpone.batch-write-fixed-bucket": "true"}),
    "append, with bucket keys": ([], [], 2, {"bucket-key": "id"}),
}


@pytest.mark.parametrize("kind", BUCKETS)
@pytest.mark.in_part(2)
def test_buckets_that_one_task_must_write(session: SparkSession, tmp_path: Path, kind: str) -> None:
    """Tasks keep the rows in temporary files; the process that commits writes them to their buckets."""
    keys, partitions, bucket, options = BUCKETS[kind]
    columns = {"id": "BIGINT NOT NULL", "name": "STRING NOT NULL", "qty": "INT"}
    table = Table.open(make_table(tmp_path / "t", columns, keys, partitions, bucket, options=options).url)

    def written(sql: str, mode: str = "append", **options: str) -> set[tuple[Any, ...]]:
        rows = session.range(40, numPartitions=4).selectExpr(*sql.split("; "))
        rows.write.format("paimon").options(**options).mode(mode).save(table.url)
        left = list((tmp_path / "t").glob("**/bucket-postpone"))
        assert not any(map(os.listdir, left)), "the temporary files are deleted"
        assert not left or kind == "postponed", "so are their directories, but in that table Java's writers may need them"
        return {tuple(row.values()) for row in table.scan(columns=["id", "name", "qty"]).to_arrow().to_pylist()}

    all_rows = written("id; concat('n', id % 3) as name; cast(id as int) as qty")
    assert all_rows == {(n, f"n{n % 3}", n) for n in range(40)}
    upserted = written("id % 10 as id; concat('n', id % 10 % 3) as name; cast(id as int) as qty")
    replaced = {(n, f"n{n % 3}", 30 + n) for n in range(10)}  # the last version of each key is in the last partition
    if keys:
        assert upserted == {row for row in all_rows if row[0] >= 10} | replaced
        gone = written("id; concat('n', id % 3) as name; cast(null as int) as qty", op="delete")
        assert gone == set()
    else:
        assert upserted == all_rows | {(n % 10, f"n{n % 10 % 3}", n) for n in range(40)}
    assert written("id; 'n1' as name; 7 as qty", mode="overwrite") >= {(n, "n1", 7) for n in range(40)}
    assert table.verify(level="full").errors == 0


def test_a_key_ends_in_the_partition_of_its_last_row(session: SparkSession, tmp_path: Path) -> None:
    """Both keys move between partitions within a task and from one task to the next."""
    columns = {"id": "BIGINT NOT NULL", "name": "STRING NOT NULL", "qty": "INT"}
    table = Table.open(make_table(tmp_path / "t", columns, ["id"], ["name"], -1).url)
    for names, last in (("a b b a c a b a", {0: ("b", 6), 1: ("a", 7)}), ("c c c c b a a b", {0: ("a", 6), 1: ("b", 7)})):
        found = f"element_at(split('{names}', ' '), int(id) + 1) AS name"
        rows = session.range(8, numPartitions=2).selectExpr("id % 2 AS id", found, "int(id) AS qty")
        rows.write.format("paimon").mode("append").save(table.url)
        assert {row["id"]: (row["name"], row["qty"]) for row in table.scan().to_arrow().to_pylist()} == last
        assert table.verify(level="full").errors == 0


def test_rows_of_a_stream_wait_where_buckets_are_postponed(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], bucket=-2).url)
    (tmp_path / "in").mkdir()
    for qty in (1, 2):
        (tmp_path / "in" / str(qty)).write_text(f'{{"id": 5, "name": "x", "qty": {qty}}}\n')
        stream = session.readStream.schema("id long, name string, qty int").json(str(tmp_path / "in"))
        writer = stream.writeStream.format("paimon").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(table.url).awaitTermination()
    assert table.scan().count() == 0 and len(table.snapshots()) == 2
    table.compact()
    assert table.scan().to_arrow().to_pylist() == [{"id": 5, "name": "x", "qty": 2}]


def test_waiting_rows_are_read_with_columns_that_are_newer(tmp_path: Path) -> None:
    options = {"postpone.batch-write-fixed-bucket": "false", "postpone.merge-on-read": "true"}
    table = Table.open(make_table(tmp_path / "t", {"id": "INT NOT NULL", "s": "STRING"}, ["id"], bucket=-2, options=options).url)
    table.write(pa.table({"id": pa.array([1], pa.int32()), "s": ["a"]}), compact="none")
    table.alter.rename_column("s", "t")
    table.alter.add_column("more INT")
    source = PaimonDataSource({"path": table.url})
    reader = cast(PaimonReader, source.reader(source.schema()))
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [{"id": 1, "t": "a", "more": None}]


def test_temporary_files_of_a_failed_write_are_deleted(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "qty": "INT NOT NULL"}, ["id"], bucket=-1).url)
    rows = session.range(8, numPartitions=4).selectExpr("id", "nullif(cast(id as int), 5) as qty")
    with pytest.raises(PySparkException, match="NOT NULL"):
        rows.write.format("paimon").mode("append").save(table.url)
    assert table.snapshots() == []
    assert list((tmp_path / "t").glob("**/bucket-*")) == []


def test_a_source_that_cannot_be_imported_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "DefaultSource" in runpy.run_path(pyspark_paimon.__file__)
    monkeypatch.setitem(sys.modules, "paimon_cli.spark.data_source", None)
    assert "DefaultSource" not in runpy.run_path(pyspark_paimon.__file__)
    assert "Spark will not find the data source paimon, which cannot be imported: " in capsys.readouterr().err


def test_the_second_name_serves_where_the_first_is_taken(session: SparkSession, table: Table, tmp_path: Path) -> None:
    session.range(10, 13).selectExpr("id", "'x' AS name", "1 AS qty").write.format("paimon-cli").mode("append").save(table.url)
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW second USING `paimon-cli` OPTIONS (path '{table.url}')")
    assert session.sql("SELECT count(*), sum(qty) FROM second WHERE id >= 9").collect()[0][:] == (4, 12)
    copy = Table.open(make_table(tmp_path / "copy", COLUMNS, ["id"], bucket=2).url)
    stream = session.readStream.format("paimon-cli").load(table.url).writeStream.format("paimon-cli")
    started = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(copy.url)
    started.awaitTermination()
    assert copy.scan().to_arrow() == table.scan().to_arrow()
