"""Turns that committed a part before they ended with an error: metrics, ledger and log tell of all that was committed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from paimon_cli import Catalog, Table
from paimon_cli.cli.service_log import table_text
from paimon_cli.errors import BeingDropped, FilesConflict, PaimonError, PartialSuccess
from paimon_cli.jobs import compact_outcome
from paimon_cli.jobs.service import turn_steps
from paimon_cli.jobs.service.service_metrics import ServiceMetrics
from paimon_cli.jobs.service.table_round import RoundState, TableRound
from tests.jobs.test_leases import HandClock
from tests.jobs.test_service_rounds import Rounds

BUCKETS = 4


@pytest.fixture
def table(tmp_path: Path) -> Table:
    options = {"bucket": f"{BUCKETS}", "num-sorted-run.compaction-trigger": "3"}
    place = tmp_path / "wh" / "shop.db" / "t"
    table = Table.create(place, columns=["id BIGINT NOT NULL", "v STRING"], primary_key=["id"], options=options)
    for commit in range(6):
        table.write([{"id": key, "v": f"{commit}" * 50} for key in range(200)], compact="none")
    return table


@pytest.fixture
def _a_conflict_in_bucket_1(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = compact_outcome.try_commit

    def another_was_faster(new_files: Any, messages: Any, outcome: Any, *rest: Any) -> Any:
        lost = any(message.bucket == 1 for message in messages)
        return FilesConflict("bucket 1 was compacted", "by a test") if lost else commit(new_files, messages, outcome, *rest)

    monkeypatch.setattr(compact_outcome, "try_commit", another_was_faster)


class Seen(Rounds):
    """Keeps what each turn did, of which nothing is left at the end of a round."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.done: list[TableRound] = []

    def table_done(self, done: TableRound) -> None:
        self.done.append(done)


def of_table(metrics: ServiceMetrics) -> dict[str, float]:
    found = (line.rpartition(" ") for line in generate_latest(metrics.registry).decode().splitlines() if line[:1] != "#")
    return {name.partition("{")[0]: float(value) for name, _, value in found if 'table="shop.t"' in name}


def committed(table: Table) -> tuple[int, int]:
    """The bytes that all compactions have read and written, by the snapshots."""
    rows = table.compactions()
    return sum(row.bytes_before for row in rows), sum(row.bytes_after for row in rows)


@pytest.mark.usefixtures("_a_conflict_in_bucket_1")
def test_metrics_ledger_and_log_tell_of_what_was_committed_beside_a_conflict(tmp_path: Path, table: Table) -> None:
    seen, catalog = Seen(), Catalog(str(tmp_path / "wh"))
    metrics = ServiceMetrics(seen, seen.clock)
    with pytest.raises(PaimonError):
        catalog.watch(database="shop", watcher=metrics, max_rounds=1, interval=1, expire=True, whole=True)
    read, written = committed(table)
    (done,) = seen.done
    found = of_table(metrics)
    assert done.state == RoundState.TRY_AGAIN and done.summary.buckets == BUCKETS - 1
    assert found["paimon_compaction_compactionCompletedCount"] == BUCKETS - 1
    assert found["paimon_cli_compaction_read_bytes_total"] == read
    assert found["paimon_cli_compaction_written_bytes_total"] == written
    assert found["paimon_cli_failures_total"] == 1
    (row,) = catalog.ledger.ls()
    assert row.bytes_read > read, "what came to nothing was paid all the same"
    assert (row.runs_before, row.runs_after) == (6 * (BUCKETS - 1), BUCKETS - 1), "the runs of bucket 1 are still there"
    text = table_text(done) or ""
    assert "1 of 4 buckets were skipped" in text and "; snapshot 7, 8, 9, 3 buckets" in text


@pytest.mark.usefixtures("_a_conflict_in_bucket_1")
def test_a_single_compaction_reports_what_was_committed_beside_a_conflict(tmp_path: Path, table: Table) -> None:
    done: list[TableRound] = []
    with pytest.raises(PartialSuccess):
        Catalog(str(tmp_path / "wh")).compact(tables=["shop.t"], on_compacted=done.append)
    metrics = ServiceMetrics(Rounds(HandClock()), HandClock())
    metrics.table_done(replace(done[0], table="shop.t"))
    assert of_table(metrics)["paimon_cli_compaction_read_bytes_total"] == committed(table)[0] > 0


def test_a_table_that_is_dropped_after_its_turn_was_compacted(
    tmp_path: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its findings are counted again after the turn: an error then hid all of it."""
    seen, catalog = Seen(), Catalog(str(tmp_path / "wh"))

    def dropped(*given: Any) -> Any:
        raise BeingDropped("shop.t is being dropped", "by a test")

    monkeypatch.setattr(turn_steps, "examined_findings", dropped)
    metrics = ServiceMetrics(seen, seen.clock)
    catalog.watch(database="shop", watcher=metrics, max_rounds=1, interval=1, expire=True, whole=True, examines=True)
    assert [done.state for done in seen.done] == [RoundState.COMPACTED]
    assert of_table(metrics)["paimon_compaction_compactionCompletedCount"] == BUCKETS
    assert len(catalog.ledger.ls()) == 1 and len(table.files()) == BUCKETS
