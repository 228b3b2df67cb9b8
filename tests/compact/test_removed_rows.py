"""What docs/merge-engines.md says of deletions that remove rows: when a key starts again, and when older values come back.

Java 1.4.2 gives the same rows, before and after its own compactions of the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table

KINDS: dict[str, tuple[dict[str, str], int]] = {
    "partial-update": ({"partial-update.remove-record-on-delete": "true"}, 5),
    "aggregation": ({"aggregation.remove-record-on-delete": "true", "fields.v.aggregate-function": "sum"}, 6),
}
OLD, NEW = {"k": 1, "v": 1, "s": "old"}, {"k": 1, "v": 5, "s": None}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(tmp_path: Path, kind: str) -> Table:
    """A key whose row was compacted, beside so many others that a minor compaction leaves it where it is."""
    options = {"merge-engine": kind, "write-only": "true", "num-sorted-run.compaction-trigger": "2", **KINDS[kind][0]}
    options["compaction.max-size-amplification-percent"] = "1000000"
    columns = ["k INT NOT NULL", "v INT", "s STRING"]
    table = Table.create(tmp_path / "t", columns=columns, primary_key="k", bucket=1, options=options)
    table.write([OLD, *({**OLD, "k": number} for number in range(2, 2000))])
    table.compact()
    return table


def of_key(table: Table) -> Any:
    (row,) = table.scan(where="k = 1").to_arrow().to_pylist()
    return row


def delete(table: Table) -> None:
    table.write([{"k": 1}], op="delete")


def test_a_key_starts_again_after_a_full_compaction(table: Table) -> None:
    delete(table)
    table.compact(strategy="full")
    table.write([NEW])
    assert of_key(table) == NEW
    table.write([{"k": 3, "v": 1, "s": "x"}])
    table.compact(strategy="minor")
    assert of_key(table) == NEW
    table.compact(strategy="full")
    assert of_key(table) == NEW


def test_a_minor_compaction_of_the_newer_runs_forgets_the_deletion(table: Table, kind: str) -> None:
    delete(table)
    table.write([NEW])
    assert of_key(table) == NEW
    table.compact(strategy="minor")
    assert len(table.files()) == 2 and of_key(table) == {"k": 1, "v": KINDS[kind][1], "s": "old"}


def test_so_does_one_write_of_the_deletion_and_a_later_row(table: Table, kind: str) -> None:
    rows = [{"k": 1, "v": None, "s": None, "op": "-D"}, {**NEW, "op": "+I"}]
    table.write(rows, op_column="op")
    assert of_key(table) == {"k": 1, "v": KINDS[kind][1], "s": "old"}


def test_a_set_is_collected_once_there_are_two_versions(tmp_path: Path) -> None:
    options = {"merge-engine": "aggregation", "fields.a.aggregate-function": "collect", "fields.a.distinct": "true"}
    columns = ["k INT NOT NULL", "a ARRAY<STRING>"]
    table = Table.create(tmp_path / "t", columns=columns, primary_key="k", bucket=1, options=options)
    table.write([{"k": 1, "a": ["A", "B", "A", "A"]}])
    table.compact(strategy="full")
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "a": ["A", "B", "A", "A"]}]
    table.write([{"k": 1, "a": ["A"]}])
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "a": ["A", "B"]}]
