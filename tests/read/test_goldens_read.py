"""Reading what Java, pypaimon and paimon-rust wrote: the rows of every state that this version supports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.history.table_context import TableContext
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import count_split, read_split
from paimon_cli.read.time_travel import travel
from tests.goldens import GOLDENS, Golden, expected_rows, golden_table

READABLE = [(golden, moment) for golden in GOLDENS for moment in golden.moments if moment != "changelog"]


def _choice(moment: str) -> dict[str, Any]:
    kind, _, which = moment.partition("-")
    return {} if kind == "now" else {"snapshot_id": int(which)} if kind == "snapshot" else {"tag": which}


def _comparable(rows: list[dict[str, Any]], unordered: tuple[str, ...]) -> list[str]:
    for row in rows:
        for name in unordered:
            if row[name] is not None:
                row[name] = sorted(row[name], key=lambda item: json.dumps(item, ensure_ascii=False))
    return sorted(json.dumps(row, ensure_ascii=False) for row in rows)


def _rows(latest: TableContext, choice: dict[str, Any], counted: int | None = None) -> list[dict[str, Any]]:
    context, snapshot = travel(latest, **choice)
    plan = plan_scan(context, snapshot)
    names = context.schema.field_names
    batches = [batch for split in plan.splits for batch in read_split(context, split, names)]
    assert counted is None or sum(count_split(context, split) for split in plan.splits) == counted
    return [row for batch in batches for row in canonical_rows(batch, context.schema.fields)]


@pytest.mark.in_part(8)
@pytest.mark.parametrize(("golden", "moment"), READABLE, ids=str)
def test_rows_of_golden_tables(golden: Golden, moment: str, tmp_path: Path) -> None:
    latest = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    expected = expected_rows(golden, moment)
    rows = _rows(latest, _choice(moment), len(expected))
    assert _comparable(rows, golden.unordered_columns) == _comparable(expected, golden.unordered_columns)


WITH_VECTORS = [golden for golden in GOLDENS if golden.options.get("deletion-vectors.enabled") == "true"]


@pytest.mark.parametrize("golden", [g for g in WITH_VECTORS if g.schema["primaryKeys"]], ids=str)
def test_merge_on_read_shows_what_the_next_compaction_makes_visible(golden: Golden, tmp_path: Path) -> None:
    """Rows of level 0 hide from plain reads of such tables; merged on read they are there one snapshot earlier."""
    table = str(golden_table(golden.writer, golden.name, tmp_path))
    plain, merging = TableContext.open(table), TableContext.open(table, {"deletion-vectors.merge-on-read": "true"})

    def shown(context: TableContext, snapshot_id: int) -> list[str]:
        return _comparable(_rows(context, {"snapshot_id": snapshot_id}), golden.unordered_columns)

    appends = {snapshot.id for snapshot in plain.snapshots.newest_first() if snapshot.commit_kind == "APPEND"}
    compacted = [s.id for s in plain.snapshots.newest_first() if s.commit_kind == "COMPACT" and s.id - 1 in appends]
    for snapshot_id in compacted:
        assert shown(merging, snapshot_id - 1) == shown(merging, snapshot_id) == shown(plain, snapshot_id), snapshot_id
    assert any(shown(plain, snapshot_id - 1) != shown(plain, snapshot_id) for snapshot_id in compacted)
