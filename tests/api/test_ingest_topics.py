"""Topics of Kafka into tables: each event once, whatever happens in between."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from paimon_cli import Catalog
from paimon_cli.api.ingest_target import MAX_COMMITS, IngestTarget
from paimon_cli.api.ingest_topics import TopicReading
from paimon_cli.errors import BadInput, Conflict, NotFound, NotSupported, PaimonError, Refused, StorageUnavailable, UsageError
from paimon_cli.ingest.changes.kafka_topics import KafkaTopics
from paimon_cli.ingest.changes.read_lag import ReadLag
from paimon_cli.pieces import PIECES
from tests.api.test_ingest_run import Killed, as_text, check
from tests.event_streams import Stream, canal, debezium, maxwell, rows_of, with_schema, written
from tests.kafka_cluster import SECONDS, Cluster, cluster

SUMS = {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum", "bucket": "1"}
MEMBER = ["session.timeout.ms=6000", "heartbeat.interval.ms=500"]


POLL_SECONDS = "paimon_cli.ingest.changes.kafka_topics._POLL_SECONDS"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a topic is noticed when no more messages come."""
    monkeypatch.setattr(POLL_SECONDS, 0.05)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


def soon(met: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < until
        time.sleep(0.05)


def ingest(path: Path, source: str, **given: Any) -> list[tuple[str, int]]:
    """The tables, and how many rows were inserted."""
    found = Catalog(str(path)).ingest(source, **{"format": "debezium", "into": "shop", **given})
    return [(one.table, one.inserts) for one in found]


def created(number: int, table: str = "a") -> Any:
    return debezium(table, "c", None, {"id": number})


def summed(path: Path) -> Catalog:
    """A table that shows each event that is applied twice, or not."""
    catalog = Catalog(str(path))
    catalog.create_table("shop.s", columns=["id INT NOT NULL", "amount BIGINT"], primary_key="id", options=SUMS)
    return catalog


def amounts(path: Path) -> dict[int, int]:
    return {key: row["amount"] for key, row in rows_of(path, "s").items()}


def added(numbers: range) -> list[Any]:
    return [debezium("s", "c", None, {"id": number % 5, "amount": str(number)}) for number in numbers]


def total(count: int) -> dict[int, int]:
    return {key: sum(range(key, count, 5)) for key in range(5)}


def test_topics_become_tables_with_the_keys_of_their_messages(kafka: Cluster, tmp_path: Path) -> None:
    for number in range(4):
        kafka.send("keys.shop.a", created(number), partition=number % 2, key={"id": number})
    kafka.send("keys.shop.a", debezium("a", "d", {"id": 0}, None), None, key={"id": 0})
    kafka.send("keys.shop.b", created(9, "b"), key={"schema": {}, "payload": {"id": 9}})
    pattern = kafka.url("keys.shop.*")
    assert sorted(ingest(tmp_path, pattern)) == [("shop.a", 4), ("shop.b", 1)]
    assert sorted(rows_of(tmp_path, "a")) == ["1", "2", "3"] and sorted(rows_of(tmp_path, "b")) == ["9"]
    assert Catalog(str(tmp_path)).table("shop.a").context.schema.primary_keys == ("id",)
    assert ingest(tmp_path, pattern) == []
    kafka.send("keys.shop.b", created(10, "b"), key={"id": 10})
    assert ingest(tmp_path, pattern) == [("shop.b", 1)]
    assert ingest(tmp_path / "other", pattern, include="b") == [("shop.b", 2)], "other tables have a group of their own"


@pytest.mark.parametrize("name, envelope", [("debezium", debezium), ("maxwell", maxwell), ("canal", canal)])
def test_tables_equal_a_replay(kafka: Cluster, tmp_path: Path, name: str, envelope: Any) -> None:
    """Several tables in a topic, each in one partition."""
    stream = Stream(3, envelope=envelope).add(300)
    for line in stream.lines:
        table = json.loads(line) or {}
        place = table.get("source", table).get("table", "t0")
        pretty = line if line == b"null" else json.dumps(json.loads(line), indent=1).encode()
        kafka.send(f"replay.{name}", pretty, partition=int(place[1:]) % 2)
    assert ingest(tmp_path, kafka.url(f"replay.{name}"), format=name, primary_key="id")
    check(tmp_path, stream, as_text if name != "canal" else lambda value: value)


@pytest.mark.parametrize("seed", range(2))
def test_each_event_is_applied_once_whenever_the_process_dies(
    kafka: Cluster, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed(tmp_path)
    topic, chance, commit, deaths = f"dying{seed}", random.Random(seed), IngestTarget.commit, 0
    for part in range(2):
        kafka.send(topic, *added(range(300))[part::2], partition=part)

    def dying(target: IngestTarget) -> None:
        fate = chance.random()
        if fate < 0.2:
            raise Killed
        commit(target)
        if fate > 0.8:
            raise Killed

    monkeypatch.setattr(IngestTarget, "commit", dying)
    monkeypatch.setattr("paimon_cli.api.ingest_run.HELD_SHARE", 1 << 40)  # each block is committed
    monkeypatch.setattr(PIECES, "polled_messages", 20)
    while True:
        try:
            ingest(tmp_path, kafka.url(topic))
            break
        except Killed:
            deaths += 1
    assert deaths and amounts(tmp_path) == total(300)


def test_a_killed_process_is_continued(kafka: Cluster, tmp_path: Path) -> None:
    summed(tmp_path)
    for begin in range(0, 3000, 500):
        kafka.send("killed", *added(range(begin, begin + 500)), partition=begin // 500 % 2)
    command = [sys.executable, "-m", "paimon_cli", "ingest", kafka.url("killed"), "--format", "debezium", "--into", "shop"]
    command += ["--warehouse", str(tmp_path), "--memory", "8 kb"]
    for wanted in (1, 3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        snapshot = tmp_path / f"shop.db/s/snapshot/snapshot-{wanted}"
        soon(lambda process=process, snapshot=snapshot: process.poll() is not None or snapshot.exists())  # type: ignore[misc]
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True, capture_output=True)
    assert amounts(tmp_path) == total(3000)


def test_members_of_a_group_share_partitions_of_one_table(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second member takes a partition from the first, which commits what it holds before; then it leaves again."""
    monkeypatch.setattr(POLL_SECONDS, 0.25)  # of the rounds after which the members end
    summed(tmp_path)
    kafka.send("group", *added(range(100)), partition=0)
    kafka.send("group", *added(range(100, 200)), partition=1)
    failures = list[BaseException]()

    def member(rounds: int) -> None:
        try:
            ingest(tmp_path, kafka.url("group", "?group=g"), follow=True, interval="300 ms", max_rounds=rounds, kafka_conf=MEMBER)
        except BaseException as failure:
            failures.append(failure)

    members = [threading.Thread(target=member, args=(rounds,)) for rounds in (40, 15)]
    members[0].start()
    soon(lambda: bool(failures) or (tmp_path / "shop.db/s/snapshot/snapshot-1").exists())
    members[1].start()
    for begin in range(200, 400, 20):
        kafka.send("group", *added(range(begin, begin + 20)), partition=begin // 20 % 2)
        time.sleep(0.1)
    for one in members:
        one.join()
    assert not failures
    assert amounts(tmp_path) == total(400)
    ingest(tmp_path, kafka.url("group", "?group=g"))
    assert amounts(tmp_path) == total(400)
    assert kafka.committed("g", "group") == [200, 200]


def test_it_says_where_to_begin(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster of tests knows no times of messages: which offset they mean is given here."""
    kafka.send("begin", *map(created, range(8)))
    asked = list[int]()

    def offsets_for_times(_: Any, partitions: list[Any], timeout: float) -> list[Any]:
        asked.extend(one.offset for one in partitions)
        return [TopicPartition(one.topic, one.partition, -1 if one.partition else 5) for one in partitions]

    class Timed(Consumer):
        pass

    Timed.offsets_for_times = offsets_for_times  # type: ignore[method-assign, assignment]
    monkeypatch.setattr("confluent_kafka.Consumer", Timed)
    given: dict[str, Any] = {"primary_key": "id"}

    def begun(name: str, offsets: str) -> list[str]:
        ingest(tmp_path / name, kafka.url("begin", f"?offsets={offsets}&group={name}"), **given)
        return sorted(rows_of(tmp_path / name, "a")) if (tmp_path / name / "shop.db/a").exists() else []

    assert begun("e", "earliest") == [str(n) for n in range(8)]
    assert begun("n", "0:6") == ["6", "7"]
    assert begun("t", "2024-01-31T12:00:00Z") == ["5", "6", "7"] and set(asked) == {1706702400000}
    assert begun("l", "latest") == []
    kafka.send("begin", created(8))
    ingest(tmp_path / "l", kafka.url("begin", "?group=l"), **given)
    assert sorted(rows_of(tmp_path / "l", "a")) == ["8"], "the group remembers that it began at the end"
    assert begun("n", "earliest") == ["6", "7", "8"], "what a table has read, its marks say"
    with pytest.raises(UsageError, match="no offset 99"):
        begun("x", "0:99")


def test_a_dry_run_changes_nothing(kafka: Cluster, tmp_path: Path) -> None:
    kafka.send("dry", *map(created, range(3)))
    planned = Catalog(str(tmp_path)).plan_ingest(kafka.url("dry", "?group=dry"), format="debezium", into="shop", primary_key="id")
    assert [(one.table, one.inserts, one.created) for one in planned] == [("shop.a", 3, True)]
    assert kafka.committed("dry", "dry") == [-1001, -1001] and not (tmp_path / "shop.db").exists()


def test_a_table_that_stops_holds_the_group_back(kafka: Cluster, tmp_path: Path) -> None:
    kafka.send("stop", created(1, "good"), created(1, "bad"), created(2, "good"))
    with pytest.warns(UserWarning), pytest.raises(PaimonError, match="1 table of 2 stopped"):
        ingest(tmp_path, kafka.url("stop", "?group=stop"), primary_key="good=id")
    assert kafka.committed("stop", "stop") == [-1001, -1001]
    assert sorted(ingest(tmp_path, kafka.url("stop", "?group=stop"), primary_key="id")) == [("shop.bad", 1), ("shop.good", 0)]
    assert kafka.committed("stop", "stop") == [3, 0]


def test_bad_events_are_set_apart_with_their_offsets(kafka: Cluster, tmp_path: Path) -> None:
    kafka.send("letters", created(1), b"{oops", {"op": "?"}, created(2))
    with pytest.raises(BadInput, match="letters/0: the event at offset 1 cannot be applied"):
        ingest(tmp_path, kafka.url("letters"), primary_key="id")
    letters = tmp_path / "letters.json"
    for _ in range(2):
        ingest(tmp_path, kafka.url("letters"), primary_key="id", on_error=str(letters))
    found = [json.loads(line)["dead_letter"] for line in letters.read_text().splitlines()]
    assert [(one["source"], one["position"]) for one in found] == [("letters/0", 1), ("letters/0", 2)]
    assert sorted(rows_of(tmp_path, "a")) == ["1", "2"]


def test_events_that_are_gone_are_not_missed_silently(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka deletes old messages; what a group or a table has not read of them is lost."""
    kafka.send("gone", *map(created, range(6)))
    ends: list[tuple[int, int]] = []
    assign = KafkaTopics._begin

    def begin(topics: KafkaTopics, one: Any, found: tuple[int, int], *rest: Any) -> int:
        return assign(topics, one, ends[-1] if ends and one.number == 0 else found, *rest)

    monkeypatch.setattr(KafkaTopics, "_begin", begin)
    url = kafka.url("gone", "?group=gone")
    ingest(tmp_path, url, primary_key="id")
    ends.append((9, 12))
    with pytest.raises(Refused, match="3 events of gone/0 are gone"):
        ingest(tmp_path, url)
    ends.append((0, 3))
    with pytest.raises(Refused, match="is not what was read before"):
        ingest(tmp_path, url)


def test_a_table_whose_place_cannot_be_told_stops(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.send("place", *map(created, range(3)))
    ingest(tmp_path, kafka.url("place"), primary_key="id")
    kafka.send("place", *map(created, range(3, 9)))
    assign = KafkaTopics._assign

    def lossy(topics: KafkaTopics, given: Any) -> None:
        assign(topics, given)
        for partition, place in topics.places.items():
            if partition.number == 0:
                place.position = place.gone = 5

    monkeypatch.setattr(KafkaTopics, "_assign", lossy)
    with pytest.warns(UserWarning), pytest.raises(Refused, match="events before 5 are gone") as caught:
        ingest(tmp_path, kafka.url("place", "?group=new"))
    assert caught.value.exit_code == 7 and sorted(rows_of(tmp_path, "a")) == ["0", "1", "2"]


def test_a_topic_that_was_created_anew_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another topic of the same cluster and name, with other events."""
    monkeypatch.setattr(KafkaTopics, "key", lambda _, partition: f"kafka:c/{partition.name}")
    with cluster() as first:
        first.send("t", *map(created, range(3)))
        ingest(tmp_path, first.url("t"), primary_key="id")
    with cluster() as second:
        second.send("t", *map(created, range(10, 16)))
        with pytest.warns(UserWarning), pytest.raises(Refused, match="its event before offset 3 is another one"):
            ingest(tmp_path, second.url("t"))
    assert sorted(rows_of(tmp_path, "a")) == ["0", "1", "2"]


def test_a_topic_that_was_created_anew_with_fewer_events_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka forgets the offsets of a group with its topic: only the table knows that it has read further than its end."""
    monkeypatch.setattr(KafkaTopics, "key", lambda _, partition: f"kafka:c/{partition.name}")
    with cluster() as first:
        first.send("t", *map(created, range(6)))
        ingest(tmp_path, first.url("t"), primary_key="id")
    with cluster() as second:
        second.send("t", *map(created, range(10, 13)))
        with pytest.warns(UserWarning), pytest.raises(Refused, match="its event before offset 6 is another one"):
            ingest(tmp_path, second.url("t", "?group=g"))
        assert second.committed("g", "t")[0] < 0, "none of its events is taken for read"
    assert len(rows_of(tmp_path, "a")) == 6


def test_messages_that_are_too_large_are_refused(kafka: Cluster, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": kafka.brokers, "message.max.bytes": 9_000_000})
    producer.produce("large", json.dumps(debezium("a", "c", None, {"id": 1, "text": "x" * 5_000_000})).encode(), partition=0)
    assert producer.flush(SECONDS) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(BadInput, match="sends more than fits"):
            ingest(tmp_path, kafka.url("large"), primary_key="id", memory="1 mb")
    assert ingest(tmp_path, kafka.url("large"), primary_key="id", memory="64 mb") == [("shop.a", 1)]


def test_what_cannot_be_read_is_said_in_a_line(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.ingest.changes.kafka_topics.ANSWER_SECONDS", 2)
    with pytest.raises(StorageUnavailable, match=r"Kafka at 127\.0\.0\.1:1 cannot be reached.*refused") as caught:
        ingest(tmp_path, "kafka://127.0.0.1:1/t")
    assert caught.value.exit_code == 6 and "\n" not in str(caught.value)
    with pytest.raises(NotFound, match="has no topic none"):
        ingest(tmp_path, kafka.url("none"))
    with pytest.raises(UsageError, match="group=NAME"):
        ingest(tmp_path, kafka.url("t"), kafka_conf="group.id=g")
    with pytest.raises(UsageError, match="for topics"):
        ingest(tmp_path, str(tmp_path / "f.json"), kafka_conf={"client.id": "x"})


def test_secrets_are_shown_nowhere(kafka: Cluster, tmp_path: Path) -> None:
    secret = "hunter2-geheim"
    file = tmp_path / "kafka.conf"
    file.write_text(f"# login\nsasl.username=me\nsasl.password={secret}\n")
    given = [f"@{file}", "security.protocol=SASL_SSL", "sasl.mechanism=NONE"]
    with pytest.raises(UsageError) as caught:
        ingest(tmp_path, kafka.url("t"), kafka_conf=given)
    assert "NONE" in str(caught.value) and secret not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        ingest(tmp_path, kafka.url("t"), kafka_conf=[f"sasl.password={secret}", f"ssl.key.password={secret}", f"acks={secret}"])
    assert secret not in str(caught.value)
    kafka.send("secret", created(1))
    ingest(tmp_path, kafka.url("secret"), primary_key="id", kafka_conf=[f"sasl.password={secret}"])
    written = [path.read_bytes() for path in (tmp_path / "shop.db").rglob("*") if path.is_file()]
    assert written and not any(secret.encode() in content for content in written)
    with pytest.raises(UsageError, match="KEY=VALUE"):
        ingest(tmp_path, kafka.url("t"), kafka_conf=secret)


def test_two_readers_of_a_user_keep_their_marks(tmp_path: Path) -> None:
    """Two processes that read other sources for the same user, into the same table, at the same time."""
    catalog = summed(tmp_path)
    files = []
    for number in range(2):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_bytes(b"".join(json.dumps(one).encode() + b"\n" for one in added(range(number, 100, 2))))
    commit, done = IngestTarget.commit, list[str]()

    def met(target: IngestTarget) -> None:
        if not done:
            done.append("other")
            catalog.ingest(str(files[1]), format="debezium", into="shop")
        commit(target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IngestTarget, "commit", met)
        catalog.ingest(str(files[0]), format="debezium", into="shop")
    for file in files:
        assert not catalog.ingest(str(file), format="debezium", into="shop")[0].snapshots
    assert amounts(tmp_path) == total(100)


def test_a_reader_that_others_overtake_each_time_stops_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not go on as if its rows were committed."""
    catalog, write, others = summed(tmp_path), IngestTarget._write, list[Path]()
    own = written(tmp_path / "own.json", *added(range(50)))

    def overtaken(target: IngestTarget, *given: Any) -> Any:
        others.append(tmp_path / f"{len(others)}.json")
        with monkeypatch.context() as patch:
            patch.setattr(IngestTarget, "_write", write)
            catalog.ingest(written(others[-1], *added(range(1))), format="debezium", into="shop")
        return write(target, *given)

    with monkeypatch.context() as patch, pytest.warns(UserWarning, match="has stopped"):
        patch.setattr(IngestTarget, "_write", overtaken)
        with pytest.raises(Conflict, match="were not committed"):
            catalog.ingest(own, format="debezium", into="shop")
    assert len(others) == MAX_COMMITS and amounts(tmp_path) == {0: 0}
    for file in (own, own, *map(str, others)):
        catalog.ingest(file, format="debezium", into="shop")
    assert amounts(tmp_path) == total(50)


def test_schema_parts_and_their_types_come_through(kafka: Cluster, tmp_path: Path) -> None:
    stream = Stream(2, tables=1, is_typed=True).add(100)
    kafka.send("typed", *stream.lines)
    ingest(tmp_path, kafka.url("typed"), primary_key="id")
    check(tmp_path, stream)
    assert with_schema(created(1))["schema"]


def test_topic_partition_and_offset_become_columns(kafka: Cluster, tmp_path: Path) -> None:
    kafka.send("facts", *map(created, range(2)), partition=1)
    ingest(tmp_path, kafka.url("facts"), primary_key="id", metadata_column=["topic", "part=partition", "offset"])
    found = {key: (row["topic"], row["part"], row["offset"]) for key, row in rows_of(tmp_path, "a").items()}
    assert found == {"0": ("facts", 1, 0), "1": ("facts", 1, 1)}


def test_a_followed_transaction_is_committed_with_its_end(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group does not pass a transaction that waits for its end, and one that is never ended waits for one interval."""
    monkeypatch.setattr(POLL_SECONDS, 0.5)
    catalog, sent = Catalog(str(tmp_path)), list[int]()

    def of(number: int, transaction: str) -> Any:
        return {**created(number), "transaction": {"id": transaction}}

    def committed(_: Any) -> None:
        sent.append(len(rows_of(tmp_path, "a")))
        if len(sent) == 1:
            kafka.send("whole", of(3, "2"), of(4, "3"))

    kafka.send("whole", of(0, "1"), of(1, "2"), of(2, "2"))
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id", "kafka_conf": MEMBER}
    catalog.ingest(kafka.url("whole", "?group=whole"), **given, follow=True, interval="1 s", max_rounds=12, on_commit=committed)
    assert sent == [1, 4, 5]
    assert kafka.committed("whole", "whole") == [5, 0]


def test_a_member_begins_where_it_says(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its callback ends, librdkafka asks by itself where to begin, and finds that a new group has committed nothing."""
    assign, found = KafkaTopics._on_assign, dict[int, int]()

    def noting(topics: KafkaTopics, consumer: Consumer, given: list[TopicPartition]) -> None:
        assign(topics, consumer, given)
        found.update({one.partition: one.offset for one in consumer.assignment()})

    monkeypatch.setattr(KafkaTopics, "_on_assign", noting)
    kafka.send("begun", *map(created, range(3)))
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id", "kafka_conf": MEMBER}
    Catalog(str(tmp_path)).ingest(kafka.url("begun", "?group=begun"), **given, follow=True, interval="1 s", max_rounds=8)
    assert set(found.values()) == {0}
    assert len(rows_of(tmp_path, "a")) == 3


def test_the_lag_of_a_table_is_known(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newest change is of 2023. What was not read when it committed is behind."""
    kafka.send("lag", *map(created, range(4)), debezium("a", "u", None, {"id": 3, "more": "x"}))
    with pytest.warns(UserWarning):
        ingest(tmp_path, kafka.url("lag"), primary_key="id")
    catalog = Catalog(str(tmp_path))
    (row,) = catalog.health()
    since = time.time() - 1_700_000_000
    assert row.events_behind == 0 and row.lag_seconds is not None and abs(row.lag_seconds - since) < 600
    found = ReadLag.of(catalog.table("shop.a").context.snapshots.latest().properties)  # type: ignore[union-attr]
    assert found is not None and (found.inserts, found.updates, found.deletes) == (4, 1, 0)
    assert found.schema is None and found.time == 1_700_000_000_000
    kafka.send("lag", debezium("a", "c", None, {"id": 9, "third": "y"}), b"{oops", created(10))
    monkeypatch.setattr(PIECES, "polled_messages", 1)
    with pytest.raises(BadInput):
        ingest(tmp_path, kafka.url("lag"))
    (row,) = catalog.health()
    assert row.events_behind == 1, "the bad event was read, the one after it was not"
    found = ReadLag.of(catalog.table("shop.a").context.snapshots.latest().properties)  # type: ignore[union-attr]
    assert found is not None and found.schema is not None
    catalog.create_table("shop.b", columns=["id INT"])
    assert [row.lag_seconds for row in catalog.health() if row.table.endswith("b")] == [None]


def test_a_table_that_is_created_again_gets_its_earlier_rows(kafka: Cluster, tmp_path: Path) -> None:
    """The group is behind them; the other table skips them, which its sums show."""
    summed(tmp_path)
    url = kafka.url("again", "?group=again")
    kafka.send("again", created(1), *added(range(50)), created(2))
    kafka.send("again", created(3), partition=1)
    ingest(tmp_path, url, primary_key="id")
    Catalog(str(tmp_path)).drop_table("shop.a")
    kafka.send("again", *added(range(50, 60)), created(4), *added(range(60, 70)))
    with pytest.warns(UserWarning, match=r"again/[01] is read again from offset 0, because shop\.a has read nothing of it"):
        planned = Catalog(str(tmp_path)).plan_ingest(url, format="debezium", into="shop", primary_key="id")
        assert {one.table: one.inserts for one in planned}["shop.a"] == 4
        ingest(tmp_path, url, primary_key="id")
    assert sorted(rows_of(tmp_path, "a")) == ["1", "2", "3", "4"], "also where no event of it follows"
    kafka.send("again", created(5), partition=1)
    assert ingest(tmp_path, url, primary_key="id") == [("shop.a", 1)], "and once"
    assert sorted(rows_of(tmp_path, "a")) == ["1", "2", "3", "4", "5"] and amounts(tmp_path) == total(70)
    assert ingest(tmp_path, url) == [] and kafka.committed("again", "again") == [73, 2]


def test_a_table_that_is_created_again_loses_and_doubles_nothing_of_all_partitions(kafka: Cluster, tmp_path: Path) -> None:
    """An event in one partition fills it from all. Its sums show each event that is applied twice, or not."""
    url = kafka.url("refilled", "?group=refilled")
    summed(tmp_path)
    for part in range(2):
        kafka.send("refilled", *added(range(60))[part::2], *[created(9)] * part, partition=part)
    ingest(tmp_path, url, primary_key="id")
    Catalog(str(tmp_path)).drop_table("shop.s")
    summed(tmp_path)
    kafka.send("refilled", *added(range(60, 61)), partition=1)
    with pytest.warns(UserWarning, match="is read again"):
        ingest(tmp_path, url)
    assert amounts(tmp_path) == total(61) and sorted(rows_of(tmp_path, "a")) == ["9"]
    kafka.send("refilled", *added(range(61, 70)))
    assert ingest(tmp_path, url) == [("shop.s", 9)] and amounts(tmp_path) == total(70)


def test_what_a_group_left_out_stays_out(kafka: Cluster, tmp_path: Path) -> None:
    """It began at an offset: a new table gets what came after that, and not what the user did not want."""
    kafka.send("later", created(1), created(2, "b"), created(3))
    ingest(tmp_path, kafka.url("later", "?group=later&offsets=0:1,1:0"), primary_key="id")
    Catalog(str(tmp_path)).drop_table("shop.a")
    kafka.send("later", created(4))
    with pytest.warns(UserWarning, match="read again from offset 1"):
        ingest(tmp_path, kafka.url("later", "?group=later"), primary_key="id")
    assert sorted(rows_of(tmp_path, "a")) == ["3", "4"] and sorted(rows_of(tmp_path, "b")) == ["2"]


def test_open_transactions_of_all_partitions_are_bounded(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest are applied in parts."""
    most, apply = list[int](), TopicReading._apply

    def watched(reading: TopicReading, *given: Any) -> None:
        apply(reading, *given)
        most.append(sum(held.nbytes for held in reading._held.values()))

    monkeypatch.setattr(TopicReading, "_apply", watched)
    monkeypatch.setattr(PIECES, "polled_messages", 3)
    for number in range(20):
        events = [{**created(number * 10 + part), "transaction": {"id": str(number)}} for part in range(6)]
        kafka.send(f"open.{number // 2}", *events, partition=number % 2)
    size = len(json.dumps(events[0]))
    ingest(tmp_path, kafka.url("open.*"), primary_key="id", memory=16 * 8 * size)
    assert len(rows_of(tmp_path, "a")) == 120
    assert size < max(most) <= 12 * size, "a block, and what was read of a partition at once"


def test_a_truncation_among_partitions_stops_its_table(kafka: Cluster, tmp_path: Path) -> None:
    """Which rows of the other partition came before it, no one can tell."""
    kafka.send("emptied", created(1), debezium("a", "t", None, None), created(2))
    ingest(tmp_path, kafka.url("emptied"), primary_key="id")
    assert sorted(rows_of(tmp_path, "a")) == ["2"]
    kafka.send("emptied", created(3), partition=1)
    ingest(tmp_path, kafka.url("emptied"))
    kafka.send("emptied", debezium("a", "t", None, None), created(4))
    for _ in range(2):
        with pytest.warns(UserWarning), pytest.raises(NotSupported, match="several partitions"):
            ingest(tmp_path, kafka.url("emptied"))
    assert sorted(rows_of(tmp_path, "a")) == ["2", "3"]
    ingest(tmp_path, kafka.url("emptied", "?offsets=0:4,1:0"))
    assert sorted(rows_of(tmp_path, "a")) == ["2", "3", "4"]
