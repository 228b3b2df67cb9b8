"""One name for one thing: a public class or constant of the package means the same wherever it is read."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "paimon_cli"
KEPT = {
    "FUNCTIONS",  # the aggregate functions of each module of `lsm/aggregators`, which its catalog puts together
}


def places_of_classes() -> dict[str, list[str]]:
    """Public classes of modules -> the modules that define one of the name."""
    found = defaultdict(list)
    for module, nodes in modules(PACKAGE):
        for node in nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return found


def values_of_constants() -> dict[str, dict[str, list[str]]]:
    """Public constants of modules -> the values, as they are written -> the modules that give them."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for module, nodes in modules(PACKAGE):
        for node in nodes:
            for name, value in assigned(node):
                if name.isupper() and not name.startswith("_") and not value.startswith("TypeVar("):
                    found[name][value].append(module)
    return found


@functools.cache
def modules(package: Path) -> list[tuple[str, list[ast.stmt]]]:
    """Each module with the classes and assignments that stand in it alone."""
    paths = sorted(package.rglob("*.py"))
    return [(path.relative_to(package).as_posix(), statements(path.read_text(encoding="utf-8"))) for path in paths]


def statements(source: str) -> list[ast.stmt]:
    """Without what is inside of classes."""
    kept = (ast.ClassDef, ast.Assign, ast.AnnAssign)
    found: list[ast.stmt] = [node for node in ast.parse(source).body if isinstance(node, kept)]
    for node in found:
        if isinstance(node, ast.ClassDef):
            node.body = []
    return found


def assigned(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Each name that the statement assigns, and its value as it is written."""
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets, value = [node.target], node.value
    else:
        return
    for target in targets:
        match target, value:
            case ast.Name(id=name), _:
                yield name, ast.unparse(value)
            case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
                yield from ((ast.unparse(name), ast.unparse(each)) for name, each in zip(names, values, strict=True))
            case ast.Tuple(elts=names), _:
                yield from ((ast.unparse(name), f"{ast.unparse(value)}[{place}]") for place, name in enumerate(names))


def test_no_two_classes_share_a_name() -> None:
    assert {name: places for name, places in places_of_classes().items() if len(places) > 1} == {}


def test_no_constant_has_two_values() -> None:
    """A kind of something is a member of its class (`RowKind.DELETE`); what only one module reads begins with an underscore."""
    several = {name: dict(values) for name, values in values_of_constants().items() if len(values) > 1}
    assert {name: values for name, values in several.items() if name not in KEPT} == {}
    assert several.keys() >= KEPT


def test_other_values_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("ADD, DELETE = 0, 1\n_OWN = 1\nLEVEL: int = 3\nFIRST, SECOND = PAIR\nT = TypeVar('T')\n")
    (tmp_path / "two.py").write_text("DELETE = 3\n_OWN = 2\nLEVEL = 3\nSECOND = 1\n\nclass Call: ...\n")
    (tmp_path / "three.py").write_text("class Call: ...\nclass _Own: ...\nT = TypeVar('T', bound=int)\n")
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    assert {name for name, values in values_of_constants().items() if len(values) > 1} == {"DELETE", "SECOND"}
    assert places_of_classes() == {"Call": ["three.py", "two.py"]}
