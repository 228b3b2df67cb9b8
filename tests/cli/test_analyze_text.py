"""The text of `analyze`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.calling import Run


def test_lengths_are_told_from_bounds(tmp_path: Path, run: Run) -> None:
    run("create", tmp_path / "t", "-C", "s STRING")
    run("write", tmp_path / "t", "-", "--format", "json", stdin='{"s": ""}\n{"s": "123456"}\n')
    assert "s: 0 nulls, 2 distinct, 3 bytes on average, 6 at most" in run("analyze", tmp_path / "t").out
