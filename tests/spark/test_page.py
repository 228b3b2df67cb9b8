"""The Python of docs/spark.md runs as it stands there, on a table of its own in the place of `shop.orders`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from paimon_cli import Table
from paimon_cli.spark.source_options import (
    AT_TIME,
    AT_VERSION,
    OPTIONS_OF_SPARK,
    SCAN_OPTIONS,
    STREAM_OPTIONS,
    TABLE_OPTIONS,
    WRITE_OPTIONS,
)
from tests.nightly import BRIEF
from tests.tables import make_table

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@BRIEF
def test_the_python_of_the_page_runs(session: SparkSession, tmp_path: Path, brief: bool) -> None:
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "price": "DOUBLE"}, ["id"], bucket=2).url)
    rows = session.createDataFrame([(1, 5.0), (2, 20.0)], "id bigint, price double")
    table.write(rows.toArrow())
    table.tags.create("monday")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.json").write_text('{"id": 4, "price": 4.0}\n')
    names: dict[str, Any] = {
        "spark": session,
        "changes": session.createDataFrame([(1, 5.0, "-D"), (3, 3.0, "+I")], "id bigint, price double, op string"),
        "news": session.createDataFrame([(3, 33.0), (10, 10.0)], "id bigint, price double"),
        "df": session.createDataFrame([(9, 9.0)], "id bigint, price double"),
        "events": session.readStream.schema("id bigint, price double").json(str(tmp_path / "events")),
    }

    def run(source: str) -> dict[int, float]:
        places = {"shop.orders": table.url, "shop.items": tmp_path / "items"}
        places |= {f"/{name}": tmp_path / name for name in ("checkpoints", "deliveries")}
        for place, path in places.items():
            source = source.replace(f'"{place}', f'"{path}')
        exec(source, names)
        return {row["id"]: row["price"] for row in table.scan().to_arrow().to_pylist()}

    start, frames, batches, merge, errors, source, streams, notebook, jobs, cluster = BLOCKS
    assert "configure(SparkSession.builder).getOrCreate()" in start  # test_configuration
    compile(errors + source + streams + notebook + jobs + cluster, "spark.md", "exec")
    assert run(frames) == {2: 40.0, 3: 3.0}
    assert [tuple(row) for row in names["older"].orderBy("id").collect()] == [(1, 5.0), (2, 20.0)]
    assert run(batches) == {2: 40.0, 3: 3.0}
    if brief:
        return
    for _ in range(2):
        names["upsert"](names["df"].selectExpr("id - 1 as id", "price"), 7)
    assert (run(merge), run(source)) == ({2: 40.0, 3: 33.0, 8: 9.0, 10: 10.0}, {9: 9.0})
    try:
        run(errors + streams)
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert run("") == {9: 9.0, 4: 4.0}
    assert [snapshot.commit_identifier for snapshot in table.snapshots() if snapshot.commit_user == "loader"] == [7]

    (tmp_path / "deliveries").mkdir()
    (tmp_path / "deliveries" / "1.json").write_text('{"id": 5, "item": "salt", "stock": 100}\n')
    run(notebook)
    assert sorted(names["few"]["id"]) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert names["most"] == 100
    assert names["in_stock"] == [(990 * 10 + 8 * 9 + 6 + 100,)]
    assert dict(zip(names["few"]["id"], names["few"]["item"], strict=True))[1] == "tea"
    for _ in range(2):
        table.write(rows.toArrow(), compact="none")
    before = table.snapshot_ids()
    assert run(jobs) == {1: 5.0, 2: 20.0, 9: 9.0, 4: 4.0}
    assert len(table.snapshot_ids()) == len(before) + 1


def test_the_page_names_all_options_of_the_data_source() -> None:
    table = PAGE[PAGE.index("| options | taken by |") : PAGE.index("In SQL, tables are temporary views")]
    names = {name.lower() for name in re.findall(r"`(\w+)`", table)}
    known = {*TABLE_OPTIONS, *SCAN_OPTIONS, *WRITE_OPTIONS, *STREAM_OPTIONS, *OPTIONS_OF_SPARK, AT_VERSION, AT_TIME}
    assert known <= names
    assert names - known <= {"load", "save", "start", "fail", "skip", "refuse", "metastore", "uri"}
