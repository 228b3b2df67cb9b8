"""A small run of what `scripts.nightly.increments` does at length; and changelogs of other writers lead to what a table holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import COMPACT
from tests.goldens import GOLDENS, Golden, golden_table
from tests.properties.increments import play
from tests.read.test_increments import changes
from tests.tables import rows

PRODUCED = [golden for golden in GOLDENS if golden.options.get("changelog-producer") in ("lookup", "full-compaction")]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("seed", range(4))
def test_increments_are_what_commits_brought(tmp_path: Path, seed: int) -> None:
    assert play(tmp_path, f"small-{seed}", 16) >= 20


@pytest.mark.parametrize("golden", PRODUCED, ids=str)
def test_changelogs_lead_to_what_the_table_holds(golden: Golden, tmp_path: Path) -> None:
    """As of the newest compaction, which writes them; whether they are read at once or in two parts."""
    table = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    ids = table.snapshots.ids()
    key = table.schema.primary_keys
    whole = changes(table, str(ids[0] - 1), mode="changelog")
    for number in ids[:-1]:
        parts = changes(table, str(ids[0] - 1), str(number), "changelog") + changes(table, str(number), mode="changelog")
        assert parts == whole
    held: dict[tuple[object, ...], dict[str, object]] = {}
    for kind, row in whole:
        held.pop(tuple(map(str, (row[name] for name in key))), None)
        if kind in ("+I", "+U"):
            held[tuple(map(str, (row[name] for name in key)))] = row
    newest = next(snapshot.id for snapshot in table.snapshots.newest_first() if snapshot.commit_kind == COMPACT)
    assert sorted(map(str, held.values())) == sorted(map(str, rows(table, snapshot_id=newest)))
