"""`make nightly`: all long checks at their full size, several in parallel, within a budget of time. `make proof`: without one.

    python -m scripts.nightly.run_all                            # everything
    python -m scripts.nightly.run_all --proof                    # some of it larger; goes on where it was interrupted
    python -m scripts.nightly.run_all --only pairs --only kills  # those whose name contains one of the words
    python -m scripts.nightly.run_all --scale 0.01               # a rehearsal
    python -m scripts.nightly.run_all --seed 739585              # the night of that day once more

Each night is another one: random programs get the number of the day as their seed. A proof of them is many nights, with the seeds
1, 2 and so on.

Each JSON object with a `measure` that a program prints is added to build/reliability.json as a line; its other output goes to
build/nightly/NAME.log. Each program has a share of the time: one that takes longer is ended, and the others go on. At the end, a
table of all figures is printed. The exit code is 1 if a program failed, or was ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from tests.pieces import AT_NIGHT
from tests.processes.place import SHAPES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "reliability.json"
LOGS = ROOT / "build" / "nightly"
PASSED = ROOT / "build" / "proof.json"
"""What has passed for a proof, by commit: a line for each program."""
CANNOT_RUN = 77
"""The exit code of a program that cannot run on this machine, and prints why. It is not a failure, but is shown in the table."""
HIDDEN = {"measure", "program", "at", "seconds", "seed", "exit_code", "result"}


@dataclass(frozen=True)
class Program:
    """A program to run.

    `size`: the value of its option `size_option`, which `--scale` reduces, but not below `least`, with which the program still
    finds what it looks for; `proof`: its size for a proof, if that is another. `cores`: the number of cores that it keeps busy.
    `minutes`: its share of the time, in proportion to those of the others. `at_night`: further arguments, but not for a proof.
    `results_option`: names a file by which an interrupted proof goes on. `seed`: of the night, for programs that are random.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    size_option: str | None = None
    size: int = 0
    least: int = 1
    proof: int | None = None
    cores: int = 1
    minutes: float = 30
    at_night: tuple[str, ...] = ()
    results_option: str | None = None
    seed: int | None = None

    def command(self, scale: float) -> list[str]:
        sized = [self.size_option, str(max(self.least, round(self.size * scale)))] if self.size_option else []
        seeded = [] if self.seed is None or self.module not in RANDOM else ["--seed", str(self.seed)]
        if self.seed is not None and self.at_night:  # what it does is chosen by the day
            seeded += ["--day", str(self.seed)]
        return [sys.executable, "-m", self.module, *self.arguments, *self.at_night, *sized, *seeded]

    @property
    def is_there(self) -> bool:
        return not self.module.startswith("scripts.") or (ROOT / f"{self.module.replace('.', '/')}.py").exists()


