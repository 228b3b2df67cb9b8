"""One module writes snapshot files, so that each way to publish one has the same checks and the same unclear answers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import paimon_cli
from paimon_cli.commit.snapshot_publish import publish_again
from paimon_cli.errors import CommitUnknown, StorageUnavailable
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import PutOutcome, Verified, put_and_verify
from tests.commit.commit_tables import make_table

PACKAGE = Path(paimon_cli.__file__).parent
WRITES = {"put_if_absent", "overwrite", "write_new", "publish_snapshot", "put_and_verify", "_put"}


def writes_of_snapshots(source: str) -> Iterator[int]:
    """The lines that write a file whose path is a call of `snapshot(...)`, at once or by way of a variable."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.Lambda)):
            nodes = [*ast.walk(function)]
            paths = {name for node in nodes if isinstance(node, ast.Assign) for name in names_of_snapshots(node)}
            for node in nodes:
                if isinstance(node, ast.Call) and name_of(node.func) in WRITES:
                    yield from (node.lineno for a in node.args if names_a_snapshot(a) or name_of(a) in paths)


def names_of_snapshots(node: ast.Assign) -> Iterator[str]:
    """The variables that get the path of a snapshot."""
    target, value = node.targets[0], node.value
    several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    pairs = zip(target.elts, value.elts, strict=False) if several else [(target, value)]  # type: ignore[attr-defined]
    yield from (name_of(name) for name, path in pairs if names_a_snapshot(path))


def names_a_snapshot(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "snapshot"


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_exactly_one_module_writes_snapshots() -> None:
    texts = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    found = {name for name, text in texts.items() if ".snapshot(" in text and [*writes_of_snapshots(text)]}
    assert found == {"commit/snapshot_publish.py"}


def test_this_test_sees_a_writer() -> None:
    assert [*writes_of_snapshots("def f():\n path, text = layout.snapshot(1), b''\n storage.put_if_absent(path, text)")] == [3]
    assert [*writes_of_snapshots("def f():\n storage.overwrite(self.layout.snapshot(n), text)")] == [2]
    assert not [*writes_of_snapshots("def f():\n storage.overwrite(layout.tag(n), text)")]


class Answers(MemoryStorage):
    """A store that answers puts with these outcomes, in order; `keeps`: whether it then holds the data, and if so whose."""

    def __init__(self, *answers: PutOutcome | StorageUnavailable, keeps: bytes | None = None, at: int = 0) -> None:
        super().__init__()
        self.answers, self.keeps, self.at, self.puts = [*answers], keeps, at, 0

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        answer = self.answers[min(self.puts, len(self.answers) - 1)]
        if self.keeps is not None and self.puts == self.at:
            self.overwrite(path, self.keeps)
        self.puts += 1
        if isinstance(answer, StorageUnavailable):
            raise answer
        return answer


EXISTS, UNKNOWN, DOWN = PutOutcome.EXISTS, PutOutcome.UNKNOWN, StorageUnavailable("the store is down")
TEXT, OTHER = b'{"id": 1}', b'{"id": 1, "by": "another"}'
CASES = [
    ((EXISTS,), TEXT, True), ((EXISTS,), OTHER, False), ((UNKNOWN,), TEXT, True), ((UNKNOWN,), OTHER, False),
    ((UNKNOWN, UNKNOWN), None, CommitUnknown), ((UNKNOWN, DOWN), None, CommitUnknown), ((DOWN,), None, StorageUnavailable),
    ((UNKNOWN,), TEXT[:4], CommitUnknown),
]  # fmt: skip


@pytest.mark.parametrize(("answers", "keeps", "expected"), CASES)
def test_a_snapshot_that_is_put_back(
    answers: Sequence[PutOutcome | StorageUnavailable], keeps: bytes | None, expected: bool | type[Exception], tmp_path: Path
) -> None:
    """A lost answer, a lost race and a store that says nothing, as in every publication."""
    context = replace(make_table(tmp_path), storage=Answers(*answers, keeps=keeps))
    if isinstance(expected, bool):
        assert publish_again(context, 1, TEXT) is expected
        return
    with pytest.raises(expected):
        publish_again(context, 1, TEXT)


def test_what_a_put_left_behind() -> None:
    assert put_and_verify(Answers(UNKNOWN), "/a", TEXT) is Verified.ABSENT
    assert put_and_verify(Answers(UNKNOWN, keeps=b""), "/a", TEXT) is Verified.UNCLEAR
    assert put_and_verify(Answers(EXISTS, keeps=OTHER), "/a", TEXT) is Verified.THEIRS
    assert put_and_verify(Answers(EXISTS, keeps=TEXT), "/a", TEXT) is Verified.OURS
