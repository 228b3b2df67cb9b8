"""Partitions of topics: where they are read from, how far they were read, and what is told of that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from paimon_cli import Catalog
from paimon_cli.errors import BadInput, Conflict, NoAccess, NotFound, PaimonError, Refused, StorageUnavailable, UsageError
from paimon_cli.ingest.changes.kafka_address import KafkaAddress
from paimon_cli.ingest.changes.kafka_client import KafkaClient
from paimon_cli.ingest.changes.kafka_topics import SILENT_SECONDS, KafkaTopics, Partition
from tests.event_streams import debezium, rows_of
from tests.kafka_broker import Broker, Sent

URL = "kafka://broker:9092/"
SUMS = {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum", "bucket": "1"}
FIRST, SECOND = Partition("t", 0), Partition("t", 1)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    return Broker().used(monkeypatch)


@dataclass
class Reader:
    """Topics, and what they have said. `taken`: whether partitions were lost, each time that some were taken away."""

    topics: KafkaTopics
    taken: list[bool]
    warnings: list[str]

    @staticmethod
    def of(address: str, follows: bool = False, keeps_offsets: bool = True) -> Reader:
        found = KafkaAddress.of_sources([URL + address])
        assert found is not None
        taken, warnings = list[bool](), list[str]()
        client = KafkaClient(found, {}, "g", 1 << 20)
        return Reader(KafkaTopics(client, follows, keeps_offsets, taken.append, warnings.append), taken, warnings)

    def read(self, polls: int = 4) -> dict[str, list[int]]:
        """The offsets that some polls bring."""
        found = dict[str, list[int]]()
        for _ in range(polls):
            for partition, lines in self.topics.blocks():
                found.setdefault(partition.name, []).extend(lines.positions.tolist())
        return found

    def has_ended(self) -> bool:
        return self.topics.is_ended

    @property
    def consumer(self) -> Any:
        return self.topics._consumer


def noted(partition: int, offset: int, began: int) -> dict[tuple[str, int], TopicPartition]:
    """What a group has committed."""
    return {("t", partition): TopicPartition("t", partition, offset, f"began={began}")}


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


LATER = "2024-01-31T12:00:00Z"


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize(
    "query, committed, times, read, begun",
    [
        ("", {}, {}, [2, 3, 4], (2, 2, False)),
        ("", noted(0, 4, 3), {}, [4], (3, 0, True)),
        ("", noted(0, 4, 1), {}, [4], (2, 0, True)),  # Kafka has deleted where it began
        ("", noted(0, 3, 4), {}, [3, 4], (3, 0, False)),
        ("", noted(0, 5, 5), {}, [], (5, 0, False)),
        ("?offsets=earliest", noted(0, 4, 3), {}, [2, 3, 4], (2, 0, False)),
        ("?offsets=latest", noted(0, 4, 3), {}, [], (5, 0, False)),
        ("?offsets=latest", {}, {}, [], (5, 0, False)),
        (f"?offsets={LATER}", noted(0, 2, 2), {("t", 0): 4}, [4], (4, 0, False)),
        (f"?offsets={LATER}", {}, {("t", 0): 0}, [2, 3, 4], (0, 0, False)),  # the offset 0 is not "none"
        (f"?offsets={LATER}", noted(0, 2, 2), {}, [], (5, 0, False)),
        ("?offsets=1970-01-01T00:00:00Z", noted(0, 4, 3), {("t", 0): 2}, [2, 3, 4], (2, 0, False)),
        ("?offsets=0:2", noted(0, 4, 3), {}, [2, 3, 4], (2, 0, False)),
        ("?offsets=0:5", noted(0, 4, 3), {}, [], (5, 0, False)),
        ("?offsets=1:0", noted(0, 4, 3), {}, [4], (3, 0, True)),  # the others go on
    ],
)
def test_where_partitions_are_read_from(
    broker: Broker, query: str, committed: Any, times: Any, read: list[int], begun: tuple[int, int, bool], follows: bool
) -> None:
    """`begun`: the first offset of the group, before which offset it is not known what was read, and whether it goes on."""
    broker.send("t", *range(5))
    broker.delete(("t", 0), 2)
    broker.send("t", 0, partition=1)
    broker.noted, broker.times = dict(committed), times
    reader = Reader.of(f"t{query}", follows)
    with reader.topics.opened():
        assert reader.read().get("t/0", []) == read
        place = reader.topics.places[FIRST]
        assert (place.first, place.gone, place.is_continued) == begun and place.position == 5
        assert reader.has_ended()
        reader.topics.commit_offsets()
    assert {(one.offset, one.metadata) for one in broker.noted.values() if not one.partition} == {(5, f"began={begun[0]}")}
    assert broker.asked == ([] if "T" not in query else 2 * [0 if "1970" in query else 1706702400000])


def test_a_dry_run_reads_what_the_group_has_read_and_moves_nothing(broker: Broker) -> None:
    broker.send("t", *range(5))
    broker.noted, before = noted(0, 4, 1), 4
    reader = Reader.of("t", keeps_offsets=False)
    with reader.topics.opened():
        assert reader.read() == {"t/0": [1, 2, 3, 4]} and not reader.topics.places[FIRST].is_continued
        reader.topics.commit_offsets()
    assert broker.noted["t", 0].offset == before


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize(
    "query, offset, error, why",
    [
        ("", 1, Refused, "1 event of t/0 are gone"),
        ("", 6, Refused, "t/0 is not what was read before"),
        ("?offsets=0:1", 3, UsageError, "t/0 has no offset 1"),
        ("?offsets=0:6", 3, UsageError, "t/0 has no offset 6"),
    ],
)
def test_offsets_that_do_not_exist_are_refused(
    broker: Broker, query: str, offset: int, error: type[PaimonError], why: str, follows: bool
) -> None:
    broker.send("t", *range(5))
    broker.delete(("t", 0), 2)
    broker.noted = noted(0, offset, 0)
    reader = Reader.of(f"t{query}", follows)
    with pytest.raises(error, match=why), reader.topics.opened():
        reader.read(1)


def test_a_member_of_a_group_reads_what_it_has(broker: Broker) -> None:
    """After a rebalance it goes on where the group is, and no longer begins where the address says."""
    broker.send("t", *range(3))
    broker.send("t", *range(2), partition=1)
    reader = Reader.of("t?offsets=latest", follows=True)
    with reader.topics.opened():
        assert reader.read() == {} and reader.has_ended()
        assert {place: one.offset for place, one in broker.noted.items()} == {("t", 0): 3, ("t", 1): 2}
        broker.send("t", 3, 4)
        assert reader.read(1) == {"t/0": [3, 4]}
        reader.consumer.take(("t", 0), ("t", 1))
        assert reader.taken == [False] and not reader.topics.places and not reader.has_ended()
        broker.send("t", 2, partition=1)
        broker.brought.append([broker.logs["t", 0][4], broker.logs["t", 1][2]])
        reader.consumer.gives.append([("t", 1)])
        assert reader.read(1) == {}, "these may be of others now"
        assert list(reader.topics.places) == [SECOND]
        broker.brought.append([broker.logs["t", 0][4]])
        assert reader.read() == {"t/1": [2]}
        reader.consumer.take(("t", 1), lost=True)
        assert reader.taken == [False, True]
        reader.consumer.gives.append([("t", 0), ("t", 1)])
        assert reader.read() == {"t/0": [3, 4], "t/1": [2]}, "nothing was committed meanwhile"
    assert reader.taken == [False, True] and reader.consumer.has_closed, "what was not committed as it ends was not applied"


def test_a_failure_while_partitions_are_taken_away_ends_the_run(broker: Broker) -> None:
    broker.send("t", 0)
    reader = Reader.of("t", follows=True)

    def fail(is_lost: bool) -> None:
        raise Conflict("not committed", "")

    reader.topics.rebalanced = fail
    with pytest.raises(Conflict), reader.topics.opened():
        reader.read(1)
        reader.consumer.take(("t", 0))
        reader.read(1)


def test_what_is_taken_of_messages(broker: Broker) -> None:
    """Those that are new, and of a run that does not follow those that were there when it began, with their own keys."""
    for number in range(5):
        broker.send("t", {"n": number} if number % 2 else b'{"n":\r\n%d}' % number, key=number)
    for follows, last in ((False, 4), (True, 5)):
        reader = Reader.of(f"t?offsets=0:1&group={follows}", follows)
        broker.noted.clear()
        with reader.topics.opened():
            reader.read(1)
            if not follows:
                broker.send("t", None, key="k")
            broker.brought.append(broker.logs["t", 0][:3])
            broker.brought.append(broker.logs["t", 0])
            ((_, first),) = reader.topics.blocks()
            assert (first.positions.tolist(), first.end, reader.topics.places[FIRST].is_ended) == ([1, 2], 3, False)
            ((_, second),) = reader.topics.blocks()
            assert second.positions.tolist() == list(range(3, last + 1)) and second.end == last + 1
            assert reader.topics.places[FIRST].is_ended is not follows
            assert [first.text(0), first.text(1)] == [b'{"n": 1}', b'{"n":  2}']
            assert first.keys is not None and first.keys.to_pylist() == [b"1", b"2"]
            assert second.text(1) == b'{"n":  4}'
            assert second.keys is not None and second.keys.to_pylist()[:2] == [b"3", b"4"]
            if follows:
                assert second.text(2) == b"null"
            assert reader.topics.behind(FIRST, 3) == 3 and reader.topics.behind(FIRST, 9) == 0


def test_a_partition_that_is_read_again_is_not_at_its_end(broker: Broker) -> None:
    broker.send("t", *range(4))
    broker.noted = noted(0, 3, 1)
    reader = Reader.of("t")
    with reader.topics.opened():
        reader.read(1)
        (((partition, lines)),) = reader.topics.blocks()
        assert reader.topics.holds_next(partition, lines) and reader.has_ended()
        assert reader.topics.read_again(FIRST) == 1
        assert not reader.has_ended() and not reader.topics.places[FIRST].is_continued
        assert not reader.topics.holds_next(partition, lines)
        assert reader.read() == {"t/0": [1, 2, 3]} and reader.has_ended()


def test_offsets_are_committed_up_to_what_is_held(broker: Broker) -> None:
    broker.send("t", *range(4))
    broker.send("t", *range(3), partition=1)
    broker.noted = noted(0, 2, 1)
    reader = Reader.of("t")
    with reader.topics.opened():
        reader.read()
        reader.topics.commit_offsets({SECOND: 1})
        found = {place: (one.offset, one.metadata) for place, one in broker.noted.items()}
        assert found == {("t", 0): (4, "began=1"), ("t", 1): (1, "began=0")}
        for code, warns in ((KafkaError.ILLEGAL_GENERATION, False), (KafkaError.GROUP_AUTHORIZATION_FAILED, True)):

            def refuse(offsets: Any, asynchronous: bool, code: int = code) -> None:
                raise KafkaException(KafkaError(code))

            reader.consumer.commit = refuse
            reader.topics.commit_offsets()
            assert bool(reader.warnings) is warns


@pytest.mark.parametrize(
    "code, error, why",
    [
        (KafkaError.OFFSET_OUT_OF_RANGE, Refused, "events of t/0 are gone"),
        (KafkaError._AUTO_OFFSET_RESET, Refused, "events of t/0 are gone"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NoAccess, "refuses access"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, NotFound, "no such topic"),
    ],
)
def test_errors_of_a_partition_end_the_run(broker: Broker, code: int, error: type[PaimonError], why: str) -> None:
    broker.send("t", 0)
    reader = Reader.of("t")
    with reader.topics.opened():
        reader.read(1)
        broker.brought.append([Sent(("t", 0), trouble=KafkaError(KafkaError._TRANSPORT, retriable=True)), *broker.logs["t", 0]])
        assert reader.read(1) == {"t/0": [0]}
        broker.brought.append([Sent(("t", 0), trouble=KafkaError(code))])
        with pytest.raises(error, match=why):
            reader.read(1)


@pytest.mark.parametrize("follows", [False, True])
def test_brokers_that_are_gone_are_waited_for(broker: Broker, monkeypatch: pytest.MonkeyPatch, follows: bool) -> None:
    """For a while, if there is an end to wait for; messages end the waiting."""
    monkeypatch.setattr("paimon_cli.ingest.changes.kafka_topics._POLL_SECONDS", SILENT_SECONDS / 4)
    broker.send("t", *range(9))
    reader = Reader.of("t", follows)
    with reader.topics.opened():
        reader.read(1)
        for number in range(3):
            reader.topics.client.complaint = "connection refused"
            broker.brought.extend([[], [], [], [broker.logs["t", 0][number]]])
            assert reader.read(4) == {"t/0": [number]}
        assert len(reader.warnings) == 3 and "connection refused; it is tried again" in reader.warnings[0]
        reader.topics.client.complaint = "connection refused"
        broker.brought.extend([[]] * 5)
        if follows:
            assert reader.read(5) == {} and len(reader.warnings) == 4
            return
        with pytest.raises(StorageUnavailable, match="cannot be reached"):
            reader.read(5)


def test_tables_remember_partitions_by_the_cluster(broker: Broker) -> None:
    """Not by the brokers that an address names, which may be others next time."""
    broker.send("t", 0)
    for cluster, key in (("c1", "kafka:c1/t/1"), (None, "kafka:broker:9092/t/1")):
        broker.cluster = cluster
        reader = Reader.of("t")
        with reader.topics.opened():
            assert reader.topics.key(SECOND) == key


def test_an_event_that_is_too_large_is_refused(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.ingest.changes.kafka_topics.MAX_EVENT_BYTES", 5)
    broker.send("t", None, b"12345", b"123456")
    reader = Reader.of("t")
    with reader.topics.opened():
        reader.read(1)
        broker.brought.append(broker.logs["t", 0][:2])
        assert reader.read(1) == {"t/0": [0, 1]}
        with pytest.raises(BadInput, match="t/0 has an event of 0 MB"):
            reader.read(1)
