"""A cluster of Kafka for tests: librdkafka's own, which lives in this process and answers on loopback."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

SECONDS = 30


@dataclass
class Cluster:
    """`brokers`: addresses of the cluster; `partitions`: of each topic."""

    producer: Producer
    brokers: str
    partitions: int

    def url(self, topics: str, query: str = "") -> str:
        return f"kafka://{self.brokers}/{topics}{query}"

    def send(self, topic: str, *events: Any, partition: int = 0, key: Any = None) -> None:
        """Messages of one partition: JSON, bytes, or None for a tombstone."""
        for event in events:
            value = event if event is None or isinstance(event, bytes) else json.dumps(event).encode()
            self.producer.produce(topic, value, None if key is None else json.dumps(key), partition)
        assert self.producer.flush(SECONDS) == 0

    def committed(self, group: str, topic: str) -> list[int]:
        """The offsets of a group."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": group})
        try:
            asked = [TopicPartition(topic, number) for number in range(self.partitions)]
            return [one.offset for one in consumer.committed(asked, timeout=SECONDS)]
        finally:
            consumer.close()


@contextmanager
def cluster(partitions: int = 2) -> Iterator[Cluster]:
    silent = logging.Logger("librdkafka")
    silent.addHandler(logging.NullHandler())
    settings = {"bootstrap.servers": "mock", "test.mock.num.brokers": 2, "topic.metadata.refresh.interval.ms": 1000}
    producer = Producer({**settings, "linger.ms": 0}, logger=silent)
    found = None
    for _ in range(SECONDS):
        try:
            found = producer.list_topics(timeout=1)
            break
        except KafkaException:
            continue
    assert found is not None
    yield Cluster(producer, ",".join(f"127.0.0.1:{one.port}" for one in found.brokers.values()), partitions)
    del producer
