"""`make bench`: every benchmark in turn, their lines into build/bench.json.

    python -m scripts.bench.run_all [--only compaction]

Exit code 1 if a goal was missed: the text of each program says which.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "bench.json"
PROGRAMS: dict[str, tuple[str, ...]] = {
    "compaction": ("scripts.bench.compaction",),
    "scan": ("scripts.bench.scan",),
    "spark write": ("scripts.bench.spark_write",),
    "spark compact": ("scripts.bench.spark_compact", "--rows", "1000000"),
    "profile": ("scripts.bench.profile_paths",),
    "growth": ("scripts.bench.growth",),
    "peers": ("scripts.bench.against_peers",),
    "expire": ("scripts.bench.expire", "--snapshots", "100", "1000"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PROGRAMS, action="append", help="repeatable")
    chosen = parser.parse_args().only or list(PROGRAMS)
    missed = []
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as results:
        for name in chosen:
            done = subprocess.run([sys.executable, "-m", *PROGRAMS[name]], cwd=ROOT, stdout=subprocess.PIPE, text=True)
            results.writelines(f"{line}\n" for line in done.stdout.splitlines() if line.startswith("{"))
            missed += [name] if done.returncode else []
    print(f"{len(chosen)} programs, lines added to {RESULTS.relative_to(ROOT)}; missed: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
