"""Full compaction of tables that Java Paimon wrote, by Java and by us, in processes that have compacted copies of them before.

    python -m scripts.judge.java_tables --jars FOLDER --tables 20 --rows 4000 --loads 4

Prints a JSON line: CPU seconds and the largest resident memory of both, without the writing of the tables and the warming up.
`ours` is such a process (`scripts.judge.warm_compaction`); `command` is a new one, with the start of Python, from modules that
are compiled, as after an installation. Both count the processes that decode ORC. All must leave the same rows. With `--floor`
also the least that Python needs (`scripts.judge.floor`), with its start, and the command against it; its rows must be these, too.

`mb` counts a page of a file that two processes have mapped once, as the machine holds it: a process that decodes ORC has the same
libraries as its parent. `mb_summed` is the sum of what each process has resident. They differ only with child processes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any

from scripts.bench.measure import MACHINE
from scripts.judge.peers import JavaPaimon, PaimonCli, memory_peak

_FORMATS = ("parquet", "parquet", "orc", "avro")
_ENGINES: tuple[dict[str, str], ...] = (
    {},
    {"merge-engine": "partial-update"},
    {"deletion-vectors.enabled": "true"},
    {"changelog-producer": "input"},
    {},
)
_LOOKS_EVERY_SECONDS = 0.01
_MAPPINGS_EVERY_LOOKS = 10
"""Reading all mappings of a process takes its lock, and milliseconds."""
_FIELDS = (("id", "BIGINT NOT NULL"), ("name", "STRING"), ("amount", "DECIMAL(12, 2)"), ("at", "TIMESTAMP(6)"), ("n", "INT"))


def _schema(number: int) -> dict[str, Any]:
    options = {"bucket": "2", "file.format": _FORMATS[number % len(_FORMATS)], **_ENGINES[number % len(_ENGINES)]}
    fields = [{"id": index, "name": name, "type": t} for index, (name, t) in enumerate(_FIELDS)]
    return {"fields": fields, "partitionKeys": [], "primaryKeys": ["id"], "options": options}


def _rows(count: int, load: int) -> list[dict[str, Any]]:
    return [
        {
            **{"_kind": "+I", "id": number * 3 % count * 2 + load % 2, "name": f"name {number % 1000}"},
            **{"amount": f"{number % 9999}.25", "at": f"2026-01-01T00:{number % 60:02}:00.000001", "n": number * load % 77},
        }
        for number in range(count)
    ]


def main() -> None:
    """Write the tables, compact two copies by Java and one by us, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=Path, required=True)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--loads", type=int, default=4)
    parser.add_argument("--floor", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="java-tables-") as folder:
        places = {side: Path(folder, f"{side}.db") for side in ("warm", "java", "copies", "ours", "command", "first", "floor")}
        names = [f"t{number}" for number in range(given.tables)]
        with closing(JavaPaimon(given.jars)) as writer:
            for number, name in enumerate(names):
                writer.create(places["warm"] / name, _schema(number))
                for load in range(given.loads):
                    writer.write(places["warm"] / name, _rows(given.rows, load), compact=False)
        for side in ("java", "copies", "ours", "command", "first", "floor"):
            shutil.copytree(places["warm"], places[side])
        with closing(JavaPaimon(given.jars)) as java:  # another one: rows in JSON take more memory than a compaction
            for name in names:
                java.compact(places["warm"] / name, full=True)
            seconds = [_of_java(java, places["java"] / name) for name in names]
            theirs = {"cpu": round(sum(seconds), 2), "tables": seconds, "mb": memory_peak(java.process_id) >> 20}
            _use_of(_command([places["first"] / names[0]]))
            command = _use_of(_command([places["command"] / name for name in names]))
            ours = _use_when_warm(places["copies"], places["ours"])
            floor = _use_of(["scripts.judge.floor", *(str(places["floor"] / name) for name in names)]) if given.floor else None
            sides = ("ours", "command", *(["floor"] if given.floor else []))
            differing = [name for name in names if _differ(java, places, name, sides)]
    ratios = {"ratios": _ratios(ours, theirs), "command_ratios": _ratios(command, theirs)}
    against_floor = (
        {} if floor is None else {"floor": floor, "to_floor": _ratios(command, floor), "floor_to_java": _ratios(floor, theirs)}
    )
    shown = {
        "java": theirs,
        "ours": ours,
        "command": command,
        **ratios,
        **against_floor,
        "differing": differing,
        "machine": MACHINE,
        "load": os.getloadavg()[0],
    }
    print(json.dumps({"measure": "java_tables", "tables": given.tables, "rows": given.rows * given.loads, **shown}))
    sys.exit(bool(differing))


