"""Partitions of topics: where they are read from, how far they were read, and what is told of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from paimon_cli import Catalog
from paimon_cli.errors import NoAccess, NotFound, UsageError
from tests.event_streams import debezium, rows_of
from tests.kafka_broker import Broker

URL = "kafka://broker:9092/"
SUMS = {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum", "bucket": "1"}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    return Broker().used(monkeypatch)


def ingest(path: Path, topics: str, **given: Any) -> list[tuple[str, int]]:
    """The tables, and how many rows were inserted."""
    found = Catalog(str(path)).ingest(URL + topics, **{"format": "debezium", "into": "shop", **given})
    return [(one.table, one.inserts) for one in found]


def summed(path: Path, *names: str) -> None:
    """Tables that show each event that is applied twice, or not."""
    for name in names:
        columns = ["id INT NOT NULL", "amount BIGINT"]
        Catalog(str(path)).create_table(f"shop.{name}", columns=columns, primary_key="id", options=SUMS)


def added(table: str, number: int) -> Any:
    return debezium(table, "c", None, {"id": number % 3, "amount": str(number)})


def test_what_was_polled_of_partitions_that_are_read_again_is_not_applied_beside(broker: Broker, tmp_path: Path) -> None:
    """A table of the second run has its events in both partitions: both are read again, while the messages of the second one are
    at hand already.
    """
    summed(tmp_path, "a", "b")
    for number in range(24):
        if number == 20:
            ingest(tmp_path, "t?group=g", include="a")
        broker.send("t", added("a", number), added("b", number), partition=number % 2)
    with pytest.warns(UserWarning, match="is read again from offset 0"):
        assert sorted(ingest(tmp_path, "t?group=g")) == [("shop.a", 4), ("shop.b", 24)]
    for name in "ab":
        assert {key: row["amount"] for key, row in rows_of(tmp_path, name).items()} == {
            key: sum(range(key, 24, 3)) for key in range(3)
        }


@pytest.mark.parametrize("query", ["?offsets=2024-01-31T12:00:00Z", ""])
def test_an_error_of_one_partition_is_no_answer(broker: Broker, tmp_path: Path, query: str) -> None:
    """It passed for a time after the last message, from which nothing is read, or for a group that has read nothing."""
    broker.send("t", added("a", 1))
    broker.send("t", added("a", 2), partition=1)
    broker.times = {("t", 0): 0, ("t", 1): 0}
    broker.refused = {("t", 1): KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)}
    with pytest.raises(NoAccess):
        ingest(tmp_path, f"t{query}", primary_key="id")
    assert not (tmp_path / "shop.db/a").exists() and not broker.noted


def test_topics_that_cannot_be_read_and_partitions_that_do_not_exist_are_told(broker: Broker, tmp_path: Path) -> None:
    broker.send("t", added("a", 1))
    with pytest.raises(UsageError, match="t has no partition 7: it has 1 partition"):
        ingest(tmp_path, "t?offsets=0:0,7:4", primary_key="id")
    with pytest.raises(NotFound, match="has no topic other"):
        ingest(tmp_path, "t,other", primary_key="id")
    broker.unreadable = {"t": KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)}
    with pytest.raises(NoAccess):
        ingest(tmp_path, "t", primary_key="id")
