"""The local engine against Paimon's other implementations: local write, merge-on-read scan, full compaction.

    python -m scripts.bench.against_peers --rust-python RUST_ENV/bin/python --pypaimon-python PY_ENV/bin/python \\
        --java-classpath 'JARS/*' [--rows 2000000] [--rounds 5]

Peers are optional. The scripts in `scripts/bench/peers` run in the peers' own environments, each as one process for all rounds;
the first round, after which Java is warm, is not measured. In each round all sides take turns. Each scans the table that it wrote
itself and the table that we wrote; each compacts a copy of the table that we wrote. Ratios are ours / theirs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.measure import MACHINE, MIN_ROUNDS
from scripts.bench.peers.workload import write_workload

ROOT = Path(__file__).resolve().parents[2]
SIDES = Path(__file__).resolve().parent / "peers"
BUCKETS = 2
UPSERTS = 4
GOALS = {
    ("load", "rust"): 1 / 1.5,
    ("load", "java"): 1 / 4,
    ("load", "pypaimon"): 1 / 30,
    ("upserts", "rust"): 1 / 1.5,
    ("upserts", "java"): 1 / 4,
    ("upserts", "pypaimon"): 1 / 30,
    ("scan", "rust"): 1 / 1.5,
    ("scan", "java"): 1 / 1.3,
    ("scan", "pypaimon"): 1 / 30,
    ("compact", "java"): 1 / 2.5,
}
"""The maximum ratio of our wall time to theirs."""


@dataclass
class Side:
    """A running side. `folder` holds its own table."""

    name: str
    process: subprocess.Popen[str]
    folder: Path

    @property
    def table(self) -> Path:
        return self.folder / "bench.db" / "t"

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        words = [*request.values()] if self.name == "java" else None
        line = json.dumps(request) if words is None else " ".join(str(word) for word in words)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            log = (self.folder.parent / f"{self.name}.log").read_text()[-2000:]
            raise SystemExit(f"{self.name} ended at the request: {line}\n{log}")
        return json.loads(answer)

    def new_table(self, sources: list[Path]) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        sample = {"sample": str(sources[0])} if self.name == "pypaimon" else {}
        self.ask(do="create", table=str(self.table), buckets=BUCKETS, **sample)

    def write(self, sources: list[Path], first: int, end: int) -> dict[str, Any]:
        if self.name == "java":
            return self.ask(do="write", table=self.table, first=first, end=end)
        return self.ask(do="write", table=str(self.table), sources=[str(source) for source in sources[first:end]])


def started(arguments: argparse.Namespace, folder: Path) -> list[Side]:
    ours = {**os.environ, "PYTHONPATH": str(ROOT), "ARROW_DEFAULT_MEMORY_POOL": "system"}  # as the command does
    commands = {"ours": ([sys.executable, str(SIDES / "our_side.py")], ours)}
    if arguments.rust_python:
        commands["rust"] = ([arguments.rust_python, str(SIDES / "rust_side.py")], dict(os.environ))
    if arguments.java_classpath:
        subprocess.run(["javac", "-cp", arguments.java_classpath, "-d", str(folder), str(SIDES / "JavaSide.java")], check=True)
        classes = f"{folder}{os.pathsep}{arguments.java_classpath}"
        commands["java"] = (["java", "-Xmx6g", "-cp", classes, "JavaSide"], dict(os.environ))
    if arguments.pypaimon_python:
        commands["pypaimon"] = ([arguments.pypaimon_python, str(SIDES / "pypaimon_side.py")], dict(os.environ))
    return [_started(folder, name, command, env) for name, (command, env) in commands.items()]


def _started(folder: Path, name: str, command: list[str], env: dict[str, str]) -> Side:
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    return Side(name, process, folder / name)


class Measured:
    """The times of each workload and side, one per round."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def add(self, work: str, side: Side, times: dict[str, Any]) -> None:
        self._times.setdefault((work, side.name), []).append(times)

    def drop_first(self) -> None:
        for times in self._times.values():
            del times[0]

    def report(self) -> bool:
        """Print a line of text and a line of JSON for each workload and side. Returns whether all goals were met."""
        all_met = True
        for (work, name), times in self._times.items():
            walls, cpus = [t["wall"] for t in times], [t["cpu"] for t in times]
            result: dict[str, Any] = {"name": f"{work}, {name}", "rounds": len(times)}
            result |= {"wall": statistics.median(walls), "cpu": statistics.median(cpus), "peak_mb": times[-1].get("peak_mb")}
            text = f"{work:12} {name:9} {result['wall']:7.3f} s, CPU {result['cpu']:7.3f} s"
            ours = self._times[work, "ours"]
            if name != "ours":
                for kind in ("wall", "cpu"):
                    shared = zip(ours, times, strict=False)
                    result[f"{kind}_ratio"] = statistics.median(own[kind] / their[kind] for own, their in shared)
                goal = GOALS.get((work, name))
                met = None if goal is None else result["wall_ratio"] <= goal
                all_met &= met is not False
                result |= {"goal": goal, "met": met}
                verdict = "" if goal is None else f" (goal {1 / goal:.1f}, {'met' if met else 'MISSED'})"
                text += f"; we are {1 / result['wall_ratio']:.2f} x as fast{verdict}, CPU {1 / result['cpu_ratio']:.2f} x"
            print(text, file=sys.stderr)
            print(json.dumps({**result, "on": MACHINE}), flush=True)
        return all_met


