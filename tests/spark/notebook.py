"""What a notebook does with a table, in any session, beside a plain dictionary: load, upsert, delete, stream, read, compact."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import polars
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from paimon_cli import Runtime, Table, spark
from tests.event_streams import debezium
from tests.tables import data_files, named_files

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("item", pa.string()), ("qty", pa.int32())])
SQL = "id long, item string, qty int"
LOADED = ("id", "concat('item-', id % 7) as item", "cast(id % 5 as int) as qty")
Values = tuple[Any, ...]


class Notebook:
    """The table `orders`, and what it holds. `brief`: without dynamic buckets, functions, SQL, streams out of it, a rescale."""

    def __init__(self, session: SparkSession, folder: Path, brief: bool) -> None:
        self.session, self.folder, self.brief = session, folder, brief
        self.name = str(folder / "orders")
        options = {"bucket": "3", "changelog-producer": "input"}
        self.table = Table.create(self.name, schema=SCHEMA, primary_key=["id"], options=options)
        self.expected: dict[int, Values] = {}
        (folder / "events").mkdir()

    def run(self) -> None:
        self.load_and_change()
        self.upsert_frames()
        self.stream_in()
        if not self.brief:
            self.check()
            self.dynamic_buckets()
            self.stream_through_a_function()
            self.stream_changes()
            self.check()
            self.stream_out()
        in_session = Table.open(self.name, runtime=Runtime(session=self.session))
        assert in_session.compact(strategy="full").engine == "spark"
        if not self.brief:
            assert spark.read(self.session, self.name, snapshot=1).count() == 300
            assert in_session.verify(level="full").engine == "spark"
            assert Table.open(self.name, runtime=Runtime(engine="spark")).rescale(2).engine == "spark"
        self.table.update({"qty": "qty + 1"}, where="id < 10")
        self.expected |= {key: (item, qty + 1) for key, (item, qty) in self.expected.items() if key < 10}
        self.check()
        self.other_libraries()
        assert self.table.verify(level="full").errors == 0
        assert data_files(self.table.context) == named_files(self.table.context)

    def load_and_change(self) -> None:
        rows = self.session.range(0, 300, 1, 3).selectExpr(*LOADED)
        spark.write(rows, self.name)
        self.expected |= {n: (f"item-{n % 7}", n % 5) for n in range(300)}
        spark.write(rows.where("id % 3 = 0").selectExpr("id", "concat(item, '!') as item", "qty + 100 as qty"), self.name)
        self.expected |= {n: (f"item-{n % 7}!", n % 5 + 100) for n in range(0, 300, 3)}
        more = self.session.createDataFrame([(1, "one", 2), (5000, "new", None)], SQL)
        more.write.format("paimon").mode("append").save(self.name)
        self.expected |= {1: ("one", 2), 5000: ("new", None)}
        spark.write(
            rows.where("id between 10 and 19").selectExpr("*", "if(id % 2 = 0, '-D', '+U') as op"), self.name, op_column="op"
        )
        for number in range(10, 20, 2):
            del self.expected[number]
        self.expected |= {n: (f"item-{n % 7}", n % 5) for n in range(11, 20, 2)}

    def upsert_frames(self) -> None:
        """Write frames of pandas and polars. The last of equal keys wins; pandas has floats where whole numbers are missing."""
        self.table.write(pd.DataFrame({"id": [21, 21, 6000], "item": ["first", "last", None], "qty": [1.0, None, 5.0]}))
        items = polars.Series(["it's", "b"], dtype=polars.Enum(["it's", "b"]))
        self.table.write(polars.DataFrame({"qty": [7, None], "item": items, "id": [3, 6001]}))
        self.expected |= {21: ("last", None), 6000: (None, 5), 3: ("it's", 7), 6001: ("b", None)}

    def stream_in(self) -> None:
        """Two micro-batches, then one after a restart."""
        batches = [[(n, "first", n) for n in range(295, 305)], [(n, "second", n) for n in range(300, 303)], [(9000, "late", 3)]]
        for number, rows in enumerate(batches):
            text = "".join(f'{{"id": {key}, "item": "{item}", "qty": {qty}}}\n' for key, item, qty in rows)
            file = self.folder / "events" / f"{number}.json"
            file.write_text(text)
            os.utime(file, (10**9 + number, 10**9 + number))  # Spark takes files in the order of their times
            self.expected |= {key: (item, qty) for key, item, qty in rows}
            if number:
                self.finish(self.events().writeStream.format("paimon"), "in", path=self.name)

    def events(self) -> DataFrame:
        return self.session.readStream.schema(SQL).option("maxFilesPerTrigger", 1).json(str(self.folder / "events"))

    def dynamic_buckets(self) -> None:
        """A table without a number of buckets, which tasks of the data source do not write by themselves."""
        name = str(self.folder / "default")
        table = Table.create(name, schema=SCHEMA, primary_key=["id"])
        rows = self.session.range(0, 298, 1, 3).selectExpr(*LOADED)
        rows.write.format("paimon").mode("append").save(name)
        self.finish(self.events().writeStream.format("paimon"), "default", path=name)
        spark.write(rows.where("id < 9").selectExpr("id", "'again' as item", "qty"), name)
        expected = {n: (f"item-{n % 7}", n % 5) for n in range(298)}
        expected |= {n: ("second" if 300 <= n < 303 else "first", n) for n in range(295, 305)} | {9000: ("late", 3)}
        assert shown(spark.read(self.session, name)) == expected | {n: ("again", n % 5) for n in range(9)}
        assert table.verify(level="full").errors == 0
        assert data_files(table.context) == named_files(table.context)

    def stream_through_a_function(self) -> None:
        """The second time the batch is repeated, because Spark has lost its note of it."""
        name = self.name

        def add(rows: DataFrame, batch: int) -> None:
            spark.write(rows, name, commit_user="function", commit_id=batch)

        for _ in range(2):
            late = self.session.readStream.schema(SQL).json(str(self.folder / "events")).where("id = 9000")
            self.finish(late.selectExpr("id + 1 AS id", "item", "qty").writeStream.foreachBatch(add), "function")
            for note in ("0", ".0.crc"):
                (self.folder / "checkpoint-function" / "commits" / note).unlink()
        self.expected[9001] = ("late", 3)
        self.table.refresh()
        commits = [(one.commit_user, one.commit_identifier) for one in self.table.snapshots() if one.kind == "APPEND"]
        assert commits.count(("function", 0)) == 1, commits

    def stream_changes(self) -> None:
        """Change events into two tables; the second time the batch is repeated, because Spark has lost its note of it."""
        (self.folder / "changes").mkdir()
        lines = [debezium(f"c{n % 2}", "c", None, {"id": n, "n": n}) for n in range(20)]
        (self.folder / "changes/1.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for _ in range(2):
            stream = self.session.readStream.format("text").load(str(self.folder / "changes"))
            given: dict[str, Any] = {"into": "changes", "warehouse": str(self.folder), "commit_user": "notebook"}
            self.finish(spark.ingest(stream, format="debezium", primary_key="id", **given), "changes")
            for note in ("0", ".0.crc"):
                (self.folder / "checkpoint-changes" / "commits" / note).unlink()
        for n in range(2):
            table = Table.open(str(self.folder / f"changes.db/c{n}"))
            assert sorted(int(row["id"]) for row in table.scan().to_arrow().to_pylist()) == list(range(n, 20, 2))
            assert [one.commit_identifier for one in table.snapshots()] == [0]

    def stream_out(self) -> None:
        out = str(self.folder / "out")
        rows = self.session.readStream.format("paimon").option("path", self.name).load()
        self.finish(rows.writeStream.format("parquet"), "out", path=out)
        assert shown(self.session.read.parquet(out)) == self.expected

    def finish(self, writer: Any, checkpoint: str, **options: str) -> None:
        options["checkpointLocation"] = str(self.folder / f"checkpoint-{checkpoint}")
        query = writer.options(**options).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        assert query.exception() is None

    def check(self) -> None:
        assert {row["id"]: (row["item"], row["qty"]) for row in self.table.scan().to_arrow().to_pylist()} == self.expected
        assert shown(spark.read(self.session, self.name)) == self.expected
        assert shown(self.session.read.format("paimon").load(self.name)) == self.expected

    def other_libraries(self) -> None:
        total = sum(qty or 0 for _, qty in self.expected.values())
        scan = self.table.scan()
        assert scan.to_pandas()["qty"].sum() == total
        assert scan.to_polars()["qty"].sum() == total
        assert scan.to_duckdb().aggregate("sum(qty)").fetchall() == [(total,)]
        if self.brief:
            return
        self.session.sql(f"CREATE OR REPLACE TEMPORARY VIEW by_source USING paimon OPTIONS (path '{self.name}')")
        spark.read(self.session, self.name).createOrReplaceTempView("by_read")
        joined = "SELECT sum(a.qty), count(*) FROM by_source a JOIN by_read b ON a.id = b.id"
        assert tuple(self.session.sql(joined).collect()[0]) == (total, len(self.expected))


def shown(rows: DataFrame) -> dict[int, Values]:
    return {row.id: (row["item"], row.qty) for row in rows.collect()}
