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


@pytest.mark.parametrize(("golden", "moment"), READABLE, ids=str)
def test_rows_of_golden_tables(golden: Golden, moment: str, tmp_path: Path) -> None:
    latest = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    context, snapshot = travel(latest, **_choice(moment))
    plan = plan_scan(context, snapshot)
    names = context.schema.field_names
    batches = [batch for split in plan.splits for batch in read_split(context, split, names)]
    rows = [row for batch in batches for row in canonical_rows(batch, context.schema.fields)]
    expected = expected_rows(golden, moment)
    assert _comparable(rows, golden.unordered_columns) == _comparable(expected, golden.unordered_columns)
    assert sum(count_split(context, split) for split in plan.splits) == len(expected)