RANDOM = frozenset(
    f"scripts.nightly.{name}"
    for name in (
        *("clock_jumps", "false_fields", "fuzz_files", "increments", "kill_commands", "kill_processes", "model", "mutations"),
        *("pairs_of_faults", "properties", "shared_warehouse", "simulate", "spark_steps", "system_faults"),
    )
)
"""The modules with the option `--seed`."""
KILL, RACE, PAIRS = "scripts.nightly.kill_processes", "scripts.nightly.race_put_if_absent", "scripts.nightly.pairs_of_faults"
TESTS = ("-q", "-m", "nightly", "-n", "2", "--dist", "loadgroup", "--timeout", "3600")
SEARCHES = tuple(f"--ignore=tests/{path}" for path in ("simulation", "properties/test_engines.py"))
"""Half of the time of the nightly tests, and what the programs `simulate` and `properties` do, too."""
THIRD = ("--part-of-the-day", "3")
"""Most of the rest takes every operation through every fault, which is the same each night."""
EXAMPLES = ("-q", "-m", "hypothesis", "-n", "2", "--hypothesis-profile", "night", "--timeout", "3600")
"""The property tests with random examples. A failure is printed with the blob that reproduces it."""
PART = ("--part-of-the-day", "24")
SMALL = tuple(f"tests/{module}" for module in sorted(AT_NIGHT))
"""Tests of whole tables, which hold with pieces of any size."""
PROGRAMS = (
    Program("pytest", "pytest", TESTS, at_night=(*SEARCHES, *THIRD), cores=2, minutes=25),
    Program("examples", "pytest", EXAMPLES, cores=2, minutes=8),
    *(
        Program(
            f"pieces-of-{pieces}", "pytest", ("-q", "-m", "", "-n", "2", "--pieces", str(pieces), *SMALL), cores=2, minutes=size
        )
        for pieces, size in ((1, 10), (2, 5), (3, 5), (7, 5))
    ),
    Program("simulate", "scripts.nightly.simulate", at_night=PART, results_option="--results", cores=2, minutes=15),
    Program("properties", "scripts.nightly.properties", ("--jobs", "2"), "--steps", 20_000, proof=1_020_000, cores=2, minutes=10),
    Program("model", "scripts.nightly.model", ("--jobs", "2"), "--steps", 50_000, proof=1_000_000, cores=2, minutes=16),
    Program("kills-local", KILL, ("--store", "local"), "--kills", 250, proof=500, cores=2, minutes=4),
    Program("kills-s3", KILL, ("--store", "s3"), "--kills", 100, proof=250, cores=2, minutes=4),
    *(
        Program(f"kills-{shape}", KILL, ("--shape", shape), "--kills", 25, proof=60, cores=2, minutes=2)
        for shape in SHAPES
        if shape != "merged"
    ),
    Program("kills-s3-lock", KILL, ("--store", "s3-lock"), "--kills", 25, proof=60, cores=2, minutes=3),
    *(
        Program(f"kills-{name}", KILL, ("--store", name), "--kills", 50, proof=120, cores=2, minutes=3)
        for name in ("azurite", "fake-gcs-server")
    ),
    Program("store-servers", "scripts.nightly.store_servers", (), "--rounds", 100, proof=200, cores=2, minutes=3),
    Program("shared-warehouse", "scripts.nightly.shared_warehouse", (), "--tables", 2_000, proof=10_000, minutes=5),
    Program("kill-commands", "scripts.nightly.kill_commands", (), "--kills", 112, proof=280, minutes=6),
    Program("race-local", RACE, ("--url", "build/race", "--processes", "8"), "--rounds", 5_000, proof=20_000, cores=2, minutes=3),
    Program(
        "paused-lock-holders", "scripts.nightly.paused_lock_holders", (), "--pauses", 20, least=20, proof=40, cores=2, minutes=4
    ),
    Program("fuzz-files", "scripts.nightly.fuzz_files", (), "--files", 300_000, proof=2_000_000, cores=2, minutes=6),
    Program("pairs-of-faults", PAIRS, ("--jobs", "2"), "--pairs", 20_000, proof=100_000, cores=2, minutes=6),
    Program("increments", "scripts.nightly.increments", ("--jobs", "2"), "--tables", 90, proof=300, cores=2, minutes=4),
    Program("clock-jumps", "scripts.nightly.clock_jumps", ("--jobs", "2"), "--tables", 90, proof=300, cores=2, minutes=5),
    Program("system-faults", "scripts.nightly.system_faults", (), "--faults", 300, proof=1000, minutes=8),
    Program("manifest-bombs", "scripts.nightly.manifest_bombs", minutes=10),
    Program("false-fields", "scripts.nightly.false_fields", (), "--cases", 5_000, least=200, proof=20_000, minutes=8),
    Program(
        "soak-compaction", "scripts.nightly.soak_compaction", ("--writers", "2"), "--seconds", 180, proof=600, cores=2, minutes=5
    ),
    *(
        Program(
            f"spark-steps-{where}",
            "scripts.nightly.spark_steps",
            ("--where", where),
            "--steps",
            60,
            proof=300,
            cores=2,
            minutes=5,
        )
        for where in ("embedded", "cluster", "connect")
    ),
    Program("report-screens", "scripts.nightly.report_screens", minutes=1),
    Program("licences", "scripts.licences", minutes=1),
    Program("audit", "scripts.nightly.audit", minutes=1),
    Program(
        "mutations",
        "scripts.nightly.mutations",
        ("--jobs", "2"),
        size_option="--sample",
        size=20,
        proof=60,
        at_night=("--rooms-of-the-day", "2"),
        cores=2,
        minutes=40,
    ),
)
"""The sizes of a night leave time to a slower machine than two cores of an Intel Xeon (family 6, model 207)."""


