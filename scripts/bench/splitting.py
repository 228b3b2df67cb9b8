"""Splitting a bucket in two, with its runs kept and with its due runs merged on the way, against a full compaction of it.

    python -m scripts.bench.splitting [--rows 2000000] [--rounds 5]

The bucket has ROWS rows at the highest level, and four runs at level 0 that upsert scattered keys, a tenth of them together. The
full compaction merges all of them into one run; the split writes as many bytes, and hashes each key.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from paimon_cli import Table
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.bucket_regrouper import RegroupTask, regroup_buckets
from paimon_cli.history.live_files import bucket_files
from paimon_cli.metadata.data_file import CommitMessage
from scripts.bench.compaction import full_compaction
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.partial_compaction import upserted

GOAL = 1.3


def comparisons(table: Table) -> list[Comparison]:
    context, made = table.context, list[Path]()
    compaction, latest = full_compaction(context), context.snapshots.latest()
    assert latest is not None
    held = tuple(bucket_files(context, latest).values())

    def keep(messages: Iterable[CommitMessage]) -> None:
        for message in messages:
            made.extend(Path(context.data_file_path(*message.bucket_id, file)) for file in message.created_files())

    def split(merges: bool) -> None:
        keep(regroup_buckets(context, RegroupTask(held, 2, latest.id, "", merges)))

    def reset() -> None:
        while made:
            made.pop().unlink()

    def compact() -> None:
        keep([run_compaction(context, compaction)])

    ways = (("keeping its runs", lambda: split(False)), ("merging what is due", lambda: split(True)))
    named = ((f"split a bucket in two, {how}, against a full compaction", act) for how, act in ways)
    return [Comparison(name, act, compact, GOAL, reset) for name, act in named]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = upserted(Path(folder) / "t", "scattered", arguments.rows)
        met = report(comparisons(table), arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
