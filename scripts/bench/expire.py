"""How the time and memory of `expire` to ten snapshots grow with the number of snapshots.

    python -m scripts.bench.expire [--snapshots 1000 10000]

Each size runs in a new process on a table of `metadata_table.py`. Prints a table and the growth exponents, JSON lines on stdout.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.bench.measure import MACHINE
from scripts.bench.metadata_table import generate

KEPT = 10


def measure(snapshots: int, folder: Path, command: list[str]) -> tuple[float, float]:
    """The seconds and peak MB of the command on a new table."""
    table = folder / str(snapshots)
    generate(table, snapshots)
    started = time.perf_counter()
    words = [sys.executable, "-m", "paimon_cli", command[0], str(table), *command[1:]]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"it failed with {status}")
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--snapshots", type=int, nargs="+", default=[1000, 10_000])
    sizes = parser.parse_args().snapshots
    with tempfile.TemporaryDirectory() as folder:
        figures = [measure(size, Path(folder), ["expire", "--retain-max", str(KEPT), "-y"]) for size in sizes]
    print(f"{'snapshots':>10}  {'data files':>10}  {'seconds':>8}  {'peak MB':>8}", file=sys.stderr)
    for size, (seconds, memory) in zip(sizes, figures, strict=True):
        print(f"{size:>10,}  {size * 10:>10,}  {seconds:>8.1f}  {memory:>8.0f}", file=sys.stderr)
        print(json.dumps({"name": "expire", "snapshots": size, "wall": seconds, "peak_mb": memory, "on": MACHINE}))
    for name, place in (("seconds", 0), ("memory", 1)):
        growth = math.log(figures[-1][place] / figures[0][place]) / math.log(sizes[-1] / sizes[0])
        print(f"growth exponent of {name}: {growth:.2f}", file=sys.stderr)
        print(json.dumps({"name": f"expire, {name}", "from": sizes[0], "to": sizes[-1], "exponent": growth}), flush=True)


if __name__ == "__main__":
    main()