@dataclass
class Started:
    """A program that is running, or has ended."""

    program: Program
    process: subprocess.Popen[bytes]
    log: Path
    limit: float
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    result: str = "running"

    def look(self) -> bool:
        """Whether the program has ended. If its time is over, it is ended with all that it has started."""
        code = self.process.poll()
        self.seconds = round(time.monotonic() - self.begun, 1)
        if code is None and self.seconds > self.limit:
            self.end()
            self.result = "out of time"
        elif code is not None:
            self.result = {0: "ok", CANNOT_RUN: "cannot run here"}.get(code, f"exit code {code}")
        return self.result != "running"

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """The JSON objects with a `measure` that it has printed."""
        found = []
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("{"):
                with contextlib.suppress(json.JSONDecodeError):
                    found.append(json.loads(line))
        return [line for line in found if "measure" in line]


def share(program: Program, waiting: Sequence[Program], cores: int, left: float) -> float:
    """The seconds that a program may take of those left for it and all that are waiting. They get what it leaves over."""
    if left == float("inf"):
        return left
    needed = sum(one.minutes * min(one.cores, cores) / cores for one in (program, *waiting))
    return left * min(1.0, program.minutes / needed)


def start(program: Program, scale: float, limit: float) -> Started:
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{program.name}.log"
    with log.open("wb") as sink:
        command = program.command(scale)
        process = subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True)
    print(f"{program.name} (at most {limit:.0f} s): {' '.join(command[1:])}", flush=True)
    return Started(program, process, log, limit)


def run(programs: Sequence[Program], cores: int, minutes: float, scale: float) -> list[Started]:
    """Run as many programs in parallel as there are cores for, each within its share of the minutes."""
    end, waiting = time.monotonic() + minutes * 60, list(programs)
    running: list[Started] = []
    ended: list[Started] = []
    try:
        while waiting or running:
            free = cores - sum(started.program.cores for started in running)
            fitting = next((p for p in waiting if p.cores <= free or not running), None)
            if fitting:
                waiting.remove(fitting)
                limit = share(fitting, waiting, cores, max(0.0, end - time.monotonic()))
                running.append(start(fitting, scale, limit))
                continue
            time.sleep(0.2)
            for started in [started for started in running if started.look()]:
                running.remove(started)
                ended.append(started)
                keep(started)
    finally:
        for started in running:
            started.end()
    return ended


