"""Planning a scan of a table with a million data files, and of one of its thousand partitions.

    python -m scripts.bench.planning [--files 1000000] [--partitions 1000] [--pypaimon-python INTERPRETER]

Each plan runs in a process of its own, which reports its time and peak memory. INTERPRETER is that of an environment with
pypaimon, which then plans the same table, or one with a twentieth of the files unless --whole-in-pypaimon is given.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.bench.cost_growth import Growth
from scripts.bench.measure import MACHINE, MIN_ROUNDS
from scripts.bench.planned_table import day_of, generate

MAX_SECONDS, MAX_SECONDS_OF_ONE, MAX_MEGABYTES, MIN_SPEEDUP = 3.0, 0.3, 1024, 5.0
ROOT = Path(__file__).resolve().parents[2]
OURS = """
import json, sys, time
import fastavro, numpy, pyarrow
from paimon_cli.history.table_context import TableContext
from paimon_cli.sql.predicate import parse_predicate
from paimon_cli.read.scan_plan import plan_scan
from scripts.bench.measure import peak_megabytes
context = TableContext.open(sys.argv[1])
predicate = parse_predicate(sys.argv[2], context.schema) if sys.argv[2] else None
cpu, wall = time.process_time(), time.perf_counter()
plan = plan_scan(context, context.snapshots.latest(), predicate)
times = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
print(json.dumps({**times, "megabytes": peak_megabytes(), "splits": len(plan.splits), "rows": plan.row_count}))
"""
THEIRS = """
import json, os, sys, time
from pypaimon import CatalogFactory
folder, where = os.path.split(sys.argv[1])
table = CatalogFactory.create({"warehouse": os.path.dirname(folder)}).get_table(f"{os.path.basename(folder)[:-3]}.{where}")
builder = table.new_read_builder()
if sys.argv[2]:
    builder = builder.with_filter(builder.new_predicate_builder().equal("dt", sys.argv[2]))
cpu, wall = time.process_time(), time.perf_counter()
splits = builder.new_scan().plan().splits()
times = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
print(json.dumps({**times, "splits": len(splits), "rows": sum(split.row_count for split in splits)}))
"""


def run(interpreter: str, program: str, url: str, where: str) -> dict[str, float]:
    done = subprocess.run([interpreter, "-c", program, url, where], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measured(name: str, url: str, where: str, max_seconds: float, rounds: int) -> bool:
    """Measure a plan. Returns whether the goals were met; they limit wall time, because the work is spread over threads."""
    found = medians([run(sys.executable, OURS, url, where) for _ in range(rounds)])
    met = found["wall"] <= max_seconds and found["megabytes"] <= MAX_MEGABYTES
    print(
        f"{name}: {found['wall']:.2f} s (goal {max_seconds} s), {found['cpu']:.2f} s of CPU, {found['megabytes']:.0f} MB "
        f"(goal {MAX_MEGABYTES} MB), {'met' if met else 'MISSED'}; {found['splits']:.0f} splits",
        file=sys.stderr,
    )
    goals = {"goal_seconds": max_seconds, "goal_megabytes": MAX_MEGABYTES, "met": met}
    print(json.dumps({"name": name, **found, **goals, "on": MACHINE}), flush=True)
    return met


def compared(name: str, interpreter: str, url: str, where: tuple[str, str], rounds: int) -> bool:
    """Compare with pypaimon, in turn. Both must find the same number of rows. Returns whether the goal was met."""
    pairs = [(run(sys.executable, OURS, url, where[0]), run(interpreter, THEIRS, url, where[1])) for _ in range(rounds)]
    if any(ours["rows"] != theirs["rows"] for ours, theirs in pairs):
        raise SystemExit(f"{name}: the plans differ: {pairs[0]}")
    ratio = statistics.median(theirs["wall"] / ours["wall"] for ours, theirs in pairs)
    met = ratio >= MIN_SPEEDUP
    ours, theirs = medians([pair[0] for pair in pairs]), medians([pair[1] for pair in pairs])
    text = f"{ratio:.1f} x as fast as pypaimon (goal {MIN_SPEEDUP}, {'met' if met else 'MISSED'})"
    print(f"{name}: {text}; {ours['wall']:.2f} s against {theirs['wall']:.2f} s", file=sys.stderr)
    found = {"speedup": ratio, "goal": MIN_SPEEDUP, "met": met, "ours": ours, "theirs": theirs}
    print(json.dumps({"name": name, **found, "on": MACHINE}), flush=True)
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--pypaimon-python", help="interpreter of an environment with pypaimon")
    parser.add_argument("--whole-in-pypaimon", action="store_true", help="let pypaimon plan all files, not only a twentieth")
    arguments = parser.parse_args()
    day = day_of(arguments.partitions // 2)
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder) / "bench.db"
        url = str(generate(warehouse / "whole", arguments.files, arguments.partitions))
        met = [
            measured(f"plan of {arguments.files:,} files", url, "", MAX_SECONDS, arguments.rounds),
            measured(
                f"plan of one partition of {arguments.partitions:,}", url, f"dt = '{day}'", MAX_SECONDS_OF_ONE, arguments.rounds
            ),
        ]
        sizes = [size for size in (100, 1000, 10_000, 100_000) if size < arguments.files]
        tables = {size: str(generate(warehouse / f"t{size}", size, max(1, size // 1000))) for size in sizes}
        tables[arguments.files] = url
        costs = {
            s: medians([run(sys.executable, OURS, u, "") for _ in range(arguments.rounds)])["cpu"] for s, u in tables.items()
        }
        Growth("plan", "files", costs, None).print()
        if arguments.pypaimon_python:
            compared_at = arguments.files if arguments.whole_in_pypaimon else arguments.files // 20
            part = (
                url if arguments.whole_in_pypaimon else str(generate(warehouse / "part", compared_at, arguments.partitions // 20))
            )
            day = day_of(arguments.partitions // 50)
            for name, where in ((f"plan of {compared_at:,} files", ("", "")), ("one partition", (f"dt = '{day}'", day))):
                met.append(compared(name, arguments.pypaimon_python, part, where, arguments.rounds))
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
