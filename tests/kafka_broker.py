"""A broker of Kafka in memory, in the place of librdkafka. It also has what librdkafka's own cluster of tests lacks, such as
times of messages, messages that were deleted, and errors of one partition.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

Place = tuple[str, int]


@dataclass
class Sent:
    """A message, as librdkafka hands it over: its parts are methods. `trouble`: an error of the partition instead."""

    place: Place
    at: int = 0
    content: bytes | None = None
    name: bytes | None = None
    trouble: KafkaError | None = None

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.content

    def key(self) -> bytes | None:
        return self.name

    def error(self) -> KafkaError | None:
        return self.trouble


@dataclass
class Broker:
    """`logs`: the messages of each partition, from offset `lows` on. `noted`: what the group has committed. `times`: what it
    answers to a question for offsets of a time, by partition. `brought`: what the next polls bring, whatever is in the logs.
    `refused`: errors in the answers about a partition, and `unreadable` about a topic. `asked`: the times that were asked for.
    """

    logs: dict[Place, list[Sent]] = field(default_factory=dict)
    lows: dict[Place, int] = field(default_factory=dict)
    noted: dict[Place, TopicPartition] = field(default_factory=dict)
    times: dict[Place, int] = field(default_factory=dict)
    brought: deque[list[Sent]] = field(default_factory=deque)
    refused: dict[Place, KafkaError] = field(default_factory=dict)
    unreadable: dict[str, KafkaError] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    cluster: str | None = "c1"
    consumers: list[Consumer] = field(default_factory=list)

    def used(self, patch: pytest.MonkeyPatch) -> Broker:
        """This broker, which every consumer is connected with from now on."""
        patch.setattr("confluent_kafka.Consumer", self._consumer)
        return self

    def _consumer(self, settings: Any, logger: Any = None) -> Consumer:
        self.consumers.append(Consumer(self, settings))
        return self.consumers[-1]

    def send(self, topic: str, *events: Any, partition: int = 0, key: Any = None) -> None:
        log = self.logs.setdefault((topic, partition), [])
        for event in events:
            content = event if event is None or isinstance(event, bytes) else json.dumps(event).encode()
            at = self.end((topic, partition))
            log.append(Sent((topic, partition), at, content, None if key is None else json.dumps(key).encode()))

    def end(self, place: Place) -> int:
        return self.lows.get(place, 0) + len(self.logs[place])

    def delete(self, place: Place, count: int) -> None:
        """Delete the first messages of a partition."""
        del self.logs[place][:count]
        self.lows[place] = self.lows.get(place, 0) + count


@dataclass
class Consumer:
    broker: Broker
    settings: dict[str, Any]
    positions: dict[Place, int] = field(default_factory=dict)
    ended: set[Place] = field(default_factory=set)
    on_assign: Callable[..., None] | None = None
    on_revoke: Callable[..., None] | None = None
    on_lost: Callable[..., None] | None = None
    gives: list[list[Place]] = field(default_factory=list)
    has_closed: bool = False

    def list_topics(self, timeout: float) -> Any:
        topics: dict[str, Any] = {}
        for topic, number in self.broker.logs:
            topics.setdefault(topic, SimpleNamespace(partitions={}, error=self.broker.unreadable.get(topic))).partitions[
                number
            ] = None
        return SimpleNamespace(topics=topics, cluster_id=self.broker.cluster)

    def subscribe(self, topics: Sequence[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost
        self.gives.append(sorted(self.broker.logs))

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.positions = {(one.topic, one.partition): one.offset for one in places}
        self.ended.clear()

    def committed(self, asked: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [self._answer(one, self.broker.noted.get((one.topic, one.partition))) for one in asked]

    def offsets_for_times(self, asked: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.broker.asked += [one.offset for one in asked]
        found = {place: TopicPartition(*place, at) for place, at in self.broker.times.items()}
        return [self._answer(one, found.get((one.topic, one.partition)), -1) for one in asked]

    def _answer(self, one: TopicPartition, known: TopicPartition | None, unknown: int = OFFSET_INVALID) -> Any:
        error = self.broker.refused.get((one.topic, one.partition))
        known = None if error is not None else known
        offset, metadata = (unknown, None) if known is None else (known.offset, known.metadata)
        return SimpleNamespace(topic=one.topic, partition=one.partition, offset=offset, metadata=metadata, error=error)

    def get_watermark_offsets(self, one: TopicPartition, timeout: float = 0, cached: bool = False) -> tuple[int, int]:
        place = (one.topic, one.partition)
        return self.broker.lows.get(place, 0), self.broker.end(place)

    def consume(self, count: int, timeout: float) -> list[Sent]:
        if self.gives:
            given = self.gives.pop(0)
            assert self.on_assign is not None
            self.on_assign(self, [TopicPartition(*place) for place in given])
        if self.broker.brought:
            return self.broker.brought.popleft()
        found = list[Sent]()
        for place, position in self.positions.items():
            new = [one for one in self.broker.logs[place] if one.at >= position][: count - len(found)]
            if new:
                self.positions[place] = new[-1].at + 1
            elif place not in self.ended and len(found) < count:
                self.ended.add(place)
                new = [Sent(place, trouble=KafkaError(KafkaError._PARTITION_EOF))]
            found += new
        return found

    def take(self, *places: Place, lost: bool = False) -> None:
        """Take partitions away."""
        called = self.on_lost if lost else self.on_revoke
        assert called is not None
        called(self, [TopicPartition(*place) for place in places])
        self.positions = {}

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        self.broker.noted |= {(one.topic, one.partition): one for one in offsets}

    def poll(self, timeout: float) -> None:
        return None

    def close(self) -> None:
        if self.on_revoke is not None and self.positions:
            self.take(*self.positions)
        self.has_closed = True
