"""Reads topics of Kafka for an ingest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from paimon_cli.api.ingest_reading import EventReading
from paimon_cli.api.ingest_run import IngestRun
from paimon_cli.ingest.changes.event_lines import EventLines
from paimon_cli.ingest.changes.kafka_address import KafkaAddress
from paimon_cli.ingest.changes.kafka_client import KafkaClient
from paimon_cli.ingest.changes.kafka_topics import KafkaTopics, Partition
from paimon_cli.ingest.changes.read_marks import Mark
from paimon_cli.ingest.changes.transaction_ends import HeldTransaction
from paimon_cli.storage.injected import SystemClock


@dataclass
class TopicReading(EventReading):
    """Topics, which other members of the same group may read, too: each partition is read by one of them at a time.

    A table that has stopped holds back the offsets of the group, so that the next run reads its events again.
    """

    run: IngestRun
    topics: KafkaTopics
    follows: bool
    _ends: dict[str, Mark | None] = field(default_factory=dict)
    _held: dict[Partition, HeldTransaction] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def opened(cls, run: IngestRun, address: KafkaAddress, follows: bool) -> Iterator[TopicReading]:
        topics = KafkaTopics(
            KafkaClient(address, run.call.kafka_conf or {}, address.group or group_of(run), run.memory),
            follows,
            not run.is_dry,
            lambda is_lost: reading._rebalanced(is_lost),
            run.site.runtime.warn,
        )
        reading = cls(run, topics, follows)
        with topics.opened():
            yield reading

    def round(self) -> None:
        """Read what came within an interval, or up to the ends that the topics had at the beginning."""
        clock, awaited = SystemClock(), set(self._held)
        until = clock.now_millis() + self.run.interval_millis
        while True:
            for partition, lines in self.topics.blocks():
                if not self.topics.holds_next(partition, lines):
                    continue  # an event before them has let it be read again
                awaited.discard(partition)
                self._apply(partition, self._transaction(partition).released(lines))
                self._bound()
            if self.run.is_full:
                self.run.commit()
                self.committed()
            if (clock.now_millis() < until) if self.follows else not self.topics.is_ended:
                if self.run.has_stopped:
                    break
                continue
            for partition in awaited if self.follows else list(self._held):  # a transaction has one interval for its end
                self._apply(partition, self._transaction(partition).rest())
            if self.follows or self.topics.is_ended:  # a partition may have to be read again
                break

    def _transaction(self, partition: Partition) -> HeldTransaction:
        held = HeldTransaction(self.run.format.name, self.run.block_bytes)
        return self._held.setdefault(partition, held)

    def _bound(self) -> None:
        """Wait for the end of no more transactions than fit into a block: the longest go first."""
        while self._held and sum(held.nbytes for held in self._held.values()) > self.run.block_bytes:
            longest = max(self._held, key=lambda partition: self._held[partition].nbytes)
            self._apply(longest, self._held.pop(longest).rest())

    def _apply(self, partition: Partition, lines: EventLines | None) -> None:
        if lines is None or partition not in self.topics.places:
            return
        key = self.topics.key(partition)
        self.run.gone[key] = self.topics.places[partition].gone
        self.run.behind[key] = self.topics.behind(partition, lines.end)
        if self.topics.places[partition].is_continued:
            self.run.continued.add(key)
        self._ends[key] = self.run.apply(key, lines, int(lines.positions[0]), self._ends.get(key))
        if (name := self.run.unread.pop(key, None)) is not None:
            self._read_again(partition, name)

    def _read_again(self, partition: Partition, name: str) -> None:
        """Read a partition from where the group began, because a table has read nothing of it: it is new, or was created again.
        The other tables leave out what they have.

        If it has read nothing of the topic, its rows may be in all partitions of this reader, whether or not events follow there.
        """
        self.run.commit()
        again, marks = [partition], self.run.targets[name].marks
        others = [one for one in self.topics.places if one.topic == partition.topic and one != partition]
        if not any(self.topics.key(one) in marks for one in others):
            again += [one for one in others if self.topics.places[one].is_continued]
        for one in again:
            self.run.continued.discard(self.topics.key(one))
            self._ends.pop(self.topics.key(one), None)
            self._held.pop(one, None)
            first = self.topics.read_again(one)
            self.run.site.runtime.warn(f"{one.name} is read again from offset {first}, because {name} has read nothing of it")

    def committed(self) -> None:
        if not any(target.failure is not None for target in self.run.targets.values()):
            begun = {one: held.events for one, held in self._held.items()}
            self.topics.commit_offsets({one: int(lines.positions[0]) for one, lines in begun.items() if lines is not None})

    def wait(self) -> None:
        """A round takes an interval."""

    def _rebalanced(self, is_lost: bool) -> None:
        """Commit what is held before the partitions go; if they are gone, drop it: another member reads it again."""
        if not is_lost:
            self.run.commit()
            self.committed()
        self.run.continued.clear()
        self._ends.clear()
        self._held.clear()
        for target in list(self.run.targets.values()):
            if target.failure is None:
                self.run.reopen(target)


def group_of(run: IngestRun) -> str:
    """The consumer group of a call that names none: the same for the same tables, user and choice, and no other."""
    call, site = run.call, run.site
    place = [site.warehouse, call.into, call.database_from, call.table_prefix, site.branch, run.user, call.format]
    choice = [sorted(texts or ()) for texts in (call.include, call.exclude, call.table_mapping)]
    table = None if site.table is None else site.table.name
    text = json.dumps([place, choice, table])
    return f"{run.user}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
