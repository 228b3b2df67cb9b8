"""Topics of Kafka as sources of events, read in a consumer group by librdkafka.

Each partition is a source, and the offsets of its messages are its positions. The group's offsets only say where to begin: which
events a table has applied, its own marks say. They are committed once all tables have committed what was read, with the offset
from which the group has read: a table that was created later is filled from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.errors import BadInput, NotFound, PaimonError, Refused, StorageUnavailable, UsageError
from paimon_cli.ingest.changes.event_lines import MAX_EVENT_BYTES, EventLines, PositionUnit
from paimon_cli.ingest.changes.kafka_address import EARLIEST, LATEST
from paimon_cli.ingest.changes.kafka_client import ANSWER_SECONDS, KafkaClient
from paimon_cli.options.option_text import counted
from paimon_cli.pieces import PIECES

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

SILENT_SECONDS = 60
"""How long a run that does not follow waits for brokers that are gone."""
_POLL_SECONDS = 0.5
_TOMBSTONE = b"null"
_BEGAN, _OFFSET_DIGITS = "began=", 20


class Partition(NamedTuple):
    topic: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.number}"


NOTHING_HELD: Mapping[Partition, int] = MappingProxyType({})


@dataclass
class PartitionPlace:
    """How far a partition was read. `position`: the next offset; `end`: that of the last message when it was assigned, plus one.
    `first`: where the group began, as far as Kafka still has it; `is_continued`: this run began after it. `gone`: whether events
    before this offset were read is unknown. `is_ended`: there was nothing more.
    """

    position: int
    end: int
    first: int = 0
    gone: int = 0
    is_ended: bool = False
    is_continued: bool = False


@dataclass
class KafkaTopics:
    """The topics of an address. `follows`: read as a member of the consumer group, which may give each a part of the partitions;
    else all of them, up to their ends. `keeps_offsets`: the group remembers how far was read. `rebalanced`: called when
    partitions are taken away, with whether they are lost already, so that offsets can no longer be committed.
    """

    client: KafkaClient
    follows: bool
    keeps_offsets: bool
    rebalanced: Callable[[bool], None]
    warn: Callable[[str], None]
    places: dict[Partition, PartitionPlace] = field(default_factory=dict)
    cluster: str = ""
    _begun: set[Partition] = field(default_factory=set)
    _consumer: Any = None
    _is_assigned: bool = False
    _is_closing: bool = False
    _has_changed: bool = False
    _silent_seconds: float = 0.0

    @contextmanager
    def opened(self) -> Iterator[KafkaTopics]:
        """Connect to the brokers, and join the group. Raises `StorageUnavailable`, `NoAccess`, `NotFound`, `UsageError`."""
        self._consumer = self.client.consumer()
        try:
            self._subscribe()
            yield self
        finally:
            self._is_closing = True
            with suppress(self.client.kafka.KafkaException, RuntimeError):
                self._consumer.close()

    def _subscribe(self) -> None:
        with self.client.asking():
            known = self._consumer.list_topics(timeout=ANSWER_SECONDS)
        self.cluster = known.cluster_id or self.client.address.brokers
        topics = self.client.address.chosen(list(known.topics))
        missing = [topic for topic in self.client.address.topics if "*" not in topic and topic not in topics]
        if missing or not (topics or (self.follows and self.client.address.has_patterns)):
            names = ", ".join(missing or self.client.address.topics)
            raise NotFound(
                f"Kafka at {self.client.address.brokers} has no topic {names}", "", "create it first, or name another one"
            )
        for topic in topics:
            self._check_topic(topic, known.topics[topic])
        with self.client.asking():
            if self.follows:
                self._consumer.subscribe(
                    self.client.address.subscription, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )
                return
            partitions = [Partition(topic, number) for topic in topics for number in known.topics[topic].partitions]
            self._assign([self.client.kafka.TopicPartition(*one) for one in partitions])
            self._has_changed = True

    def _check_topic(self, topic: str, known: Any) -> None:
        """Raise an error for a topic that cannot be read, or without a partition from whose offset it is to be read."""
        if known.error is not None:
            if self.follows:  # it may pass; else messages say it
                return
            raise self.client.failed(known.error)
        asked = () if self.client.address.beginning is None else self.client.address.beginning.exact
        if missing := sorted(set(asked) - set(known.partitions)):
            there = f"it has {counted(len(known.partitions), 'partition')}, from 0 on"
            raise UsageError(f"{topic} has no partition {missing[0]}", there, "name another one, or ?offsets=earliest")

    # The group gives partitions, and takes them away

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        try:
            self._assign(given)
            self._assign_places()  # else librdkafka begins at offsets that it asks for itself, of which a new group has none
        except PaimonError as failure:
            self.client.failure = failure
        except self.client.kafka.KafkaException as problem:
            self.client.failure = self.client.failed(problem.args[0])
        self._has_changed = True

    def _assign(self, given: list[TopicPartition]) -> None:
        committed = self.client.answers(lambda: self._consumer.committed(given, timeout=ANSWER_SECONDS)) if given else []
        times = self._offsets_of_time(given)
        for one, moment in zip(committed, times, strict=True):
            partition = Partition(one.topic, one.partition)
            low, high = self._ends(one)
            is_new = partition not in self._begun and self._is_named(partition)
            position = self._begin(partition, (low, high), None if one.offset < 0 else one.offset, moment, is_new)
            self._begun.add(partition)
            gone = low if one.offset < 0 and not is_new else 0
            first = position if is_new else min(position, max(low, _began(one.metadata)))
            if not self.keeps_offsets:
                position = first
            self.places[partition] = PartitionPlace(position, high, first, gone, position >= high, first < position)
        self._is_assigned = True

    def _is_named(self, one: Partition) -> bool:
        """Whether the address says where a partition begins; of `exact` offsets, the others go on where the group is."""
        beginning = self.client.address.beginning
        return beginning is not None and (not beginning.exact or one.number in beginning.exact)

    def _ends(self, one: TopicPartition) -> tuple[int, int]:
        """The offsets of the first message and after the last one."""
        found: tuple[int, int] = self.client.answer(lambda: self._consumer.get_watermark_offsets(one, timeout=ANSWER_SECONDS))
        return found

    def _offsets_of_time(self, given: list[TopicPartition]) -> list[int]:
        """The offset of each partition at the time from which it is read; -1 where that is after its end."""
        beginning = self.client.address.beginning
        if beginning is None or beginning.millis is None or not given:
            return [-1] * len(given)
        asked = [self.client.kafka.TopicPartition(one.topic, one.partition, beginning.millis) for one in given]
        found = self.client.answers(lambda: self._consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS))
        return [one.offset for one in found]

    def _begin(self, one: Partition, ends: tuple[int, int], committed: int | None, moment: int, is_new: bool) -> int:
        """The offset from which a partition is read."""
        (low, high), beginning = ends, self.client.address.beginning
        if is_new and beginning is not None:
            if not beginning.exact:
                at_time = moment if moment >= 0 else high
                return low if beginning.edge == EARLIEST else high if beginning.edge == LATEST else at_time
            found = beginning.exact[one.number]
            if not low <= found <= high:
                why = f"it has offsets from {low} to {high}"
                raise UsageError(f"{one.name} has no offset {found}", why, "name another one, or ?offsets=earliest")
            return found
        if committed is None:
            return low
        if committed < low:
            raise Refused(
                f"{counted(low - committed, 'event')} of {one.name} are gone",
                f"group {self.client.group} has read to offset {committed}, and Kafka has deleted those before {low}",
                "?offsets=earliest goes on without them; load the tables again if rows are missing",
            )
        if committed > high:
            raise Refused(
                f"{one.name} is not what was read before",
                f"group {self.client.group} has read to offset {committed}, and it ends at {high}",
                "the topic was created again: name another --commit-user and ?group=NAME",
            )
        return committed

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        self._give_up(taken, is_lost=False)

    def _on_lost(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        self._give_up(taken, is_lost=True)

    def _give_up(self, taken: list[TopicPartition], is_lost: bool) -> None:
        if self._is_closing:  # what was not committed by then was not applied
            return
        try:
            self.rebalanced(is_lost)
        except PaimonError as failure:
            self.client.failure = failure
        for one in taken:
            self.places.pop(Partition(one.topic, one.partition), None)
        self._is_assigned = False
        self._has_changed = True

    # Messages

    @property
    def is_ended(self) -> bool:
        """Whether everything was read that was there when the partitions were assigned."""
        return self._is_assigned and not self._has_changed and all(one.is_ended for one in self.places.values())

    def blocks(self) -> list[tuple[Partition, EventLines]]:
        """The next messages by partition, within half a second; none if there are none. A run that does not follow leaves out
        those that came later than it.
        """
        messages = self._polled()
        if self._has_changed:  # others may have the partitions of these messages now
            self._has_changed = False
            if self._is_assigned:
                self._assign_places()
                if self.client.address.beginning is not None:
                    self.commit_offsets()
            return []
        found: dict[Partition, list[Message]] = {}
        for message in messages:
            partition = Partition(message.topic() or "", message.partition() or 0)
            if (error := message.error()) is None:
                found.setdefault(partition, []).append(message)
            elif error.code() == self.client.kafka.KafkaError._PARTITION_EOF:
                if partition in self.places:
                    self.places[partition].is_ended = True
            elif not error.retriable():
                raise self._lost(partition, error)
        return [(partition, lines) for partition, given in found.items() if (lines := self._lines(partition, given)) is not None]

    def _assign_places(self) -> None:
        with self.client.asking():
            self._consumer.assign([self.client.kafka.TopicPartition(*one, at.position) for one, at in self.places.items()])

    def read_again(self, partition: Partition) -> int:
        """Go back to where the group began to read a partition, and return that offset."""
        place = self.places[partition]
        place.position, place.is_ended, place.is_continued = place.first, False, False
        self._assign_places()
        return place.first

    def holds_next(self, partition: Partition, lines: EventLines) -> bool:
        """Whether events of `blocks` are still the next ones: their partition may be read again since, or be taken away."""
        place = self.places.get(partition)
        return place is not None and place.position >= lines.end

    def _polled(self) -> list[Message]:
        with self.client.asking():
            messages: list[Message] = self._consumer.consume(PIECES.polled_messages, _POLL_SECONDS)
        if self.client.failure is not None:
            raise self.client.failure
        if messages:
            self._silent_seconds, self.client.complaint = 0.0, ""
        elif self.client.complaint and not self.is_ended:
            if not self._silent_seconds:
                self.warn(f"Kafka at {self.client.address.brokers}: {self.client.complaint}; it is tried again")
            self._silent_seconds += _POLL_SECONDS
            if self._silent_seconds >= SILENT_SECONDS and not self.follows:
                raise StorageUnavailable(f"Kafka at {self.client.address.brokers} cannot be reached", self.client.complaint)
        return messages

    def _lost(self, partition: Partition, error: KafkaError) -> PaimonError:
        known = self.client.kafka.KafkaError
        if error.code() in (known.OFFSET_OUT_OF_RANGE, known._AUTO_OFFSET_RESET):
            why = f"Kafka has deleted them before they were read: {self.client.said(error)}"
            return Refused(f"events of {partition.name} are gone", why, "?offsets=earliest goes on without them")
        return self.client.failed(error)

    def _lines(self, partition: Partition, messages: Sequence[Message]) -> EventLines | None:
        place = self.places.get(partition)
        if place is None:
            return None
        offsets = np.array([one.offset() for one in messages], np.int64)
        keep = offsets >= place.position
        if not self.follows:
            keep &= offsets < place.end
            place.is_ended = place.is_ended or int(offsets[-1]) + 1 >= place.end
        chosen: list[int] = np.flatnonzero(keep).tolist()
        if not chosen:
            return None
        values = [messages[index].value() for index in chosen]
        if (longest := max(len(one) for one in values if one is not None) if any(values) else 0) > MAX_EVENT_BYTES:
            raise BadInput(f"{partition.name} has an event of {longest >> 20} MB", f"the most are {MAX_EVENT_BYTES >> 20} MB")
        texts = _on_one_line(pa.array([_TOMBSTONE if one is None else one for one in values], pa.large_binary()))
        keys = pa.array([_bytes(messages[index].key()) for index in chosen], pa.large_binary())
        place.position = int(offsets[chosen[-1]]) + 1
        return EventLines(f"{partition.name}", texts, offsets[chosen], place.position, PositionUnit.OFFSET, keys)

    def behind(self, partition: Partition, position: int) -> int:
        """How many messages there are from an offset on, as far as the brokers have told."""
        asked = self.client.kafka.TopicPartition(*partition)
        _, high = self._consumer.get_watermark_offsets(asked, cached=True)
        return max(0, int(high) - position, self.places[partition].end - position)

    def key(self, partition: Partition) -> str:
        """The name under which tables remember a partition."""
        return f"kafka:{self.cluster}/{partition.name}"

    def _reached(self, held: Mapping[Partition, int] = NOTHING_HELD) -> list[TopicPartition]:
        return [
            self.client.kafka.TopicPartition(*one, held.get(one, place.position), metadata=f"{_BEGAN}{place.first}")
            for one, place in self.places.items()
        ]

    def commit_offsets(self, held: Mapping[Partition, int] = NOTHING_HELD) -> None:
        """Let the group remember how far was read, but for what is `held`, from these offsets on.

        A failure only lets a later run read more than it needs; one because others read the partitions now is none.
        """
        reached = self._reached(held)
        if not self.keeps_offsets or not reached:
            return
        try:
            self._consumer.commit(offsets=reached, asynchronous=False)
        except self.client.kafka.KafkaException as problem:
            error = problem.args[0]
            known = self.client.kafka.KafkaError
            if error.code() not in (known.REBALANCE_IN_PROGRESS, known.ILLEGAL_GENERATION, known.UNKNOWN_MEMBER_ID):
                self.warn(f"group {self.client.group} does not remember how far it has read: {self.client.said(error)}")


def _began(metadata: str | None) -> int:
    """The offset that the group has noted as its first one; 0 if it has not."""
    noted = (metadata or "").removeprefix(_BEGAN)
    return int(noted) if noted.isascii() and noted.isdigit() and len(noted) < _OFFSET_DIGITS else 0


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _on_one_line(texts: pa.Array) -> pa.Array:
    """The texts without line breaks, which only separate tokens in JSON."""
    for sign in (b"\n", b"\r"):
        if pc.any(pc.match_substring(texts, sign)).as_py():
            texts = pc.replace_substring(texts, sign, b" ")
    return texts
