"""Compares the granularities of the data conflict check on one workload of read-modify-writes.

In each round every writer reads the latest snapshot and increments a few counters. Then the writers commit one after another; a
writer whose commit is refused waits for the next round. Without the check, increments are lost. The coarser the check, the more
commits are refused although no other commit changed their counters.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from paimon_cli.errors import UsageError
from paimon_cli.lab.lab_table import LabSetting, LabTable, Writer, check_options, writers_of
from paimon_cli.lab.story import Story
from paimon_cli.options.own_options import DATA_CONFLICT_CHECKS
from paimon_cli.requests.lab import GranularityOptions

_COLUMNS = {"p": "INT NOT NULL", "k": "INT NOT NULL", "v": "INT"}
_PARTITIONS = 2
NEARBY = 3
"""A commit draws its keys from a window this many times as large, so key ranges overlap more often than keys collide."""


@dataclass(frozen=True)
class GranularityRow:
    """The result of one granularity. `needless`: commits refused although none of their counters had changed since they read;
    `lost_updates`: acknowledged increments that the counters do not contain.
    """

    granularity: str
    commits: int
    refused: int
    abort_rate: float
    needless: int
    lost_updates: int


def compare_granularities(
    shape: GranularityOptions, setting: LabSetting, on_round: Callable[[], None] = lambda: None
) -> list[GranularityRow]:
    """One row per granularity, `off` first. All of them run the same workload, which the seed determines."""
    if shape.keys < shape.keys_per_commit * _PARTITIONS:
        raise UsageError(
            f"{shape.keys} keys are too few", f"each of {_PARTITIONS} partitions needs {shape.keys_per_commit}", "raise --keys"
        )
    check_options(setting.options)
    return [_row(shape, replace(setting, check=check), on_round) for check in DATA_CONFLICT_CHECKS]


Counter = tuple[int, int]
"""Partition and key."""


def _row(shape: GranularityOptions, setting: LabSetting, on_round: Callable[[], None]) -> GranularityRow:
    generator = random.Random(setting.seed or 0)
    options = {"bucket": str(shape.buckets)}
    table = LabTable(Story("granularity", (setting.check,)), setting, _COLUMNS, "k", options, partition="p")
    per_partition = shape.keys // _PARTITIONS
    counters = [(p, k) for p in range(_PARTITIONS) for k in range(per_partition)]
    Writer(table, "setup").write([{"p": p, "k": k, "v": 0} for p, k in counters])
    writers = writers_of(table, shape.writers)
    for writer in writers:
        writer.storage.is_quiet = True
    refused = needless = acknowledged = 0
    for _ in range(shape.rounds):
        touched: dict[str, set[Counter]] = {}
        for writer in writers:
            partition, window = generator.randrange(_PARTITIONS), min(NEARBY * shape.keys_per_commit, per_partition)
            first = generator.randrange(per_partition - window + 1)
            touched[writer.name] = {
                (partition, key) for key in generator.sample(range(first, first + window), shape.keys_per_commit)
            }
            writer.read()
            chosen = [row for row in writer.rows if (row["p"], row["k"]) in touched[writer.name]]
            writer.prepare([_incremented(row) for row in chosen], writer.read_id)
        changed: set[Counter] = set()
        for writer in generator.sample(writers, len(writers)):
            if writer.commit():
                acknowledged += shape.keys_per_commit
                changed |= touched[writer.name]
            else:
                refused += 1
                needless += not changed & touched[writer.name]
        on_round()
    counted = sum(row["v"] for row in table.rows())
    table.end()
    commits = shape.writers * shape.rounds
    rate = round(refused / commits, 4)
    return GranularityRow(setting.check, commits, refused, rate, needless, acknowledged - counted)


def _incremented(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "v": row["v"] + 1}
