"""Processes race for a snapshot id, round after round: how often does a storage let none or several of them win?

    python scripts/nightly/race_put_if_absent.py --url /tmp/race --processes 8 --rounds 20000

Prints a JSON line and adds it to build/race_put_if_absent.jsonl. The exit code is 1 if a round did not have exactly one winner,
or left a file that is not the winner's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from paimon_cli.storage.storage import PutOutcome
from paimon_cli.storage.storage_for_url import storage_for_url

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["paimon_cli.storage.storage_for_url", "sqlalchemy"])
"""Clean processes, forked from one that has already imported the slow modules."""
RESULTS = Path("build/race_put_if_absent.jsonl")
ROUND_SECONDS = 120
"""A round that takes longer has lost one of its processes."""


@dataclass(frozen=True)
class RaceResult:
    """The numbers of rounds that went wrong. `foreign`: the file is not the winner's; `unknown`: puts without a clear answer."""

    store: str
    processes: int
    rounds: int
    several_winners: int
    no_winner: int
    foreign: int
    unknown: int
    seconds: float

    @property
    def failures(self) -> int:
        return self.several_winners + self.no_winner + self.foreign


def race(url: str, options: Mapping[str, str], processes: int, rounds: int, unsafe: bool = False) -> RaceResult:
    """Let `processes` put the same `rounds` files below `url` at the same moment. `unsafe`: even if there is no safe way to."""
    begun = time.monotonic()
    directory = f"{url.rstrip('/')}/race-{uuid.uuid4()}"
    barrier = PROCESSES.Barrier(processes)
    pipes = [PROCESSES.Pipe(duplex=False) for _ in range(processes)]
    racers = [
        PROCESSES.Process(target=_racer, args=(directory, dict(options), unsafe, rounds, number, barrier, sink))
        for number, (_, sink) in enumerate(pipes)
    ]
    for racer in racers:
        racer.start()
    for _, sink in pipes:
        sink.close()  # otherwise the end of a racer that died would go unnoticed
    outcomes = [source.recv() for source, _ in pipes]
    for racer in racers:
        racer.join()
    storage, root = storage_for_url(directory, options)
    contents = [storage.read_bytes(f"{root}/snapshot-{number}") for number in range(rounds)]
    winners = [
        [racer for racer in range(processes) if _has_won(outcomes[racer][number], contents[number], racer)]
        for number in range(rounds)
    ]
    storage.delete_directory(root)
    return RaceResult(
        store=url.partition("://")[0] if "://" in url else "local",
        processes=processes,
        rounds=rounds,
        several_winners=sum(len(won) > 1 for won in winners),
        no_winner=sum(not won for won in winners),
        foreign=sum(contents[number] != _content(won[0]) for number, won in enumerate(winners) if len(won) == 1),
        unknown=sum(outcome is PutOutcome.UNKNOWN for found in outcomes for outcome in found),
        seconds=round(time.monotonic() - begun, 2),
    )


def _racer(
    directory: str, options: dict[str, str], unsafe: bool, rounds: int, number: int, barrier: Barrier, sink: Connection
) -> None:
    storage, root = storage_for_url(directory, options, unsafe)
    storage.list_directory(root)
    outcomes = []
    for race_round in range(rounds):
        barrier.wait(ROUND_SECONDS)
        outcomes.append(storage.put_if_absent(f"{root}/snapshot-{race_round}", _content(number)))
    sink.send(outcomes)


def _content(racer: int) -> bytes:
    return f"snapshot of racer {racer} ".encode() * 20


def _has_won(outcome: PutOutcome, content: bytes, racer: int) -> bool:
    """Whether this racer has won, as the committer decides it: after an unclear answer, the file shows it."""
    return outcome is PutOutcome.CREATED or (outcome is PutOutcome.UNKNOWN and content == _content(racer))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="build/race", help="directory or URL to race in")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="catalog option; repeatable")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--unsafe", action="store_true", help="race even if nothing separates writers, to show the danger")
    arguments = parser.parse_args()
    options = dict(option.split("=", 1) for option in arguments.option)
    result = race(arguments.url, options, arguments.processes, arguments.rounds, arguments.unsafe)
    line = json.dumps({"measure": "race_put_if_absent", **asdict(result)})
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as sink:
        sink.write(line + "\n")
    print(line)
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
