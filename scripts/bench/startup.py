"""`paimon-cli snapshots ls` in a new process, at 10 and 10,000 snapshots, and completions, against importing what every command
imports.

python -m scripts.bench.startup [--snapshots 10 1000 10000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from paimon_cli.cli.terminal import COMPLETION_VARIABLE
from scripts.bench.cost_growth import Growth, cpu_of_process, in_turn
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.metadata_table import generate

MAX_IMPORTS = 2.5
LIMITED_GOAL = 1.2
TAB_GOAL = 1.0
IMPORTS = [sys.executable, "-c", "import typer, rich, pyarrow, fsspec, fastavro"]


def listed(table: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "paimon_cli", "snapshots", "ls", str(table), *options]


def completed(line: str) -> list[str]:
    asks = (
        f"{COMPLETION_VARIABLE}=complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION=get-args",
        f"_TYPER_COMPLETE_ARGS=paimon-cli {line}",
    )
    return ["env", *asks, sys.executable, "-m", "paimon_cli"]


def against_imports(name: str, command: Sequence[str], goal: float | None) -> Comparison:
    subject, floor = partial(cpu_of_process, command), partial(cpu_of_process, IMPORTS)
    return Comparison(name, subject, floor, goal, cpu_seconds=_children_cpu)


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tables = {count: Path(folder) / str(count) for count in arguments.snapshots}
        for count, table in tables.items():
            generate(table, count, files=1)
        comparisons = [
            against_imports(
                f"snapshots ls{''.join(f' {o}' for o in options)}, {count:,} snapshots",
                listed(tables[count], *options),
                None if options else MAX_IMPORTS,  # JSON lists all snapshots, text only the newest thousand
            )
            for count in (min(tables), max(tables))
            for options in ((), ("-o", "json"))
        ]
        lines = ("", "snapshots ", "read --")
        comparisons += [against_imports(f"completion of 'paimon-cli {line}'", completed(line), TAB_GOAL) for line in lines]
        met = report(comparisons, arguments.rounds)
        for name, options, goal in (("all", (), None), ("--limit 20", ("--limit", "20"), LIMITED_GOAL)):
            works = {count: partial(cpu_of_process, listed(table, *options)) for count, table in tables.items()}
            met &= Growth(f"snapshots ls, {name}", "snapshots", in_turn(works, arguments.rounds), goal).print()
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
