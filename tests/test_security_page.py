"""SECURITY.md: every promise names a test that exists, and every figure is that of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text()
PROMISED = PAGE[PAGE.index("## What is promised") : PAGE.index("## What is not promised")]
NAMED = re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)


def test_each_promise_names_a_test() -> None:
    tables = re.findall(r"\| promise \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", PROMISED)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) >= 20
    assert [row for row in rows if not re.search(r"`tests/[^`]+`", row.rsplit("|", 2)[1])] == []


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_the_named_tests_exist(name: str) -> None:
    path, _, function = name.partition("::")
    names = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.FunctionDef)}
    assert any(found.startswith("test") for found in names)
    assert not function or function in names