def measure(sides: list[Side], sources: list[Path], folder: Path, rounds: int) -> Measured:
    """Measure all rounds. pypaimon takes part only in the first measured one: it needs minutes where others need seconds."""
    measured = Measured()
    for number in range(rounds + 1):
        if number == 1:
            measured.drop_first()
        taking_part = [side for side in sides if side.name != "pypaimon" or number == 1]
        for side in taking_part if number % 2 else reversed(taking_part):
            side.new_table(sources)
            for work, first, end in (("load", 0, 1), ("upserts", 1, len(sources))):
                measured.add(work, side, side.write(sources, first, end))
        _scans(taking_part, measured)
        _compactions(taking_part, measured, folder)
    return measured


def _scans(sides: list[Side], measured: Measured) -> None:
    seen = set()
    for side in sides:
        own = _scan_of(side, side)
        seen.add((own["rows"], own["sum"]))
        measured.add("scan", side, own)
        if side.name in ("ours", "rust", "java"):
            same = _scan_of(side, sides[0])
            seen.add((same["rows"], same["sum"]))
            measured.add("scan of ours", side, same)
    if len(seen) > 1:
        raise SystemExit(f"the sides read different rows: {seen}")


def _scan_of(side: Side, other: Side) -> dict[str, Any]:
    """The second of two scans: in the first, getting memory from the system costs more than the scan itself."""
    first = side.ask(do="scan", table=str(other.table))
    return first if side.name == "pypaimon" else side.ask(do="scan", table=str(other.table))


def _compactions(sides: list[Side], measured: Measured, folder: Path) -> None:
    for side in sides:
        if side.name in ("ours", "java"):
            copy = folder / "compacted" / "bench.db" / "t"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(sides[0].table, copy)
            measured.add("compact", side, side.ask(do="compact", table=str(copy)))
            measured.add("compacted scan", side, side.ask(do="scan", table=str(copy)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rust-python", help="interpreter with pypaimon-rust")
    parser.add_argument("--pypaimon-python", help="interpreter with pypaimon")
    parser.add_argument("--java-classpath", help="Paimon's core and Hadoop's client, as javac takes them")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    if arguments.rounds < MIN_ROUNDS:
        parser.error(f"a median needs at least {MIN_ROUNDS} rounds")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_workload(folder, arguments.rows, UPSERTS, arguments.rows // 10)
        sources = [folder / f"in-{number}.parquet" for number in range(UPSERTS + 1)]
        sides = started(arguments, folder)
        try:
            for side in sides:
                if side.name == "java":
                    side.ask(do="rows", **{source.stem: source.with_suffix(".csv") for source in sources})
            met = measure(sides, sources, folder, arguments.rounds).report()
        finally:
            for side in sides:
                side.process.kill()
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
