"""What `ingest` costs: events decoded, and events written to many tables, a second of CPU.

    python -m scripts.bench.ingest [--events 200000] [--tables 300] [--round 500000] [--rounds 5] [--only debezium]

`decode`: text to rows by table in Arrow, in the shapes of events that are known; the least CPU time of the rounds. Its floor is
pyarrow's JSON reader over the same lines, with the columns of one table, which tells neither tables nor kinds of events apart. In
the row with own columns no table has a column of another, so that each is parsed alone. `write`: what one process that follows
files takes for a round of events, with a commit of each table, once the tables exist; and its largest memory. The goals are
events a second of CPU, and `--memory` and 100 MB. The exit code is 1 if one was missed.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pajson

from paimon_cli import Catalog
from paimon_cli.ingest.changes.event_decoder import EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_lines import event_blocks
from paimon_cli.pieces import PIECES
from scripts.bench.event_files import WITH_SCHEMA, events, write_events
from scripts.bench.measure import MACHINE, MIN_ROUNDS, peak_megabytes

GOALS = {"debezium": 300_000, WITH_SCHEMA: 150_000, "canal": 200_000, "maxwell": 250_000}
WRITTEN, MEMORY, MEMORY_BESIDE = 50_000, 512, 100
INTERVAL = 60_000
"""Milliseconds from one commit to the next: a round that takes longer commits in between, and is refused."""


def least_cpu(works: list[Callable[[], object]], rounds: int) -> list[float]:
    """The least CPU seconds of each work; they take turns, after one round that is not measured."""
    least = [float("inf")] * len(works)
    for number in range(rounds + 1):
        for index, work in enumerate(works):
            begun = time.process_time()
            work()
            if number:
                least[index] = min(least[index], time.process_time() - begun)
    return least


def decoding(format: str, count: int, tables: int, rounds: int, *, own_columns: bool = False) -> dict[str, Any]:
    text = "".join(event + "\n" for event in events(format, count, tables, own_columns=own_columns)).encode()
    decoder = EventDecoder(EVENT_FORMATS[format.split()[0]])

    def decode() -> None:
        found = 0
        for lines in event_blocks(io.BytesIO(text), "bench", PIECES.event_block_bytes):
            found += sum(len(one.read.lines) for one in decoder.decode(lines).events)
        assert found == count

    alike = text if not own_columns else "".join(event + "\n" for event in events(format, count, tables)).encode()
    kind = _parsed(alike[: alike.find(b"\n", 1 << 20) + 1] or alike, None).schema
    least, floor = least_cpu([decode, lambda: _parsed(alike, kind)], rounds)
    name = f"decode {format}, {tables} tables" + (" with columns of their own" if own_columns else "")
    return {
        "name": name,
        "events_per_second": round(count / least),
        "goal_events_per_second": None if own_columns else GOALS[format],
        "floor_events_per_second": round(count / floor),
        "floor_ratio": round(least / floor, 2),
        "bytes_an_event": len(text) // count,
    }


def _parsed(text: bytes, schema: pa.Schema | None) -> pa.Table:
    """Lines as pyarrow reads them, in blocks as large as ours."""
    options = pajson.ParseOptions(explicit_schema=schema)
    size = PIECES.event_block_bytes
    return pajson.read_json(pa.BufferReader(text), pajson.ReadOptions(use_threads=False, block_size=size), options)


def writing(count: int, tables: int) -> dict[str, Any]:
    """The second round of a process that follows files. Its file comes when all tables have committed the first one."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            write_events(Path(folder) / f"{number}.wait", "debezium", count, tables, first=number * count)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            cpu, megabytes = pool.apply(follow, (folder, tables))
    return {
        "name": f"write debezium, {tables} tables, a commit of each for {count:,} events",
        "events_per_second": round(count / cpu),
        "goal_events_per_second": WRITTEN,
        "cpu": round(cpu, 2),
        "megabytes": round(megabytes),
        "goal_megabytes": MEMORY + MEMORY_BESIDE,
    }


def follow(folder: str, tables: int) -> tuple[float, float]:
    """The CPU seconds of the second round, and the largest memory of this process."""
    committed, begun = 0, 0.0

    def come(number: int) -> None:
        os.rename(Path(folder) / f"{number}.wait", Path(folder) / f"{number}.json")

    def note(table: Any) -> None:
        nonlocal committed, begun
        committed += 1
        if committed == tables:
            begun = time.process_time()
            come(1)

    come(0)
    asked: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id", "memory": f"{MEMORY}mb"}
    asked |= {"follow": True, "interval": INTERVAL, "max_rounds": 2, "on_commit": note}
    done = Catalog(str(Path(folder) / "wh")).ingest(f"{folder}/*.json", **asked)
    assert {len(table.snapshots) for table in done} == {2} and len(done) == tables
    return time.process_time() - begun, peak_megabytes()


def results(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for format in GOALS:
        if options.only in format:
            yield decoding(format, options.events, options.tables, options.rounds)
    if options.only in "debezium":
        yield decoding("debezium", options.events, options.tables, options.rounds, own_columns=True)
    if options.only in "write":
        yield writing(options.round, options.tables)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--round", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--only", default="", metavar="TEXT", help="a format, or write")
    all_met = True
    print(f"on {MACHINE['processor']}", file=sys.stderr)
    for result in results(parser.parse_args()):
        goal = result["goal_events_per_second"]
        met = None if goal is None else result["events_per_second"] >= goal
        all_met &= met is not False and result.get("megabytes", 0) <= MEMORY + MEMORY_BESIDE
        beside = f"; pyarrow's JSON reader {result['floor_events_per_second']:,}" if "floor_ratio" in result else ""
        memory = f"; {result['megabytes']} MB (goal {result['goal_megabytes']})" if "megabytes" in result else ""
        shown = "" if goal is None else f" (goal {goal:,}, {'met' if met else 'MISSED'})"
        text = f"{result['name']}: {result['events_per_second']:,} events/s and core{shown}{beside}{memory}"
        print(text, file=sys.stderr)
        print(json.dumps({**result, "met": met, "on": MACHINE}), flush=True)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
