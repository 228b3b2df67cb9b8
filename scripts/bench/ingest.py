"""What `ingest` costs: events decoded, and events written to many tables, a second of CPU.

    python -m scripts.bench.ingest [--events 200000] [--tables 300] [--only debezium]

`decode`: text to rows by table, without writing. `write`: all of `Catalog.ingest` into new tables in a temporary warehouse. The
largest memory is that of the process, from which that of an idle one is not subtracted.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paimon_cli import Catalog
from paimon_cli.ingest.changes.change_rows import rows_of
from paimon_cli.ingest.changes.event_decoder import EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_lines import event_blocks
from paimon_cli.pieces import PIECES

COLUMNS = ("int64", "int64", "string", "double", "boolean", "int64", "string", "string", "int32")
NAMES = ("id", "customer", "name", "price", "active", "created", "note", "city", "quantity")
GOALS = {"debezium": 300_000, "debezium with schema": 150_000, "canal": 200_000, "maxwell": 250_000}


def row(number: int, chance: random.Random) -> dict[str, Any]:
    values = (number, chance.randrange(10**6), f"name {number}", chance.random() * 100, True, 1_700_000_000_000_000 + number)
    return dict(zip(NAMES, (*values, None, "Berlin", chance.randrange(100)), strict=True))


def events(format: str, count: int, tables: int) -> Iterator[bytes]:
    """Two fifths inserts, half updates, a tenth deletes."""
    chance = random.Random(1)
    image = [{"type": kind, "optional": True, "field": name} for name, kind in zip(NAMES, COLUMNS, strict=True)]
    images = [{"type": "struct", "fields": image, "optional": True, "field": name} for name in ("before", "after")]
    schema = json.dumps({"type": "struct", "fields": images, "optional": False, "name": "s.Envelope"}, separators=(",", ":"))
    for number in range(count):
        op, table = chance.choices("cud", (4, 5, 1))[0], f"t{number % tables}"
        old, new = row(number, chance), row(number, chance)
        if format.startswith("debezium"):
            source = {"version": "3.0", "connector": "mysql", "name": "server", "ts_ms": 1_700_000_000_000 + number, "db": "shop"}
            source |= {"table": table, "file": "binlog.000001", "pos": number, "row": 0}
            images_of = {"before": None if op == "c" else old, "after": None if op == "d" else new}
            text = json.dumps({**images_of, "source": source, "op": op, "ts_ms": number}, separators=(",", ":"))
            yield (text if format == "debezium" else f'{{"schema":{schema},"payload":{text}}}').encode()
        else:
            kind = {"c": "insert", "u": "update", "d": "delete"}[op]
            event: dict[str, Any] = {"database": "shop", "table": table, "type": kind, "ts": number, "xid": number, "data": new}
            changed = {"price": old["price"]} if op == "u" else None
            if format == "canal":
                texts = {name: None if value is None else str(value) for name, value in new.items()}
                types = dict.fromkeys(NAMES, "varchar(50)")
                event |= {"type": kind.upper(), "data": [texts], "old": changed and [{"price": str(changed["price"])}]}
                event |= {"pkNames": ["id"], "mysqlType": types, "isDdl": False, "es": number}
            elif changed:
                event["old"] = changed
            yield json.dumps(event, separators=(",", ":")).encode()


def decoded(format: str, text: bytes) -> float:
    """Events a second of CPU, once the shapes of events are known: best of three."""
    decoder, best, count = EventDecoder(EVENT_FORMATS[format.split()[0]]), float("inf"), 0
    for _ in range(3):
        begun, count = time.process_time(), 0
        for lines in event_blocks(io.BytesIO(text), "bench", PIECES.event_block_bytes):
            for found in decoder.decode(lines).events:
                rows_of(found, ["id"], needs_before=False, bad=[])
                count += len(found.read.lines)
        best = min(best, time.process_time() - begun)
    return count / best


def written(format: str, text: bytes, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "events.json"
        path.write_bytes(text)
        begun = time.process_time()
        given: dict[str, Any] = {"format": format.split()[0], "into": "shop", "primary_key": "id"}
        done = Catalog(directory).ingest(str(path), **given)
        took = time.process_time() - begun
        snapshots = sum(len(table.snapshots) for table in done)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"events_per_second": round(count / took), "snapshots": snapshots, "process_mb": round(megabytes)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--only", choices=sorted(GOALS))
    options = parser.parse_args()
    for format in [options.only] if options.only else list(GOALS):
        text = b"\n".join(events(format, options.events, options.tables)) + b"\n"
        speed = decoded(format, text)
        result = {"format": format, "bytes_per_event": len(text) // options.events, "decoded_per_second": round(speed)}
        result |= {"goal": GOALS[format], **written(format, text, options.events)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
