"""`paimon_cli.spark.merge`: DataFrames into tables of every kind, against a merge in plain Python; batches that Spark repeats."""

from __future__ import annotations

import random
from inspect import signature
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from paimon_cli import Table, spark
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.jobs.merge_source import StagedSource
from paimon_cli.maintain.used_names import UsedNames
from tests.jobs.test_merge_job import KINDS, SCHEMA, Row, clauses_of, create, merged, source_rows, stored
from tests.nightly import at_night
from tests.rivals import files_of
from tests.tables import data_files, named_files

SQL = "dt string, id int, name string, points int"
OFTEN = ("any partition", "append with vectors")


def frame_of(session: SparkSession, rows: list[Row], columns: str = f"{SQL}, op string", partitions: int = 3) -> DataFrame:
    names = [column.split()[0] for column in columns.split(", ")]
    return session.createDataFrame([tuple(row[name] for name in names) for row in rows], columns).repartition(partitions)


@pytest.mark.parametrize("name", [name if name in OFTEN else at_night(name) for name in KINDS])
def test_random_merges_give_the_rows_of_a_merge_in_plain_python(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The rows of the source do not come to this process."""
    monkeypatch.setattr(StagedSource, "_read", None)
    monkeypatch.setattr(DataFrame, "toArrow", None)
    chance = random.Random(name)
    table, rows = create(tmp_path, KINDS[name]), list[Row]()
    for number in range(3):
        source = source_rows(chance, chance.sample(range(12), 7) if number else [1, 2, 3, 4, 5])
        before = {row["id"] for row in rows}
        done = clauses_of(spark.merge(frame_of(session, source), table, on="id", params={"d": "d"})).execute()
        rows = merged(rows, source)
        table.refresh()
        assert stored(table) == rows
        gone, new = before - {row["id"] for row in rows}, {row["id"] for row in rows} - before
        assert (done.inserted, done.deleted, done.source_rows) == (len(new), len(gone), len(source))
        assert data_files(table.context) == named_files(table.context)
        used = UsedNames(table.context)
        used.refresh()
        assert {path.name for path in (tmp_path / "t" / "index").glob("*")} <= used.names
    assert table.verify(level="full").errors == 0


def test_a_frame_of_changes_with_row_kinds(session: SparkSession, tmp_path: Path) -> None:
    """What a log of changes has, with one row for each key: the kind of its last change."""
    table = create(tmp_path, KINDS["fixed"])
    table.write(pa.Table.from_pylist([{"dt": "a", "id": i, "name": "old", "points": i} for i in range(6)], schema=SCHEMA))
    kinds = {0: "-D", 1: "+U", 2: "+I", 7: "+I", 8: "-D", 9: "+U"}
    changes = [{"dt": "a", "id": i, "name": kind, "points": 10 * i, "op": kind} for i, kind in kinds.items()]
    merge = spark.merge(frame_of(session, changes), table, on="id").when_matched_delete(condition="source.op = '-D'")
    done = merge.when_matched_update_all().when_not_matched_insert_all(condition="op <> '-D'").execute()
    assert (done.deleted, done.updated, done.inserted) == (1, 2, 2)
    table.refresh()
    shown = {row["id"]: (row["name"], row["points"]) for row in stored(table)}
    assert shown == {1: ("+U", 10), 2: ("+I", 20), 3: ("old", 3), 4: ("old", 4), 5: ("old", 5), 7: ("+I", 70), 9: ("+U", 90)}


@pytest.mark.parametrize("name", ["fixed", at_night("append")])
def test_a_batch_that_spark_repeats_is_merged_once(session: SparkSession, tmp_path: Path, name: str) -> None:
    table = create(tmp_path, KINDS[name])
    events = tmp_path / "events"
    events.mkdir()
    (events / "0.json").write_text("".join(f'{{"dt": "a", "id": {i}, "name": "x", "points": 1}}\n' for i in range(4)))

    def add(rows: DataFrame, batch: int) -> None:
        merge = spark.merge(rows, table.url, on="id", commit_user="sums", commit_id=batch)
        merge.when_matched_update({"points": "points + source.points"}).when_not_matched_insert_all().execute()

    for number in range(3):
        stream = session.readStream.schema(SQL).option("maxFilesPerTrigger", 1).json(str(events))
        query = stream.writeStream.foreachBatch(add).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        for note in (tmp_path / "checkpoint" / "commits").glob(f"*{number}*"):
            note.unlink()  # the last batch comes again
        (events / f"{number + 1}.json").write_text('{"dt": "a", "id": 1, "name": "x", "points": 10}\n')
    table.refresh()
    assert {row["id"]: row["points"] for row in stored(table)} == {0: 1, 1: 21, 2: 1, 3: 1}
    commits = [snapshot.commit_identifier for snapshot in table.snapshots() if snapshot.commit_user == "sums"]
    assert sorted(set(commits)) == [0, 1, 2]
    assert data_files(table.context) == named_files(table.context)


def test_parameters_are_spelled_out() -> None:
    of_table = signature(Table.merge).parameters.keys() - {"self", "source"}
    assert of_table | {"frame", "name", "options", "warehouse", "branch"} == signature(spark.merge).parameters.keys()
    given: Any = {"compct": "none"}
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'compct'. did you mean 'compact'"):
        spark.merge(cast(DataFrame, None), "orders", on="id", **given)


def test_what_is_refused_leaves_no_file(session: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path, KINDS["fixed"])
    table.write(pa.Table.from_pylist([{"dt": "a", "id": i, "name": f"n{i}", "points": i} for i in range(4)], schema=SCHEMA))
    before = files_of(table.context)
    two = [{"dt": "a", "id": 2, "name": "n", "points": 1}] * 2
    with pytest.raises(BadInput, match="several rows of the source have id = 2"):
        spark.merge(frame_of(session, two, SQL), table, on="id").when_matched_update_all().execute()
    five = [{**row, "id": 5} for row in two]
    with pytest.raises(BadInput, match="two rows to insert have id = 5"):
        spark.merge(frame_of(session, five, SQL), table, on="id").when_not_matched_insert_all().execute()
    with pytest.raises(BadInput, match="a row to insert has the key of a row of the table: id = 2"):
        spark.merge(frame_of(session, two[:1], SQL), table, on="name").when_not_matched_insert_all().execute()
    with pytest.raises(BadInput, match="row 1 of partition 0 of the DataFrame, column id"):
        wide = session.sql("SELECT 5000000000 AS id, 'a' AS dt")
        spark.merge(wide, table, on="id").when_not_matched_insert_all().execute()
    with pytest.raises(BadInput, match="probably failed") as failed:
        raising = session.sql("SELECT cast(raise_error('mine') AS int) AS id, 'a' AS dt")
        spark.merge(raising, table, on="id").when_not_matched_insert_all().execute()
    assert "mine" in str(failed.value)
    counted = session.sparkContext.accumulator(0)

    def counting(row: Any) -> tuple[int, str]:
        counted.add(1)
        return row.id, "a"

    rows = session.range(3).rdd.map(counting).toDF("id int, dt string")
    for merge, what in ((spark.merge(rows, table, on="id"), "no clause"), (spark.merge(rows, table, on="di"), "no column 'di'")):
        with pytest.raises(UsageError, match=what):
            (merge if "clause" in what else merge.when_matched_delete()).execute()
    with pytest.raises(UsageError, match="no field 'nam'"):
        spark.merge(rows, table, on="id").when_matched_update({"points": "source.nam"}).execute()
    assert counted.value == 0, "rows were computed for a merge that cannot be"
    assert files_of(table.context) == before


def test_rows_are_found_by_their_ids(session: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=["k INT", "s STRING"], options={"row-tracking.enabled": "true"})
    table.write([{"k": 1, "s": "a"}, {"k": 1, "s": "a"}, {"k": 2, "s": "b"}])
    source = session.createDataFrame([(1, "x"), (2, "y"), (9, "z"), (None, "n")], "_ROW_ID long, s string")
    merge = spark.merge(source, table, on="_ROW_ID").when_matched_update_all(condition="target._ROW_ID < 2")
    assert merge.when_matched_delete().execute().rows == 2
    table.refresh()
    found = table.scan(columns=["_ROW_ID", "_SEQUENCE_NUMBER", "k", "s"]).to_arrow().to_pylist()
    assert [tuple(row.values()) for row in found] == [(0, 1, 1, "a"), (1, 2, 1, "x")]
