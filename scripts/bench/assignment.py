"""Assigning keys to dynamic buckets, and loading the index for it, against sorting hashes in numpy.

    python -m scripts.bench.assignment [--keys 50000000] [--rounds 5]

The index holds KEYS hashes, in buckets of two million. First KEYS rows are assigned, half of them with known hashes, then a
fiftieth of that number; the sort is always of KEYS hashes. Also prints the memory that the index takes per key.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from paimon_cli.bucket.hash_index import PackedIndex, read_key_hashes, write_key_hashes
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId
from paimon_cli.metadata.index_files import KeyHashes
from paimon_cli.write.bucket_assigner import Limits, PartitionAssigner
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from tests.tables import make_table

A_BUCKET = 2_000_000
GOALS = {"half known": 9.0, "few": 0.5, "load": 3.0}
MAX_BYTES_A_KEY = 8


class Assignment:
    """An assigner over an index, ready for the rows of one measurement."""

    def __init__(self, index: PackedIndex) -> None:
        self._parts = tuple(index._parts)
        self.reset()

    def reset(self) -> None:
        """Start again with the loaded index, whose parts never change."""
        self.assigner = PartitionAssigner({}, Limits(A_BUCKET, None))
        self.assigner.known._parts = [*self._parts]


def random_hashes(random: np.random.Generator, count: int) -> KeyHashes:
    return random.integers(-(2**31), 2**31, count, np.int32)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=50_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    keys, random = arguments.keys, np.random.default_rng(1)
    hashes = random_hashes(random, keys)
    with tempfile.TemporaryDirectory(prefix="assignment-") as folder:
        context = make_table(Path(folder) / "t", {"k": "INT NOT NULL"}, ["k"], bucket=-1)
        starts = range(0, keys, A_BUCKET)
        pieces = [hashes[start : start + A_BUCKET] for start in starts]
        files = [write_key_hashes(context, BucketId(EMPTY_ROW, number), piece, "") for number, piece in enumerate(pieces)]

        def load() -> PackedIndex:
            return PackedIndex([(read_key_hashes(context, file), number) for number, file in enumerate(files)])

        index = load()
        few = keys // 50
        rows = {count: np.concatenate([hashes[: count // 2], random_hashes(random, count // 2)]) for count in (keys, few)}
        for shuffled in rows.values():
            random.shuffle(shuffled)
        ready = Assignment(index)

        def sort() -> object:
            return np.sort(hashes)

        def comparison(name: str, count: int) -> Comparison:
            return Comparison(
                f"{count:,} rows, {name}", lambda: ready.assigner.assign(rows[count]), sort, GOALS[name], ready.reset
            )

        compared = [
            comparison("half known", keys),
            comparison("few", few),
            Comparison(f"{keys:,} hashes, load", load, sort, GOALS["load"]),
        ]
        met = report(compared, arguments.rounds)
        held = index.nbytes / len(index)
        is_small = held <= MAX_BYTES_A_KEY
        print(
            json.dumps({"name": "index of key hashes", "bytes_a_key": held, "goal_bytes_a_key": MAX_BYTES_A_KEY, "met": is_small})
        )
        return int(not (met and is_small))


if __name__ == "__main__":
    sys.exit(main())
