"""Reads at the snapshot that a table's options name (FORMAT.md, section 11.4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.errors import NotFound, NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read.time_travel import travel
from tests.tables import compact, make_table, write


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    """Appended, appended, compacted, appended; watermarks 10, none, 20, 30; snapshot 1 has expired, but a tag keeps it."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ("k",))
    for key in (1, 2):
        write(context, [{"k": key}])
    compact(context)
    write(context, [{"k": 3}])
    for number, watermark in ((1, 10), (3, 20), (4, 30)):
        path = Path(context.layout.snapshot(number))
        path.write_text(replace(Snapshot.from_json(path.read_text()), watermark=watermark).to_json())
    create_tag(context, "first", 1)
    Path(context.layout.tag("2")).write_bytes(Path(context.layout.snapshot(3)).read_bytes())  # of another writer
    Path(context.layout.snapshot(1)).unlink()
    return context


def reached(table: TableContext, **options: str) -> int:
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    _, snapshot = travel(table.with_options(named))
    assert snapshot is not None
    return snapshot.id


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 4),
        ({"scan__snapshot_id": "2"}, 2),
        ({"scan__snapshot_id": "1"}, 1),
        ({"scan__tag_name": "first"}, 1),
        ({"scan__version": "first"}, 1),
        ({"scan__version": "2"}, 3),
        ({"scan__version": "4"}, 4),
        ({"scan__version": "watermark-15"}, 3),
        ({"scan__watermark": "20"}, 3),
        ({"scan__watermark": "21"}, 4),
        ({"scan__timestamp": "2999-01-01"}, 4),
        ({"scan__timestamp_millis": "32000000000000"}, 4),
        ({"scan__mode": "compacted-full"}, 3),
        ({"scan__mode": "compacted-full", "full_compaction__delta_commits": "5"}, 3),
        ({"scan__mode": "from-snapshot", "scan__snapshot_id": "2"}, 2),
        ({"scan__mode": "latest"}, 4),
    ],
)
def test_positions(table: TableContext, options: dict[str, str], expected: int) -> None:
    assert reached(table, **options) == expected


def test_a_stream_compacts_fully_at_every_nth_commit(table: TableContext) -> None:
    """Java isFullCompactedIdentifier: batch jobs compact fully whatever the number of commits is."""
    path = Path(table.layout.snapshot(3))
    compacted = Snapshot.from_json(path.read_text())
    for identifier, expected in ((10, 3), (11, 4), (-5, 3), (2**63 - 1, 3)):
        path.write_text(replace(compacted, commit_identifier=identifier).to_json())
        again = TableContext.open(table.url)
        assert reached(again, scan__mode="compacted-full", full_compaction__delta_commits="5") == expected


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"scan__snapshot_id": "9"}, NotFound),
        ({"scan__snapshot_id": "x"}, UsageError),
        ({"scan__tag_name": "second"}, NotFound),
        ({"scan__version": "second"}, NotFound),
        ({"scan__watermark": "31"}, NotFound),
        ({"scan__timestamp": "1999-01-01"}, NotFound),
        ({"scan__snapshot_id": "2", "scan__tag_name": "first"}, UsageError),
        ({"scan__mode": "from-timestamp"}, UsageError),
        ({"scan__mode": "latest", "scan__snapshot_id": "2"}, UsageError),
        ({"scan__mode": "sometimes"}, UsageError),
        ({"scan__mode": "from-file-creation-time"}, NotSupported),
        ({"incremental_between": "1,2"}, NotSupported),
    ],
)
def test_what_cannot_be_read(table: TableContext, options: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        reached(table, **options)


def test_an_expired_snapshot_is_read_through_its_tag(table: TableContext) -> None:
    assert travel(table, snapshot_id=1)[1] == table.tags.get("first").snapshot
