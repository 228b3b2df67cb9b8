"""`make bench`: runs all benchmarks in turn, prints a table at the end, and adds an entry to build/bench.json.

    python -m scripts.bench.run_all [--only compaction] [--rust-python PYTHON --pypaimon-python PYTHON --java-classpath 'JARS/*']
    python -m scripts.bench.run_all --small

Paimon's other implementations are measured only if the last three options are given. The exit code is 1 if a goal was missed; the
text of each program says which. With `--small` each program runs for seconds, on so few rows that its figures mean nothing; the
exit code is 1 if one of them fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from scripts.bench.measure import MACHINE

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "bench.json"
PROGRAMS: dict[str, tuple[str, ...]] = {
    "compaction": ("scripts.bench.compaction",),
    "partial compaction": ("scripts.bench.partial_compaction",),
    "splitting buckets": ("scripts.bench.splitting",),
    "range compaction": ("scripts.bench.range_compaction",),
    "compaction beside a write": ("scripts.bench.compact_beside",),
    "append": ("scripts.bench.append",),
    "scan": ("scripts.bench.scan",),
    "pages": ("scripts.bench.pages",),
    "spark write": ("scripts.bench.spark_write",),
    "spark read": ("scripts.bench.spark_read",),
    "spark compact": ("scripts.bench.spark_compact", "--rows", "1000000"),
    "spark growth": ("scripts.bench.spark_growth",),
    "profile": ("scripts.bench.profile_paths",),
    "growth": ("scripts.bench.growth",),
    "goals": ("scripts.bench.goals", "--seeds", "1"),
    "wide and many": ("scripts.bench.wide_and_many",),
    "peers": ("scripts.bench.against_peers",),
    "planning": ("scripts.bench.planning",),
    "commits": ("scripts.bench.commit_cost",),
    "startup": ("scripts.bench.startup",),
    "output": ("scripts.bench.output",),
    "documents": ("scripts.bench.documents",),
    "lookup": ("scripts.bench.lookup",),
    "assignment": ("scripts.bench.assignment",),
    "cross-partition": ("scripts.bench.cross_partition",),
    "vectors": ("scripts.bench.vectors",),
    "expire": ("scripts.bench.expire", "--snapshots", "100", "1000"),
    "service": ("scripts.bench.service",),
    "history check": ("scripts.bench.history_check", "--commits", "100", "1000"),
    "erase": ("scripts.bench.erase",),
    "ingest": ("scripts.bench.ingest",),
    "spark ingest": ("scripts.bench.spark_ingest",),
}
SMALL: dict[str, tuple[str, ...]] = {
    "compaction": ("--rows", "20000"),
    "partial compaction": ("--rows", "20000"),
    "splitting buckets": ("--rows", "20000"),
    "range compaction": ("--rows", "20000"),
    "compaction beside a write": ("--rows", "20000"),
    "append": ("--rows", "20000", "--files", "10"),
    "scan": ("--rows", "20000"),
    "pages": ("--rows", "20000"),
    "spark write": ("--rows", "20000"),
    "spark read": ("--rows", "20000"),
    "spark compact": ("--rows", "2000", "--buckets", "4"),
    "spark growth": ("--rows", "20000", "40000", "--buckets", "4"),
    "profile": ("--rows", "20000"),
    "growth": ("--rows", "10000", "20000"),
    "wide and many": ("--columns", "5", "10", "--partitions", "3", "6", "--files", "100", "200", "--cells", "20000"),
    "peers": ("--rows", "20000"),
    "planning": ("--files", "2000", "--partitions", "10"),
    "commits": ("--files", "10", "100", "200"),
    "startup": ("--snapshots", "3", "6", "9"),
    "output": ("--rows", "5000"),
    "documents": ("--rows", "2000"),
    "lookup": ("--rows", "50000"),
    "assignment": ("--keys", "100000"),
    "cross-partition": ("--rows", "100000", "--load", "5000"),
    "vectors": ("--rows", "400000"),
    "expire": ("--snapshots", "5", "10"),
    "service": ("--tables", "3"),
    "history check": ("--commits", "5", "10"),
    "erase": ("--rows", "20000"),
    "ingest": ("--events", "3000", "--tables", "5", "--round", "2000"),
    "spark ingest": ("--events", "8000"),
}
"""Sizes for `--small`, which replace those of `PROGRAMS`."""
PEERS = {"peers": ("rust_python", "pypaimon_python", "java_classpath"), "planning": ("pypaimon_python",)}
"""The options for other implementations that each program takes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PROGRAMS, action="append", help="repeatable")
    for peer in ("rust-python", "pypaimon-python", "java-classpath"):
        parser.add_argument(f"--{peer}")
    parser.add_argument("--small", action="store_true", help="only check that each program runs")
    arguments = parser.parse_args()
    if arguments.small:
        return _run_small(arguments.only or PROGRAMS)
    began = datetime.now(timezone.utc).isoformat(timespec="seconds")
    missed: list[str] = []
    results: list[dict[str, Any]] = []
    for name in arguments.only or PROGRAMS:
        peers = {peer: getattr(arguments, peer) for peer in PEERS.get(name, ())}
        flags = [word for peer, value in peers.items() if value for word in (f"--{peer.replace('_', '-')}", value)]
        done = subprocess.run([sys.executable, "-m", *PROGRAMS[name], *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        results += [{"program": name, **{key: value for key, value in line.items() if key != "on"}} for line in lines]
        missed += [name] if done.returncode else []
    _keep({"began": began, "machine": MACHINE, "results": results})
    print(_table(results))
    print(f"{len(results)} results added to {RESULTS.relative_to(ROOT)}; missed goals: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


def _run_small(names: Iterable[str]) -> int:
    broken = []
    for name in names:
        command = [sys.executable, "-m", PROGRAMS[name][0], *SMALL[name]]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        results = [line for line in done.stdout.splitlines() if line.startswith("{")]
        failed = "Traceback" in done.stderr or not results
        print(f"{name}: {f'FAILED{chr(10)}{done.stderr}' if failed else f'{len(results)} results'}", flush=True)
        broken += [name] if failed else []
    return 1 if broken else 0


def _keep(run: dict[str, Any]) -> None:
    runs = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([*runs, run], indent=1), encoding="utf-8")


def _table(results: list[dict[str, Any]]) -> str:
    rows = [("what", "measured", "goal", "")]
    rows += [(str(result.get("name")), *figure) for result in results for figure in _figures(result)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows)


def _figures(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The figures of a program's JSON line, each with its goal and whether it was met: a ratio to the other side, or amounts."""
    ratio, goal = result.get("ratio", result.get("wall_ratio")), result.get("goal")
    verdict = {True: "met", False: "MISSED", None: ""}[result.get("met")]
    if ratio is not None:
        return [(f"{ratio:.2f} x", "" if goal is None else f"{goal:.2f} x", verdict)]
    if "speedup" in result:
        return [(f"{result['speedup']:.1f} x as fast", f"{goal:.0f} x as fast", verdict)]
    if "events_per_second" in result:
        wanted = result["goal_events_per_second"]
        return [(f"{result['events_per_second']:,} events/s", "" if wanted is None else f"{wanted:,} events/s", verdict)]
    figures = []
    measures = (("wall", "goal_seconds", "s", 2), ("cpu", "goal_cpu", "s of CPU", 2), ("megabytes", "goal_megabytes", "MB", 0))
    for name, limit, unit, digits in (*measures, ("bytes_a_key", "goal_bytes_a_key", "bytes a key", 1)):
        if name in result:
            goal = result.get(limit)
            met = "" if goal is None else "met" if result[name] <= goal else "MISSED"
            figures.append((f"{result[name]:.{digits}f} {unit}", "" if goal is None else f"{goal} {unit}", met))
    return figures


if __name__ == "__main__":
    sys.exit(main())
