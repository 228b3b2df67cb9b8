"""Partitions of FLOAT and DOUBLE that others have written: their directories are spelled in different ways."""

from __future__ import annotations

import shutil
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


@pytest.mark.parametrize("keys", [["p"], ["d", "p"]])
def test_a_directory_that_is_gone_is_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: list[str]) -> None:
    for check in ("bucket.data_file_writer.check_partition_types", "write.routers._check_partitions"):
        monkeypatch.setattr(f"paimon_cli.{check}", lambda given: None)
    table = make_table(tmp_path / "t", {"k": "INT", "d": "INT", "p": "DOUBLE"}, [], keys, bucket=-1)
    write(table, [{"k": k, "d": 7, "p": p} for k, p in enumerate([1.5, float("inf"), 0.0, -0.0])])
    root = tmp_path / "t" if keys == ["p"] else tmp_path / "t/d=7"
    for gone in ("Infinity", "0.0"):
        shutil.rmtree(root / f"p={gone}")
    codes = {problem.code for problem in Table.open(table.url).verify("full").violations}
    assert "PV012" in codes
    Table.open(table.url).plan_repair()
    (root / "p=1.5").rename(root / "p=1.50")
    with pytest.raises(NotSupported, match=r"partition (d=7/)?p=1.5/.*there is (d=7/)?p=1.50"):
        Table.open(table.url).scan(where="p = 1.5").to_arrow()
