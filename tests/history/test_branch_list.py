"""Branches: Java's golden branch reads as it was made, and one written by us goes its own way."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.errors import NotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.table.table import Table
from paimon_cli.table.table_location import locate_table
from tests.goldens import expected_rows, golden, golden_table
from tests.tables import compact, rows, write


def test_a_branch_of_java_reads_as_its_tag_and_is_written(tmp_path: Path) -> None:
    url = str(golden_table("java-0.9", "branch", tmp_path))
    main, branch = TableContext.open(url), TableContext.open(url, branch="b1")
    before = rows(main)
    expected = expected_rows(golden("java-0.9", "branch"), "tag-t1")
    by_key = sorted(rows(branch), key=str)
    assert by_key == sorted(expected, key=str)
    write(branch, [before[0]])
    compact(branch)
    assert rows(main) == before and rows(branch, snapshot_id=1) == rows(branch.at_branch("main"), snapshot_id=1)
    assert branch.snapshots.ids() == [1, 2, 3] and main.snapshots.ids() == [1, 2]


def test_a_branch_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    url = str(golden_table("java-0.9", "branch", tmp_path))
    with pytest.raises(NotFound, match="no branch 'b2'") as caught:
        Table.open(locate_table(f"{url}$branch_b2"))
    assert "main, b1" in caught.value.why
    with pytest.raises(NotFound, match="no table"):
        Table.open(locate_table(f"{tmp_path}/nothing$branch_b2"))