def keep(started: Started) -> None:
    """Add what the program has measured to the results."""
    common = {"program": started.program.name, "result": started.result, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    lines = started.lines() or [{"measure": started.program.name, "seconds": started.seconds}]
    with RESULTS.open("a", encoding="utf-8") as sink:
        for line in lines:
            sink.write(json.dumps({**line, **common}) + "\n")
    print(f"{started.program.name}: {started.result} after {started.seconds:.0f} s", flush=True)


def for_a_proof(program: Program, commit: str) -> list[Program]:
    """The program at the size of a proof, with all the time that it needs.

    Of one that is random, the proof is many nights: so an interruption loses one of them, not the hours before.
    """
    endless = replace(program, minutes=float("inf"), at_night=())
    whole = program.proof or program.size
    if program.results_option:
        so_far = str(PASSED.with_name(f"{program.name}-{commit}.jsonl"))
        endless = replace(endless, arguments=(*program.arguments, program.results_option, so_far))
    if program.module not in RANDOM or program.at_night:
        return [replace(endless, size=whole)]
    nights = max(1, -(-whole // max(1, program.size)))
    return [replace(endless, name=f"{program.name}-{seed}", seed=seed) for seed in range(1, nights + 1)]


def passed(commit: str) -> set[str]:
    """The programs that have passed for a proof of this commit."""
    if not PASSED.exists():
        return set()
    lines = [json.loads(line) for line in PASSED.read_text(encoding="utf-8").splitlines()]
    return {line["program"] for line in lines if line["commit"] == commit}


def note_passed(commit: str, ended: Sequence[Started]) -> None:
    with PASSED.open("a", encoding="utf-8") as sink:
        for started in ended:
            if started.result in ("ok", "cannot run here"):
                sink.write(json.dumps({"commit": commit, "program": started.program.name, "seconds": started.seconds}) + "\n")


def checked_out() -> str:
    """The commit that is checked out. Raises `SystemExit` if files differ from it: a proof is of a commit."""
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode != 0:
        raise SystemExit("a proof is of a commit, and files differ from it: commit the changes first")
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def prove(programs: Sequence[Program], cores: int) -> list[Started]:
    """Run what has not passed yet for this commit, one after the other, so that an interruption loses little."""
    commit = checked_out()
    done, ended = passed(commit), list[Started]()
    for program in programs:
        if program.name in done:
            print(f"{program.name}: has passed before", flush=True)
            continue
        ended += run([program], cores, float("inf"), 1.0)
        note_passed(commit, ended[-1:])
    return ended


def table(programs: Sequence[Program], ended: Sequence[Started]) -> str:
    """A table with a line for each measure."""
    by_name = {started.program.name: started for started in ended}
    rows = [("program", "result", "seconds", "figures")]
    for program in programs:
        started = by_name.get(program.name)
        if started is None:
            rows.append((program.name, "not run" if program.is_there else "not there", "", ""))
            continue
        for line in started.lines() or [{}]:
            figures = ", ".join(f"{key} {value}" for key, value in line.items() if _is_figure(key, value))
            rows.append((program.name, started.result, f"{line.get('seconds', started.seconds)}", figures or _last_line(started)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows)


def _is_figure(key: str, value: Any) -> bool:
    return key not in HIDDEN and isinstance(value, int | float | str)


def _last_line(started: Started) -> str:
    """The last line of the output: pytest's summary."""
    lines = started.log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip("= ") for line in reversed(lines) if line.strip()), "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="programs whose name contains this; repeatable")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=180, help="the time of all programs together")
    parser.add_argument("--scale", type=float, default=1.0, help="scale the size of each program that has one")
    parser.add_argument("--seed", type=int, default=date.today().toordinal(), help="of a night; by default the number of the day")
    parser.add_argument("--proof", action="store_true", help="no limit of time; leave out what has passed at this commit")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what it has started ends, too
    chosen = [p for p in PROGRAMS if not arguments.only or any(word in p.name for word in arguments.only)]
    begun, there = time.monotonic(), [p for p in chosen if p.is_there]
    if arguments.proof:
        commit = checked_out()
        done, parts = passed(commit), [part for program in there for part in for_a_proof(program, commit)]
        ended = prove(parts, arguments.cores)
        chosen = [program for program in chosen if not program.is_there] + [part for part in parts if part.name not in done]
    else:
        tonight = [replace(program, seed=arguments.seed) for program in there]
        ended = run(tonight, arguments.cores, arguments.minutes, arguments.scale)
    minutes = (time.monotonic() - begun) / 60
    print(f"\n{table(chosen, ended)}\n\n{minutes:.1f} minutes; lines added to {RESULTS.relative_to(ROOT)}")
    return int(len(ended) < len(chosen) or any(started.result not in ("ok", "cannot run here") for started in ended))


if __name__ == "__main__":
    sys.exit(main())
