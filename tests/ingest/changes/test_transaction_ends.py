"""Transactions are applied whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli import Catalog
from paimon_cli.api.ingest_target import IngestTarget
from paimon_cli.ingest.changes.event_lines import EventLines
from paimon_cli.ingest.changes.transaction_ends import HeldTransaction, complete_events
from tests.event_streams import debezium, maxwell


def of_maxwell(number: int, xid: int | None, ends: bool = False) -> Any:
    event = maxwell("a", "c", None, {"id": number, "commit": True, "text": '"commit":true'})
    del event["xid"], event["commit"]
    marks = {} if xid is None else {"xid": xid, **({"commit": True} if ends else {"xoffset": 1})}
    return {"database": "shop", "table": "a", "type": "insert", "ts": 1, **marks, **event}


def of_debezium(number: int, transaction: str | None) -> Any:
    event = debezium("a", "c", None, {"id": number, "transaction": "text"})
    return {**event, "transaction": None if transaction is None else {"id": transaction, "total_order": 1}}


def lines_of(*events: Any, begin: int = 0) -> EventLines:
    texts = pa.array([json.dumps(event).encode() for event in events], pa.large_binary())
    return EventLines("s", texts, np.arange(begin, begin + len(events)), begin + len(events))


END = {"status": "END", "id": "1", "event_count": 2}


@pytest.mark.parametrize(
    "name, events, complete",
    [
        ("maxwell", [of_maxwell(1, 7), of_maxwell(2, 7, True), of_maxwell(3, 8)], 2),
        ("maxwell", [of_maxwell(1, 7), of_maxwell(2, 7)], 0),
        ("maxwell", [{"query": 'x {"commit":true}', **of_maxwell(n, 7)} for n in (1, 2)], 0),
        ("maxwell", [{"query": "{", **of_maxwell(1, 7)}, {"query": "{", **of_maxwell(2, 7, True)}, of_maxwell(3, 8)], 2),
        ("maxwell", [of_maxwell(1, None), of_maxwell(2, None)], 2),
        ("maxwell", [of_maxwell(1, 7, True)], 1),
        ("debezium", [of_debezium(1, "1"), of_debezium(2, "2"), of_debezium(3, "2")], 1),
        ("debezium", [of_debezium(1, "1"), of_debezium(2, "1")], 0),
        ("debezium", [of_debezium(1, "1"), of_debezium(2, "1"), END], 3),
        ("debezium", [of_debezium(1, "1"), END, of_debezium(2, "2")], 2),
        ("debezium", [of_debezium(1, None), of_debezium(2, None)], 2),
        ("debezium", [{"schema": {}, "payload": of_debezium(1, "1")}, {"schema": {}, "payload": of_debezium(2, "2")}], 1),
        ("canal", [{"type": "INSERT"}], 1),
        ("debezium", [], 0),
    ],
)
def test_where_transactions_end(name: str, events: list[Any], complete: int) -> None:
    assert complete_events(lines_of(*events), name) == complete


def test_what_is_held_is_released_with_its_end() -> None:
    held = HeldTransaction("debezium", 10_000)
    first = held.released(lines_of(of_debezium(0, "1"), of_debezium(1, "2")))
    assert first is not None and (len(first), first.end) == (1, 1)
    assert held.released(lines_of(of_debezium(2, "2"), begin=2)) is None
    more = held.released(lines_of(of_debezium(3, "2"), of_debezium(4, "3"), begin=3))
    assert more is not None and (more.positions.tolist(), more.end) == ([1, 2, 3], 4)
    rest = held.rest()
    assert rest is not None and rest.positions.tolist() == [4] and held.rest() is None
    small = HeldTransaction("debezium", 100)
    large = small.released(lines_of(of_debezium(0, "1"), of_debezium(1, "1")))
    assert large is not None and len(large) == 2, "a transaction that is larger than the limit is cut"


def test_what_was_released_is_not_released_again() -> None:
    held = HeldTransaction("maxwell", 10_000)
    parts = [of_maxwell(0, 7), of_maxwell(1, 7, True), of_maxwell(2, 8, True), of_maxwell(3, 9)]
    found = [held.released(lines_of(part, begin=number)) for number, part in enumerate(parts)]
    assert [None if lines is None else lines.positions.tolist() for lines in found] == [None, [0, 1], [2], None]


def test_a_transaction_that_comes_in_small_parts_is_cut_at_the_limit() -> None:
    part = lines_of(of_debezium(0, "1"))
    held, released = HeldTransaction("debezium", 3 * part.texts.nbytes), list[int]()
    for number in range(12):
        lines = held.released(lines_of(of_debezium(number, "1"), begin=number))
        released += [] if lines is None else lines.positions.tolist()
        assert held.events is None or held.events.texts.nbytes < held.limit
    assert released == list(range(len(released))) and len(released) >= 9


def test_no_commit_has_a_part_of_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [1, 5, 2, 7, 3, 1, 1, 9, 4] * 4
    ids = [str(number) for number, size in enumerate(sizes) for _ in range(size)]
    file = tmp_path / "e.json"
    file.write_text("".join(json.dumps(of_debezium(n, one)) + "\n" for n, one in enumerate(ids)))
    ends, seen, commit = np.cumsum(sizes).tolist(), list[int](), IngestTarget.commit

    def noting(target: IngestTarget) -> None:
        seen.append(sum(part.num_rows for part in target.held))
        commit(target)

    monkeypatch.setattr(IngestTarget, "commit", noting)
    monkeypatch.setattr("paimon_cli.api.ingest_run.HELD_SHARE", 1 << 40)  # each block is committed
    Catalog(str(tmp_path)).ingest(str(file), format="debezium", into="shop", primary_key="id", memory=16 * 4000)
    assert len(seen) > 4 and set(np.cumsum(seen).tolist()) <= set(ends)
    assert sum(seen) == len(ids)
