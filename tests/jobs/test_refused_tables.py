"""Tables whose writers or compactors must do more than this version does are left to engines that can."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.table.lsm_report import lsm_rows
from paimon_cli.table.option_changes import check_options_of_call
from paimon_cli.table.row_scan import ReadRequest, plan_rows
from paimon_cli.table.table import Table
from paimon_cli.table.table_location import locate_table
from tests.goldens import golden_table
from tests.tables import compact, data_files, make_table, write

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


@pytest.mark.parametrize(
    "key", ["scan.bucket", "scan.fallback-branch", "scan.file-creation-time-millis", "incremental-to-auto-tag"]
)
def test_no_rows_where_an_option_asks_for_others(key: str, tmp_path: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, ["k"])
    asked = Table.open(locate_table(str(tmp_path / "t")), {key: "1"})
    with pytest.raises(NotSupported, match=key):
        plan_rows(asked, ReadRequest())
    assert plan_rows(Table.open(locate_table(str(tmp_path / "t")), {key: ""}), ReadRequest()).count() == 0


@pytest.mark.parametrize("key", ["metadata.iceberg.storage", "tag.automatic-creation", "commit.callbacks"])
def test_no_commit_that_others_would_miss(key: str, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={key: "process-time"})
    for work in (lambda: write(context, [{"k": 1, "v": "a"}]), lambda: compact(context), lambda: Committer(context)):
        with pytest.raises(NotSupported, match=key):
            work()
    assert context.snapshots.latest() is None and data_files(context) == set()


def test_deletion_vectors_are_not_switched_off_for_one_write(tmp_path: Path) -> None:
    table = golden_table("java-1.4", "deletion_vectors", tmp_path)
    schema = TableContext.open(str(table)).schema
    with pytest.raises(UsageError, match=r"deletion-vectors\.enabled"):
        check_options_of_call(schema.options, {"deletion-vectors.enabled": "false"}, True)
