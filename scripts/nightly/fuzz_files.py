"""Two million damaged files through all decoders: no traceback, and no wrong content where there are checksums.

    python -m scripts.nightly.fuzz_files --files 2000000 --jobs 2

Each process has its own seed. Prints a JSON line. The exit code is 1 after a failure, which names the kind, the seed and the
number.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from scripts.nightly.pool import pool
from tests.hostile.file_fuzzer import FuzzFigures, fuzz
from tests.hostile.specimens import all_specimens

PORTION = 50_000


def work(files: int, seed: int) -> FuzzFigures:
    with tempfile.TemporaryDirectory() as folder:
        return fuzz(all_specimens(Path(folder)), files, seed)


def isolated(files: int, seed: int) -> FuzzFigures:
    """Run a portion in a process of its own. If a library's decoder crashes, this portion is lost, and reported with its seed."""
    try:
        with pool(1) as process:
            return process.submit(work, files, seed).result()
    except BrokenProcessPool:
        return FuzzFigures(failures=[f"seed {seed}: a decoder killed its process"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1000)
    arguments = parser.parse_args()
    begun = time.monotonic()
    portions = [min(PORTION, arguments.files - done) for done in range(0, arguments.files, PORTION)]
    with ThreadPoolExecutor(arguments.jobs) as threads:
        parts = list(threads.map(isolated, portions, range(arguments.seed, arguments.seed + len(portions))))
    failures = [failure for part in parts for failure in part.failures]
    for failure in failures[:50]:
        print(failure)
    changed: Counter[str] = Counter()
    for part in parts:
        changed.update(part.changed)
    figures = {
        "measure": "fuzz of file decoders",
        "files": sum(part.files for part in parts),
        "refused": sum(part.refused for part in parts),
        "unchanged": sum(part.unchanged for part in parts),
        "other_content_without_checksum": sum(changed.values()),
        "by_kind": dict(sorted(changed.items())),
        "failures": len(failures),
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(figures))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
