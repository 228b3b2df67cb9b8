"""Looking at snapshots is quick because it loads no engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.goldens import golden_table

HEAVY = ("pyarrow", "pyspark", "pandas", "numpy", "sqlglot", "fsspec", "yaml")
PROGRAM = """
import sys
from paimon_cli.cli.app import app
for arguments in {commands!r}:
    try:
        app(arguments)
    except SystemExit as end:
        assert not end.code, end.code
loaded = [name for name in {heavy!r} if name in sys.modules]
sys.exit(f"loaded {{loaded}}" if loaded else 0)
"""


METADATA_COMMANDS = (
    "snapshots ls",
    "snapshots ls -o json",
    "snapshots show",
    "manifests ls",
    "schemas ls",
    "schemas show",
    "options ls",
    "tags ls",
)


def loaded_by(commands: list[list[str]], heavy: tuple[str, ...] = HEAVY) -> subprocess.CompletedProcess[str]:
    """One process after all commands: what any of them loads is there at the end."""
    program = PROGRAM.format(commands=commands, heavy=heavy)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_metadata_commands_load_no_engine(tmp_path: Path) -> None:
    table = golden_table("java-0.9", "tags_and_expire", tmp_path)
    done = loaded_by([[*words[:2], str(table), *words[2:]] for words in map(str.split, METADATA_COMMANDS)])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["read", "write", "compact", "files ls", "lsm show", "verify --level full"])
@pytest.mark.in_part(3)
def test_commands_on_rows_do_without_pandas(tmp_path: Path, command: str) -> None:
    """Arrow imports it on sight, which takes longer than all that these commands do here."""
    table = golden_table("java-0.9", "tags_and_expire", tmp_path)
    rows = tmp_path / "none.json"
    rows.write_text("")
    arguments = [*command.split(), str(table), *([str(rows), "--engine", "local"] if command == "write" else ())]
    arguments += ["--engine", "local"] if command == "compact" else ()
    program = "import sys; from paimon_cli.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "pyarrow" in done.stderr
    assert not re.search(r"\| +(pandas\.core|dateutil\._)", done.stderr)


def test_reads_without_sql_load_no_sql_parser(tmp_path: Path) -> None:
    table = golden_table("java-0.9", "tags_and_expire", tmp_path)
    options = ("", "-s k", "--count", "-l 1", "--explain")
    done = loaded_by([["read", str(table), *words.split()] for words in options], ("sqlglot",))
    assert done.returncode == 0, done.stderr


def test_a_compaction_loads_no_other_job(tmp_path: Path) -> None:
    table = golden_table("java-0.9", "tags_and_expire", tmp_path)
    others = ("service.service_turn", "rescale_job", "goal_merges", "sort_job", "postponed_rows", "reclaim_job")
    unwanted = ("paimon_cli.inspect.findings.runner", *(f"paimon_cli.jobs.{name}" for name in others))
    unwanted += ("paimon_cli.write.write_plan", "paimon_cli.sql.conditions", "paimon_cli.read.scan_plan")
    done = loaded_by([["compact", str(table), "--strategy", "full", "--engine", "local"]], unwanted)
    assert done.returncode == 0, done.stderr


def test_others_get_dateutil() -> None:
    program = """
from paimon_cli.jobs.process import keep_pandas_out
keep_pandas_out()
import pyarrow as pa
assert pa.scalar("x").as_py() == "x"
try:
    from dateutil.relativedelta import relativedelta
except ModuleNotFoundError as problem:
    assert "kept out" not in str(problem)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("chosen", "used"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_arrow_uses_the_memory_of_the_system(chosen: str | None, used: str) -> None:
    program = """
import atexit, sys
from paimon_cli.cli.app import main
def tell():
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name, flush=True)
atexit.register(tell)
sys.argv = ["paimon-cli", "--version"]
main()
"""
    name = "ARROW_DEFAULT_MEMORY_POOL"
    environment = {key: value for key, value in os.environ.items() if key != name} | ({} if chosen is None else {name: chosen})
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == used, done.stderr


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="on one core OpenBLAS starts no threads anyway")
def test_numpy_starts_no_threads() -> None:
    program = """
import atexit, os, sys
from paimon_cli.cli.app import main
def tell():
    before = len(os.listdir("/proc/self/task"))
    import numpy
    print(len(os.listdir("/proc/self/task")) - before, flush=True)
atexit.register(tell)
sys.argv = ["paimon-cli", "--version"]
main()
"""
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "0", done.stderr


def test_spark_gets_pandas_back() -> None:
    program = """
from paimon_cli.jobs.process import keep_pandas_out
keep_pandas_out()
from paimon_cli.jobs.engine_choice import EngineRequest, open_engine
try:
    import pandas
except ImportError:
    open_engine(EngineRequest("spark"))
    import pandas
    print(pandas.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "pandas\n", done.stderr


def test_help_and_version_load_no_engine() -> None:
    done = loaded_by([["--version"], ["--help"], ["write", "--help"]])
    assert done.returncode == 0, done.stderr


def test_the_cases_of_the_lab_are_listed_without_an_engine() -> None:
    """Shells ask for them at each TAB."""
    done = loaded_by([["lab", "ls"]])
    assert done.returncode == 0 and "topology-1" in done.stdout, done.stderr


def test_a_call_loads_its_own_command_only() -> None:
    done = loaded_by([["version"]], ("paimon_cli.cli.write_command", "paimon_cli.cli.lab_commands"))
    assert done.returncode == 0, done.stderr
