"""`--engine auto` in the commands: each job says how much it reads, and its summary says where it ran and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.jobs.engine import LocalEngine
from tests.cli.calling import Run


class StandIn(LocalEngine):
    """Spark's place, without a JVM."""

    name = "spark"


def test_each_job_reports_how_much_it_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run) -> None:
    """With a threshold of one file, every job with work chooses Spark, and reports why."""
    monkeypatch.setattr("paimon_cli.jobs.engine_choice._spark_engine", lambda request: StandIn(2))
    table, rows = tmp_path / "t", tmp_path / "rows.json"
    rows.write_text('{"id": 1, "v": 1}\n{"id": 2, "v": 2}\n')
    run("create", table, "-C", "id INT NOT NULL", "-C", "v INT", "--primary-key", "id", "--bucket", "1")
    much = ("--spark-threshold", "1 gb,1")
    commands: tuple[tuple[object, ...], ...] = (
        ("write", table, rows),
        ("write", table, rows, "--stage", tmp_path / "staged"),
        ("update", table, "--set", "v = v + 1", "-w", "id = 1"),
        ("delete", table, "-w", "id = 2"),
        ("compact", table, "--dry-run"),
        ("compact", table),
        ("verify", table, "--level", "full"),
        ("read", table, "--output-path", tmp_path / "out"),
        ("rescale", table, "--buckets", "2", "-y"),
    )
    for command in commands:
        answer = run(*command, *much).out
        if "--stage" not in command:
            assert " spark (auto: " in answer, (command, answer)
            assert "file" in answer.split("(auto: ")[1], (command, answer)
    assert "on local (auto: " in run("write", table, rows, "-v").out
    assert run("write", table, rows).out.endswith(" s on local\n"), "only Spark is explained without being asked"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paimon.yaml").write_text("engine.spark-threshold: 1 gb, 1\n")
    assert "on spark (auto: 1 file >= 1)" in run("write", table, rows).out
    assert "on local (auto: " in run("-v", "write", table, rows, "--spark-threshold", "1 gb").out
    (tmp_path / "paimon.yaml").write_text("profiles:\n  small:\n    engine.spark-threshold: 1 gb, 1\n")
    assert "on spark (auto: 1 file >= 1)" in run("write", table, rows, "--profile", "small").out
    assert "on local (auto: " in run("write", table, rows, "-v").out
