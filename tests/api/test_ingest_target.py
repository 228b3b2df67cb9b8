"""What becomes of the rows of a table whose commit does not succeed at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.api.dead_letters import DeadLetters
from paimon_cli.api.ingest_call import IngestCall
from paimon_cli.api.ingest_run import IngestRun
from paimon_cli.api.ingest_site import IngestSite
from paimon_cli.api.ingest_target import IngestTarget
from paimon_cli.api.runtime import Runtime
from paimon_cli.errors import Conflict
from paimon_cli.ingest.changes.event_lines import EventLines, PositionUnit

SOURCE = '"source":{"db":"crm","table":"people"}'
EVENT = b'{"op":"c","after":{"id":1,"city":"Bonn"},"source":{"db":"crm","table":"people"}}'


@pytest.mark.parametrize("conflicts", [0, 1, 2])
def test_a_batch_without_marks_is_written_again_after_a_conflict(
    tmp_path: Path, conflicts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Spark, where the number of the batch alone says whether it was committed."""
    call = IngestCall(sources=(), into="crm", format="debezium", primary_key=("people=id",), commit_user="q")
    real, tries = IngestTarget._write, []

    def write(target: IngestTarget, *given: Any) -> Any:
        tries.append(target.next_id)
        if len(tries) <= conflicts:
            raise Conflict("files were changed by another job", "", "")
        return real(target, *given)

    monkeypatch.setattr(IngestTarget, "_write", write)
    with DeadLetters(None, ()) as letters:
        run = IngestRun(IngestSite(Runtime(), str(tmp_path)), call, letters)
        lines = EventLines("s", pa.array([EVENT], pa.large_binary()), np.array([0]), 1, PositionUnit.ROW)
        for _ in range(2):  # Spark repeats a batch
            run.apply("k", lines, 0, None)
            (target,) = run.targets.values()
            target.pending, target.marks, target.next_id = {}, {}, 7
            run.commit()
    table = Table.open(tmp_path / "crm.db" / "people")
    assert (target.failure, set(tries)) == (None, {7}) and table.scan().to_arrow().num_rows == 1
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [7]


def test_what_a_table_holds_is_forgotten_when_it_is_committed_or_dropped(tmp_path: Path) -> None:
    call = IngestCall(sources=(), into="crm", format="debezium", primary_key=("people=id",))
    with DeadLetters(None, ()) as letters:
        run = IngestRun(IngestSite(Runtime(), str(tmp_path)), call, letters)
        lines = EventLines("s", pa.array([EVENT], pa.large_binary()), np.array([0]), len(EVENT), PositionUnit.BYTE)
        for end in (run.reopen, lambda target: run.commit()):
            run.apply("k", lines, 0, None)
            (target,) = run.targets.values()
            assert target.held_bytes and target.pending
            end(target)
            assert (target.held, target.held_bytes, target.pending) == ([], 0, {})
        assert target.marks.keys() == {"k"}
    assert [snapshot.commit_identifier for snapshot in Table.open(tmp_path / "crm.db" / "people").snapshots()] == [0]


def event(key: int) -> str:
    return f'{{"op":"c","after":{{"id":{key},"city":"Bonn"}},{SOURCE}}}'


TRUNCATION = f'{{"op":"t",{SOURCE}}}'


def lines_of(*events: str, begin: int = 0, unit: PositionUnit = PositionUnit.ROW) -> EventLines:
    texts = pa.array([text.encode() for text in events], pa.large_binary())
    return EventLines("s", texts, np.arange(begin, begin + len(events)), begin + len(events), unit)


def run_of(path: Path, letters: DeadLetters) -> IngestRun:
    call = IngestCall(sources=(), into="crm", format="debezium", primary_key=("people=id",))
    return IngestRun(IngestSite(Runtime(), str(path)), call, letters)


def test_a_truncation_that_another_process_has_made_is_made(tmp_path: Path) -> None:
    """What comes after it is committed once: by the process that is faster."""
    with DeadLetters(None, ()) as letters:
        one, other = run_of(tmp_path, letters), run_of(tmp_path, letters)
        for run in (one, other):
            run.apply("k", lines_of(event(1)), 0, None)
            run.commit()
        for run in (one, other):
            run.apply("k", lines_of(TRUNCATION, event(2), begin=1), 1, None)
        for run in (other, one):
            run.commit()
            assert [target.failure for target in run.targets.values()] == [None]
    table = Table.open(tmp_path / "crm.db" / "people")
    assert table.scan().to_arrow()["id"].to_pylist() == ["2"]
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [2, 1, 0]
