"""`paimon_cli.spark.ingest`: a stream of change events into tables, each batch once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from paimon_cli import Catalog, Table, spark
from paimon_cli.errors import UsageError
from paimon_cli.pieces import PIECES
from tests.api.test_ingest_merged import MOVED
from tests.api.test_ingest_run import check
from tests.event_streams import Stream, debezium, rows_of, written
from tests.nightly import at_night

SUMS = {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum", "bucket": "2"}


class Events:
    """A stream of text files, and its query. Each run takes the files that are new, in one batch."""

    def __init__(self, session: SparkSession, folder: Path, **given: Any) -> None:
        self.session, self.folder, self.given = session, folder, {"format": "debezium", "into": "shop", **given}
        (folder / "events").mkdir(parents=True)

    def add(self, name: str, *events: Any) -> None:
        written(self.folder / "events" / f"{name}.json", *events)

    def run(self) -> None:
        stream = self.session.readStream.format("text").load(str(self.folder / "events"))
        writer = spark.ingest(stream, warehouse=str(self.folder), **self.given)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination(300)

    def repeat(self, batch: int) -> None:
        """Let Spark forget that it has done a batch."""
        for name in (str(batch), f".{batch}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink()


BY_JOBS, BY_THE_DRIVER = 0, 64 << 20
"""The bytes of a batch up to which the driver writes it."""


@pytest.mark.parametrize("collected", [BY_JOBS, at_night(BY_THE_DRIVER)])
def test_tables_equal_a_replay(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collected: int) -> None:
    """Keys, types and new columns come through; the second batch is repeated."""
    monkeypatch.setattr(PIECES, "collected_bytes", collected)
    stream = Stream(2, is_typed=True).add(300)
    events = Events(session, tmp_path, primary_key="id")
    events.add("1", *stream.lines[:150])
    events.run()
    events.add("2", *stream.lines[150:])
    events.run()
    check(tmp_path, stream)
    events.repeat(1)
    events.run()
    check(tmp_path, stream)
    commits = [one.commit_identifier for one in Table.open(str(tmp_path / "shop.db/t0")).snapshots()]
    assert sorted(commits) == [0, 1]


@pytest.mark.parametrize("collected", [BY_THE_DRIVER, at_night(BY_JOBS)])
def test_a_batch_that_was_committed_in_part_is_completed(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collected: int
) -> None:
    """One table fails, the other commits; the batch is repeated, and each has its events once."""
    monkeypatch.setattr(PIECES, "collected_bytes", collected)
    catalog = Catalog(str(tmp_path))
    columns = ["id INT NOT NULL", "amount BIGINT"]
    catalog.create_table("shop.a", columns=columns, primary_key="id", options=SUMS)
    events = Events(session, tmp_path)
    added = [debezium(name, "c", None, {"id": n % 3, "amount": str(n)}) for n in range(30) for name in "ab"]
    events.add("1", *added)
    with pytest.raises(Exception, match=r"primary key of shop\.b is not known"):
        events.run()
    assert [one.commit_identifier for one in Table.open(str(tmp_path / "shop.db/a")).snapshots()] == [0]
    catalog.create_table("shop.b", columns=columns, primary_key="id", options=SUMS)
    events.run()
    for name in "ab":
        found = {key: row["amount"] for key, row in rows_of(tmp_path, name).items()}
        assert found == {key: sum(range(key, 30, 3)) for key in range(3)}


def test_messages_of_kafka_are_ordered_and_name_their_keys(session: SparkSession, tmp_path: Path) -> None:
    """The columns of Spark's Kafka source, from files whose lines are in another order."""
    schema = "key string, value string, topic string, partition int, offset long, timestamp timestamp"
    folder = tmp_path / "messages"
    folder.mkdir()
    for part in range(3):
        lines = []
        for offset in range(20, 0, -1):
            number = offset * 3 + part
            event = debezium("a", "c", None, {"id": number % 4 * 3 + part, "n": number})
            facts = {"topic": "shop.a", "partition": part, "offset": offset, "key": json.dumps({"id": number % 4})}
            lines.append(json.dumps({**facts, "value": json.dumps(event)}))
        (folder / f"{part}.json").write_text("\n".join(lines))
    columns: dict[str, Any] = {"computed": "t = truncate(n, 1)", "metadata_column": "offset"}
    stream = session.readStream.schema(schema).json(str(folder))
    writer = spark.ingest(stream, format="debezium", into="shop", warehouse=str(tmp_path), commit_user="messages", **columns)
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination(300)
    newest = {str(n % 4 * 3 + n % 3): str(n) for n in sorted(o * 3 + p for p in range(3) for o in range(1, 21))}
    assert {key: row["n"] for key, row in rows_of(tmp_path, "a").items()} == newest
    assert all((row["t"], row["offset"]) == (row["n"][0], int(row["n"]) // 3) for row in rows_of(tmp_path, "a").values())
    assert Table.open(str(tmp_path / "shop.db/a")).snapshots()[0].commit_user == "messages"


def test_bad_events_are_set_apart(session: SparkSession, tmp_path: Path) -> None:
    letters = tmp_path / "letters.json"
    Catalog(str(tmp_path)).create_table("shop.a", columns=["id INT NOT NULL", "n INT"], primary_key="id")
    events = Events(session, tmp_path, on_error=str(letters))
    good = [debezium("a", "c", None, {"id": n, "n": n}) for n in range(3)]
    unknown = {**debezium("a", "c", None, good[0]), "op": "x"}
    events.add("1", good[0], b"{oops", debezium("a", "c", None, {"id": 7, "n": "many"}), unknown, good[1])
    events.run()
    reasons = [json.loads(line)["dead_letter"]["reason"] for line in letters.read_text().splitlines()]
    assert len(reasons) == 3 and all(any(part in reason for reason in reasons) for part in ("many", "'op' is 'x'"))
    assert sorted(rows_of(tmp_path, "a")) == [0, 1]
    stopping = Events(session, tmp_path / "stopping")
    Catalog(str(tmp_path / "stopping")).create_table("shop.a", columns=["id INT NOT NULL", "n INT"], primary_key="id")
    stopping.add("1", good[0], debezium("a", "c", None, {"id": 7, "n": "many"}))
    with pytest.raises(Exception, match="column 'n' cannot take 'many'"):
        stopping.run()
    assert not Table.open(str(tmp_path / "stopping/shop.db/a")).snapshots()
    ending = Events(session, tmp_path / "ending", primary_key="id")
    ending.add("1", good[0], {**unknown, "source": {"db": "shop", "table": "b"}}, good[1])
    with pytest.raises(Exception, match="'op' is 'x'"):
        ending.run()
    assert sorted(rows_of(tmp_path / "ending", "a")) == ["0", "1"]


def test_bad_events_of_a_repeated_batch_are_set_apart_once(session: SparkSession, tmp_path: Path) -> None:
    """Spark cuts the files differently then. The same text in another batch, in the same place, is another event."""
    letters = tmp_path / "letters.json"
    events = Events(session, tmp_path, on_error=str(letters), primary_key="id")
    for batch in range(2):
        for name in "ab":
            events.add(f"{batch}{name}", b"{oops", debezium("a", "c", None, {"id": batch}), f"only {name}".encode(), b"{oops")
        events.run()
        events.repeat(batch)
        size = "spark.sql.files.openCostInBytes"
        session.conf.set(size, "256m")
        events.run()
        session.conf.unset(size)
        found = [json.loads(line)["event"] for line in letters.read_text().splitlines()]
        expected = [text for text in ("only a", "only b", *["{oops"] * 4) for _ in range(batch + 1)]
        assert sorted(found) == sorted(expected)
    assert sorted(rows_of(tmp_path, "a")) == ["0", "1"]


def test_names_without_end_end_the_query(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("api.ingest_run", "spark.ingesting"):
        monkeypatch.setattr(f"paimon_cli.{module}.MAX_TABLES", 3)
    events = Events(session, tmp_path, primary_key="id", exclude="x*")
    names = ["good", *(f"x{n}" for n in range(20)), *(f"t{n}" for n in range(20))]
    events.add("1", *(debezium(name, "c", None, {"id": 1}) for name in names), debezium("good", "c", None, {"id": 2}))
    with pytest.raises(Exception, match="the events name more than 3 tables"):
        events.run()
    assert sorted(rows_of(tmp_path, "good")) == ["1", "2"]
    assert len(list((tmp_path / "shop.db").iterdir())) == 3


def test_events_of_shards_keep_their_order(session: SparkSession, tmp_path: Path) -> None:
    """A row that moves from one shard to the other, which was read first."""
    events = Events(session, tmp_path, primary_key="id")
    events.add("1", *MOVED)
    events.run()
    table = Table.open(str(tmp_path / "shop.db/t"))
    assert sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist()) == [("1", "new"), ("2", "b")]


def test_truncations_stop_their_table(session: SparkSession, tmp_path: Path) -> None:
    events = Events(session, tmp_path, primary_key="id")
    events.add("1", debezium("a", "c", None, {"id": 1}), debezium("b", "t", None, None))
    with pytest.raises(Exception, match="was emptied by a truncation"):
        events.run()
    assert sorted(rows_of(tmp_path, "a")) == ["1"]


def test_what_is_no_stream_of_events_is_refused(session: SparkSession, tmp_path: Path) -> None:
    stream = session.readStream.format("text").load(str(tmp_path))
    given: dict[str, Any] = {"format": "debezium", "into": "shop"}
    with pytest.raises(UsageError, match="no stream"):
        spark.ingest(session.range(1), **given)
    with pytest.raises(UsageError, match="no column value"):
        spark.ingest(stream.withColumnRenamed("value", "text"), **given)
    with pytest.raises(UsageError, match="where the events go"):
        spark.ingest(stream, format="debezium")
    refused: dict[str, Any] = {"follow": True, "interval": "10 s", "max_rounds": 1}
    for name, value in refused.items():
        with pytest.raises(UsageError, match=f"{name} is for sources that are read here"):
            spark.ingest(stream, **{**given, name: value})
