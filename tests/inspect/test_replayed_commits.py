"""The history of a table, replayed: what readers find, and the bytes that its compactions wrote."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.inspect.compaction_scenarios import scenario_row
from paimon_cli.inspect.replayed_commits import file_overhead, history_workload
from paimon_cli.lsm.compaction_simulation import SimulatedWorkload
from paimon_cli.lsm.sorted_runs import count_runs
from paimon_cli.metadata.snapshot import COMPACT
from tests.inspect.small_tables import small_table
from tests.tables import make_table, write


def test_a_replay_says_what_the_table_did(tmp_path: Path) -> None:
    """Runs as they are after each write, with its compaction; bytes although much of such small files is not rows."""
    table = small_table(tmp_path / "t")
    context = table.context
    snapshots = [context.snapshots.get(number) for number in context.snapshots.ids()]
    follows = [*(snapshot.commit_kind == COMPACT for snapshot in snapshots[1:]), False]
    after = [snapshot for snapshot, is_followed in zip(snapshots, follows, strict=True) if not is_followed][1:]
    runs = [count_runs(entry.file for entry in context.manifests.live_entries(snapshot)) for snapshot in after]
    written = sum(row.bytes_after for row in table.compactions())
    workload: SimulatedWorkload[Any] = history_workload(context)
    replayed = scenario_row(workload, context.options, {})
    assert workload.lag == 0
    assert replayed.read_amplification == pytest.approx(sum(runs) / len(runs), rel=0.1) and replayed.most_runs == max(runs)
    assert replayed.compacted_bytes == pytest.approx(written, rel=0.1)


def test_until_a_job_has_compacted_it_is_not_known_when_one_will(tmp_path: Path) -> None:
    """Each commit to a write-only table is then seen before its compaction."""
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"], options={"write-only": "true"})
    for _ in range(3):
        write(context, [{"id": 1}])
    assert history_workload(context).lag is None


def test_what_is_not_rows_is_measured_where_numbers_of_rows_differ() -> None:
    drawn = random.Random(3)
    line = [(rows, 1_300 + 30 * rows + drawn.randrange(-20, 20)) for rows in (100, 100, 200, 500, 2_000)]
    assert file_overhead(line) == pytest.approx(1_300, abs=60)
    assert file_overhead(line[:2]) == 0 == file_overhead([])
