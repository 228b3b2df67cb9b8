"""Only its own room knows the name of a policy: others ask for its properties, so that a new one is added in one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_cli.metadata import bucket_modes
from paimon_cli.options.changelog_producers import CHANGELOG_PRODUCERS
from paimon_cli.options.merge_engines import MERGE_ENGINES

PACKAGE = Path(__file__).parent.parent / "paimon_cli"
ENGINES = {*MERGE_ENGINES, *(f"merge-engine={name}" for name in MERGE_ENGINES)}
PRODUCERS = {"full-compaction", *(f"changelog-producer={name}" for name in CHANGELOG_PRODUCERS)}
ENGINE_CLASSES = {"Deduplicate", "FirstRow", "PartialUpdate", "Aggregation"}


def places(rooms: tuple[str, ...], texts: set[str], names: set[str]) -> list[str]:
    """Where the code outside of these rooms (or modules) spells one of the texts, or a class or member of that name."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        if not module.startswith(rooms):
            code = path.read_text(encoding="utf-8")
            if any(word in code for word in (*texts, *names)):
                found += [f"{module}:{line}" for line in sorted(set(_lines(ast.parse(code), texts, names)))]
    return found


def _lines(tree: ast.AST, texts: set[str], names: set[str]) -> Iterator[int]:
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text), lineno=line):
                if id(node) not in docs and (text in texts or any("=" in name and name in text for name in texts)):
                    yield line
            case ast.Name(id=name, lineno=line) | ast.Attribute(attr=name, lineno=line):
                if name in names:
                    yield line
            case ast.ImportFrom(lineno=line, names=imported):
                if any(alias.name in names for alias in imported):
                    yield line


def test_places_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = '"""aggregation"""\nx = "aggregation"\nif y == f"merge-engine=aggregation {x}":\n    isinstance(x, Aggregation)\n'
    (tmp_path / "some.py").write_text(code)
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    assert places((), ENGINES, ENGINE_CLASSES) == ["some.py:2", "some.py:3", "some.py:4"]


def test_merge_engines_are_named_in_their_rules_alone() -> None:
    assert places(("lsm/", "options/merge_engines.py"), ENGINES, ENGINE_CLASSES) == []
    assert len(places(("lsm/",), ENGINES, ENGINE_CLASSES)) == len(MERGE_ENGINES)


def test_changelog_producers_are_named_in_their_list_and_in_two_hints() -> None:
    assert len(places(("options/changelog_producers.py",), PRODUCERS, set())) <= 2


def test_bucket_modes_are_named_in_their_module_alone() -> None:
    modes = {name for name, value in vars(bucket_modes).items() if isinstance(value, bucket_modes.BucketMode)}
    importing = re.compile(rf"bucket_modes import .*\b({'|'.join(modes)})\b|\bbucket_modes\.({'|'.join(modes)})\b")
    found = [path for path in PACKAGE.rglob("*.py") if importing.search(path.read_text(encoding="utf-8"))]
    assert len(modes) == 5 and found == []
