"""`ingest` from a broker of Kafka on this machine, with kills and a change of members, against a plain replay of the events.

    mvn dependency:copy-dependencies -DoutputDirectory=JARS    # of a pom with org.apache.kafka:kafka_2.13:4.1.1
    python -m scripts.judge.kafka_broker JARS [--kills 8]

The broker is its own controller (KRaft), listens on loopback, and is new each time. Prints `equal` after each step. If a table
differs, says how many keys do, and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.event_streams import Row, debezium

BROKER, CONTROLLER = "127.0.0.1:29092", "127.0.0.1:29094"
TOPICS = [f"shop.shop.t{number}" for number in range(3)]
CLUSTER, WAIT_SECONDS, SESSION_MILLISECONDS = "AAAAAAAAAAAAAAAAAAAAAA", 120, 6000
SETTINGS = f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{CONTROLLER}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{BROKER},CONTROLLER://{CONTROLLER}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""


@contextmanager
def broker(jars: str, folder: Path) -> Iterator[AdminClient]:
    settings = folder / "server.properties"
    settings.write_text(f"{SETTINGS}log.dirs={folder / 'data'}\n")
    java = ["java", "-Xmx400m", "-cp", f"{jars}/*"]
    subprocess.run([*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)], check=True)
    with (folder / "broker.log").open("w") as log, subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log) as process:
        try:
            admin, until = AdminClient({"bootstrap.servers": BROKER, "log_level": 0}), time.monotonic() + WAIT_SECONDS
            while True:
                try:
                    admin.list_topics(timeout=5)
                    break
                except KafkaException:
                    if time.monotonic() > until:
                        raise
            yield admin
        finally:
            process.kill()


class Source:
    """Three tables whose changes go to topics. `rows`: what they hold by now."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, Row]] = {topic: {} for topic in TOPICS}
        self.chance, self.number = random.Random(5), 0
        # Without idempotence librdkafka may send a batch again after later ones, as while a topic is new: the topic differs then.
        self.producer = Producer({"bootstrap.servers": BROKER, "linger.ms": 5, "enable.idempotence": True})

    def change(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            topic = self.chance.choice(TOPICS)
            rows = self.rows[topic]
            op = self.chance.choice("ccuud") if rows else "c"
            key = self.number if op == "c" else self.chance.choice(list(rows))
            old = rows.pop(key, None)
            new = None if op == "d" else {"id": key, "name": f"n{self.number}"}
            rows.update({} if new is None else {key: new})
            event = json.dumps(debezium(topic.rpartition(".")[2], op, old, new), separators=(",", ":"))
            self.producer.produce(topic, key=json.dumps({"id": key}), value=event)
            if op == "d":
                self.producer.produce(topic, key=json.dumps({"id": key}), value=None)
            self.producer.poll(0)
        self.producer.flush()


@contextmanager
def started(warehouse: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """An `ingest` of all topics, killed in the end if it still runs."""
    command = [sys.executable, "-m", "paimon_cli", "ingest", f"kafka://{BROKER}/shop.shop.*", "--format", "debezium"]
    with subprocess.Popen([*command, "--into", "shop", "--warehouse", str(warehouse), *more], text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ingest(warehouse: Path) -> None:
    with started(warehouse) as process:
        if process.wait():
            sys.exit("ingest failed")


def expect_equal(what: str, source: Source, warehouse: Path) -> None:
    """Wait until the tables hold the rows of the source. Ends the program if they do not in time."""
    until = time.monotonic() + WAIT_SECONDS
    while differences := {topic: keys for topic, rows in source.rows.items() if (keys := differing(warehouse, topic, rows))}:
        if time.monotonic() > until:
            sys.exit("\n".join(f"{what}: {topic}, {len(keys)} keys differ: {keys[:10]}" for topic, keys in differences.items()))
        time.sleep(1)
    print(f"{what}: equal, {sum(map(len, source.rows.values()))} rows after {source.number} events", flush=True)


def differing(warehouse: Path, topic: str, rows: dict[int, Row]) -> list[int]:
    """The keys whose row is missing, other than that of the source, or there twice."""
    table = warehouse / "shop.db" / topic.rpartition(".")[2]
    command = [sys.executable, "-m", "paimon_cli", "read", str(table), "-o", "ndjson"]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    found: dict[int, list[str]] = {}
    for row in map(json.loads, lines):
        found.setdefault(int(row["id"]), []).append(row["name"])
    wanted = {key: [row["name"]] for key, row in rows.items()}
    return [key for key in sorted(found.keys() | wanted.keys()) if found.get(key) != wanted.get(key)]


def judge(jars: str, kills: int, folder: Path) -> None:
    following = ("--follow", "--interval", "1s", "--kafka-conf", f"session.timeout.ms={SESSION_MILLISECONDS}")
    with broker(jars, folder) as admin:
        for made in admin.create_topics([NewTopic(topic, 3, 1) for topic in TOPICS]).values():
            made.result()
        source, warehouse = Source(), folder / "wh"
        source.change(3000)
        ingest(warehouse)
        expect_equal("first run", source, warehouse)
        for _ in range(kills):
            with started(warehouse, *following) as member:
                for _ in range(source.chance.randrange(20, 60)):  # a member joins when the killed one has been given up
                    source.change(100)
                    time.sleep(0.3)
                if member.poll() is not None:
                    sys.exit("ingest ended before it was killed")
        ingest(warehouse)
        expect_equal(f"{kills} kills", source, warehouse)
        with started(warehouse, *following):
            with started(warehouse, *following) as leaving:
                for _ in range(8):
                    source.change(500)
                    time.sleep(1)
                expect_equal("two members", source, warehouse)
                leaving.terminate()
                leaving.wait()
            source.change(2000)
            expect_equal("one member left", source, warehouse)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jars", help="the directory with the jars of Kafka")
    parser.add_argument("--kills", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        judge(arguments.jars, arguments.kills, Path(folder))


if __name__ == "__main__":
    main()