def _of_java(java: JavaPaimon, table: Path) -> float:
    before = java.cpu_seconds
    java.compact(table, full=True)
    return round(java.cpu_seconds - before, 2)


def _ratios(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    return {"cpu": round(one["cpu"] / other["cpu"], 2), "memory": round(one["mb"] / other["mb"], 2)}


def _command(tables: Sequence[Path]) -> list[str]:
    return ["paimon_cli", "compact", *map(str, tables), "--strategy", "full", "--engine", "local"]


def _use_when_warm(copies: Path, tables: Path) -> dict[str, Any]:
    """The use of a process that compacts the copies and then the tables: all of its memory, and its CPU for the tables."""
    with tempfile.TemporaryFile() as printed:
        used = _use_of(["scripts.judge.warm_compaction", str(copies), str(tables)], printed)
        printed.seek(0)
        return {**used, "cpu": float(printed.read().splitlines()[-1])}


def _use_of(program: Sequence[str], printed: IO[bytes] | int = subprocess.DEVNULL) -> dict[str, Any]:
    """Run a module with its arguments; its use of the processor and of memory, with its children. Compiled modules are kept."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", *program]
    process = subprocess.Popen(command, stdout=printed, env=environment)
    parent, looks, summed, once = str(process.pid), 0, 0, 0
    own: dict[str, int] = {}
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        children, looks = _children(process.pid), looks + 1
        if looks % _MAPPINGS_EVERY_LOOKS == 0:
            mapped = _resident(parent) if children else {}
            own |= {child: max(own.get(child, 0), _beside(mapped, _resident(child))) for child in children}
        peak = _peak(parent)
        summed = max(summed, peak + sum(map(_peak, children)))
        once = max(once, peak + sum(own.get(child, 0) for child in children))
        time.sleep(_LOOKS_EVERY_SECONDS)
    if ended[1]:
        raise AssertionError(f"{' '.join(command)}: exit {os.waitstatus_to_exitcode(ended[1])}")
    used = ended[2]
    once, summed = (max(peak, used.ru_maxrss << 10) >> 20 for peak in (once, summed))
    return {"cpu": round(used.ru_utime + used.ru_stime, 2), "mb": once, "mb_summed": summed}


def _children(process: int) -> list[str]:
    """The numbers of the child processes, without those that have not begun their program: their memory is that of the parent."""
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        numbers = [number for task in tasks for number in (task / "children").read_text().split()]
        program = Path(f"/proc/{process}/cmdline").read_bytes()
        return [number for number in numbers if Path(f"/proc/{number}/cmdline").read_bytes() != program]
    except OSError:  # one has just ended
        return []


def _peak(process: str) -> int:
    """The largest resident memory of a process until now; 0 if it has just ended."""
    try:
        return memory_peak(process)
    except (OSError, StopIteration):
        return 0


def _resident(process: str) -> dict[str, int]:
    """The resident bytes of each file that a process has mapped, and by an empty name those of its own pages."""
    found, file = Counter[str](), ""
    with suppress(OSError):  # it has just ended
        for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
            words = line.split()
            if not words[0].endswith(":"):
                file = words[5] if len(words) > 5 else ""
            elif words[0] == "Rss:":
                found[file] += int(words[1]) << 10
            elif words[0] == "Anonymous:":
                found[file] -= int(words[1]) << 10
                found[""] += int(words[1]) << 10
    return found


def _beside(mapped: dict[str, int], of_child: dict[str, int]) -> int:
    """The bytes of a child process that its parent does not hold as well, which has `mapped` these."""
    return sum(size - (min(size, mapped.get(file, 0)) if file else 0) for file, size in of_child.items())


def _differ(java: JavaPaimon, places: dict[str, Path], name: str, sides: Sequence[str]) -> bool:
    def seen(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True) for row in rows)

    by_java = seen(java.read(places["java"] / name))
    return any(
        by_java != seen(java.read(places[side] / name)) or len(by_java) != len(PaimonCli().read(places[side] / name))
        for side in sides
    )


if __name__ == "__main__":
    main()
