"""Threads of a job leave their new files to its block of background writes, so that they need not wait for each of them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.pieces import PIECES
from paimon_cli.storage.background_writes import BackgroundWrites
from tests.tables import make_table, write

ROWS = [{"k": number, "v": number} for number in range(100)]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[threading.Thread, bool]]:
    """The thread of each write, and whether it was left to the block."""
    found: list[tuple[threading.Thread, bool]] = []
    real = BackgroundWrites.begin

    def begin(self: BackgroundWrites, *arguments: Any) -> bool:
        found.append((threading.current_thread(), real(self, *arguments)))
        return found[-1][1]

    monkeypatch.setattr(BackgroundWrites, "begin", begin)
    return found


@pytest.mark.parametrize("compaction", ["none", "async"])
def test_files_of_all_threads_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[tuple[threading.Thread, bool]], compaction: str
) -> None:
    monkeypatch.setattr(PIECES, "least_thread_bytes", 1)
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], bucket=4)
    for _ in range(6):
        write(context, ROWS, threads=2, compact=compaction)
    written = len(begun)
    run_compact(context, CompactRequest("full"), LocalEngine(2), NoProgress())
    assert all(left for _, left in begun)
    for of_job in (begun[:written], begun[written:]):
        assert any(thread is not threading.main_thread() for thread, _ in of_job)
