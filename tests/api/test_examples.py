"""The examples in the docstrings of the library are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table

MODULES = ("catalog", "definition", "scan", "staging", "table", "versions", "writing")


def example_table(folder: Path) -> Table:
    """Three rows in one snapshot."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("price", pa.float64())])
    table = Table.create(str(folder / "example"), schema=columns, primary_key="id", bucket=1)
    table.write(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "price": [10.0, 20.0, 30.0]}))
    return table


def examples(module: ModuleType) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder(exclude_empty=True).find(module) if test.examples]


CASES = [test for name in MODULES for test in examples(import_module(f"paimon_cli.api.{name}"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_example(case: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {
        "Table": Table,
        "example_table": lambda: example_table(tmp_path),
        "more_rows": lambda: pa.table({"id": [4], "name": ["d"], "price": [40.0]}),
    }
    case.globs.update(known)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(case, out=report.append)
    assert not result.failed, "".join(report)


def test_each_public_class_has_an_example() -> None:
    with_example = {case.name.rpartition(".")[2] for case in CASES}
    assert {"Catalog", "Table", "Scan", "Tags", "Branches", "Consumers", "Alter", "Stage"} <= with_example
