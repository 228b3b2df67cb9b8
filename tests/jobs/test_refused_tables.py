"""Tables whose writers or compactors must do more than this version does are left to engines that can."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.errors import NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.table.lsm_report import lsm_rows
from tests.goldens import golden_table
from tests.tables import compact, make_table, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_no_rows_without_their_changelog(producer: str, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog-producer": producer})
    with pytest.raises(NotSupported, match=f"changelog-producer={producer}"):
        write(context, [{"k": 1, "v": "a"}])
    assert context.snapshots.latest() is None


def test_postponed_rows_form_no_tree(tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table("java-1.4", "postpone", tmp_path)))
    for request in ({"strategy": "full"}, {"strategy": "minor"}):
        with pytest.raises(NotSupported, match="bucket = -2"):
            compact(context, **request)
    rows = [row for row in lsm_rows(context, context.snapshots.latest()) if row.bucket == -2]
    assert rows and all(row.runs == () and row.output_level is None for row in rows)
    assert {row.read_amplification for row in rows} == {0}


def test_tables_with_null_keys_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match=r"primary-key\.nullable"):
        make_table(tmp_path / "t", {"k": "INT", "v": "STRING"}, ["k"], options={"primary-key.nullable": "true"})
