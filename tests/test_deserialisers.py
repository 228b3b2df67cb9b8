"""Nothing from outside is deserialised in a way that can run code: each place that may is listed, with the reason."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("paimon_cli", "pyspark_paimon", "pyspark_paimon_cli")
ALLOWED = {
    ("paimon_cli/jobs/spark/session_engine.py", "run_tasks"): "outcomes that `_outcomes_of` of this job has returned as rows",
    ("paimon_cli/jobs/spark/session_engine.py", "run"): "tasks that the driver has sent inside the function itself",
    ("paimon_cli/jobs/spark/chunks.py", "__iter__"): "notes and positions that the tasks of the step before have sent",
    ("paimon_cli/jobs/spark/write.py", "write_on_spark"): "what `writer_task` of this job has returned",
    ("paimon_cli/spark/writing.py", "_write_where_read"): "what `writing_task` of this job has returned",
    ("paimon_cli/spark/merging.py", "run"): "what the tasks of `Staging` have returned in this job",
    ("paimon_cli/spark/worker_rows.py", "read_tasks"): "parts of a scan that the driver has sent inside the function itself",
    ("paimon_cli/spark/ingesting.py", "_follow"): "what `DecodingTask` of this batch has returned",
    ("paimon_cli/spark/ingesting.py", "_checked"): "what `ConvertingTask` of this batch has returned",
    ("paimon_cli/spark/event_tasks.py", "_converted"): "events that a `DecodingTask` of this batch has returned",
    ("paimon_cli/jobs/task_processes.py", "serve"): "the function and its tasks, from the process that has started this one",
    ("paimon_cli/spark/source_writing.py", "commit_written"): "messages of this write's tasks, which Spark hands over",
}
"""Where bytes are unpickled, and why they come from tasks or the driver of this job. Text and files never do."""
UNSAFE = {
    "pickle": {"load", "Unpickler"},
    "marshal": {"load", "loads"},
    "cloudpickle": {"load", "loads"},
    "dill": {"load", "loads"},
    "shelve": {"open"},
    "yaml": {"load", "load_all", "unsafe_load", "unsafe_load_all", "full_load", "full_load_all", "Loader", "UnsafeLoader"},
    "pa": {"py_extension_type", "PyExtensionType", "UnknownExtensionType", "deserialize", "register_extension_type"},
    "pyarrow": {"py_extension_type", "PyExtensionType", "UnknownExtensionType", "deserialize", "register_extension_type"},
    "np": {"load"},
    "numpy": {"load"},
    "pd": {"read_pickle"},
    "pandas": {"read_pickle"},
    "joblib": {"load"},
}
BUILT_IN = {"eval", "exec", "compile", "__import__"}


def calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The function and the name, with the module, of every reference; also of names that are imported from a module."""
    pending: list[tuple[ast.AST, str]] = [(tree, "")]
    while pending:
        node, where = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = node.name
        pending += ((part, where) for part in ast.iter_child_nodes(node))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield where, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BUILT_IN:
            yield where, node.func.id
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((where, f"{node.module}.{name.name}") for name in node.names)
        elif isinstance(node, ast.Import):
            yield from ((where, f"{name.name} as {name.asname}") for name in node.names if name.asname and name.name in UNSAFE)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield where, "allow_pickle"


@functools.cache
def sources() -> list[tuple[str, list[tuple[str, str]]]]:
    """Each module with its `calls`."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return [(path.relative_to(ROOT).as_posix(), [*calls(ast.parse(path.read_text()))]) for path in files]


def unsafe(references: Iterable[tuple[str, str]]) -> list[str]:
    known = {f"{module}.{name}" for module, names in UNSAFE.items() for name in names}
    usual = {"numpy as np", "pandas as pd", "pyarrow as pa"}
    found = [name for _, name in references]
    return [name for name in found if name in known | BUILT_IN | {"allow_pickle"} or (" as " in name and name not in usual)]


def test_bytes_are_unpickled_only_where_they_come_from_tasks_of_the_same_job() -> None:
    found = Counter((name, where) for name, references in sources() for where, call in references if call == "pickle.loads")
    assert found.keys() == ALLOWED.keys()
    twice = {place: count for place, count in found.items() if count > 1}
    assert twice == {("paimon_cli/jobs/spark/chunks.py", "__iter__"): 2, ("paimon_cli/jobs/task_processes.py", "serve"): 2}


def test_no_other_deserialiser_can_run_code() -> None:
    assert {name: found for name, references in sources() if (found := unsafe(references))} == {}


def test_what_the_scan_finds() -> None:
    for line in (
        "pickle.load(f)",
        "yaml.load(f)",
        "eval(x)",
        "np.load(f, allow_pickle=True)",
        "import pickle as p",
        "from yaml import load",
    ):
        assert unsafe(calls(ast.parse(line))), line
    assert ("g", "pickle.loads") in calls(ast.parse("def f():\n  def g(): return pickle.loads(x)"))
