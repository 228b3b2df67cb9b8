"""`ingest` from a real broker of Kafka on this machine, with kills and a change of members, against a plain replay of the events.

    mvn dependency:copy-dependencies -DoutputDirectory=JARS    # of a pom with org.apache.kafka:kafka_2.13:4.1.1
    python -m scripts.judge.kafka_broker JARS [--kills 8]

The broker is its own controller (KRaft), listens on loopback, and is new each time. Prints `equal` after each step, and ends with
exit code 1 if a table differs.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.event_streams import Row, debezium

BROKER, CONTROLLER = "127.0.0.1:29092", "127.0.0.1:29094"
TOPICS = [f"shop.shop.t{number}" for number in range(3)]
CLUSTER, WAIT_SECONDS = "AAAAAAAAAAAAAAAAAAAAAA", 120
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
            admin, until = AdminClient({"bootstrap.servers": BROKER}), time.monotonic() + WAIT_SECONDS
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
        self.producer = Producer({"bootstrap.servers": BROKER, "linger.ms": 5})

    def change(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            topic = self.chance.choice(TOPICS)
            rows = self.rows[topic]
            op = self.chance.choice("cuud") if rows else "c"
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


def started(warehouse: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "paimon_cli", "ingest", f"kafka://{BROKER}/shop.shop.*", "--format", "debezium"]
    return subprocess.Popen([*command, "--into", "shop", "--warehouse", str(warehouse), *more], text=True)


def expect_equal(what: str, source: Source, warehouse: Path) -> None:
    """Wait until the tables hold the rows of the source. Ends the program if they do not in time."""
    until = time.monotonic() + WAIT_SECONDS
    while any(table_rows(warehouse, topic) != rows for topic, rows in source.rows.items()):
        if time.monotonic() > until:
            sys.exit(f"{what}: the tables differ")
        time.sleep(1)
    print(f"{what}: equal", flush=True)


def table_rows(warehouse: Path, topic: str) -> dict[int, Row]:
    command = [sys.executable, "-m", "paimon_cli", "read", str(warehouse / "shop.db" / topic.rpartition(".")[2]), "-o", "ndjson"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = map(json.loads, done.stdout.splitlines())
    return {int(row["id"]): {"id": int(row["id"]), "name": row["name"]} for row in found}


def judge(jars: str, kills: int, folder: Path) -> None:
    following: Sequence[str] = ("--follow", "--interval", "1s")
    with broker(jars, folder) as admin:
        for made in admin.create_topics([NewTopic(topic, 3, 1) for topic in TOPICS]).values():
            made.result()
        source, warehouse = Source(), folder / "wh"
        source.change(3000)
        assert started(warehouse).wait() == 0
        expect_equal("first run", source, warehouse)
        for _ in range(kills):
            source.change(1500)
            killed = started(warehouse, *following)
            time.sleep(source.chance.uniform(1.5, 5))
            killed.kill()
            killed.wait()
        assert started(warehouse).wait() == 0
        expect_equal(f"{kills} kills", source, warehouse)
        members = [started(warehouse, *following) for _ in range(2)]
        for _ in range(8):
            source.change(500)
            time.sleep(1)
        expect_equal("two members", source, warehouse)
        members[0].terminate()
        members[0].wait()
        source.change(2000)
        expect_equal("one member left", source, warehouse)
        members[1].kill()
        members[1].wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jars", help="the directory with the jars of Kafka")
    parser.add_argument("--kills", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        judge(arguments.jars, arguments.kills, Path(folder))


if __name__ == "__main__":
    main()
