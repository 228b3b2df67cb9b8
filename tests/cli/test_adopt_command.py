"""`adopt` as people see it: what it says of keys, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.calling import Run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"id": [1, 2, 2]}), tmp_path / "files/a.parquet")
    return tmp_path / "files"


def test_duplicates_are_said(run: Run, tmp_path: Path, source: Path) -> None:
    asked = ("adopt", source, "--as", tmp_path / "t", "--primary-key", "id", "--option", "bucket=1")
    planned = run(*asked, "-n").out
    assert "rewrite 1 file" in planned and f"into {tmp_path}/t with the primary key id; nothing was changed" in planned
    assert "adopted 3 rows in 1 file" in (done := run(*asked, "--engine", "local").out)
    assert "1 row merged into others with the same key: snapshot 1, by rewrite" in done


def test_unique_keys_are_said(run: Run, tmp_path: Path, source: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), source / "a.parquet")
    shown = run("adopt", source, "--as", tmp_path / "t", "--primary-key", "id", "--option", "bucket=1", "-o", "json").json["item"]
    assert (shown["rows"], shown["duplicates"], shown["placement"]) == (2, 0, "rewrite")


def test_files_as_they_are_need_no_spark(run: Run, tmp_path: Path, source: Path) -> None:
    assert "there is no work for Spark" in run("adopt", source, "--as", tmp_path / "t", "--engine", "spark", code=2).err
    assert not (tmp_path / "t").exists()
