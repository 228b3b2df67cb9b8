"""Partitions of FLOAT and DOUBLE that others have written: their directories are spelled in different ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.errors import NotSupported
from paimon_cli.history.table_context import TableContext
from tests.tables import make_table, rows, write


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_other_spellings_are_not_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for check in ("bucket.data_file_writer.check_partition_types", "write.routers._check_partitions"):
        monkeypatch.setattr(f"paimon_cli.{check}", lambda given: None)
    table = make_table(tmp_path / "t", {"k": "INT", "p": kind}, [], ["p"], bucket=-1)
    write(table, [{"k": 1, "p": 1.5}, {"k": 2, "p": "Infinity"}])
    assert sorted(row["k"] for row in rows(TableContext.open(table.url))) == [1, 2], "as Java spells them"
    (tmp_path / "t/p=Infinity").rename(tmp_path / "t/p=inf")
    found = Table.open(table.url)
    assert found.scan(where="p = 1.5").to_arrow()["k"].to_pylist() == [1]
    for call in (found.scan().to_arrow, lambda: found.verify("full"), found.plan_repair):
        with pytest.raises(NotSupported, match=r"cannot find the directory of partition p=Infinity/"):
            call()
