"""The zip that executors import the package from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paimon_cli.jobs.spark.session import write_package_archive


def test_the_archive_is_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = write_package_archive(tmp_path / "a"), write_package_archive(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_a_python_that_has_only_the_archive_runs_the_engine_from_it(tmp_path: Path) -> None:
    archive = write_package_archive(tmp_path)
    program = (
        "import paimon_cli, paimon_cli.compact.bucket_compactor, paimon_cli.write.table_writer\n"
        "from paimon_cli.options.option_catalog import OPTIONS\n"
        "print(paimon_cli.__file__, len(OPTIONS) > 100)"
    )
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [f"{archive}/paimon_cli/__init__.py", "True"]
