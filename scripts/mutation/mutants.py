"""Creates changed versions of the modules of a room, with mutmut's operators and others that resemble common mistakes.

Changes to the wording of errors are left out, because few tests judge wording; so are changes to annotations and docstrings.
mutmut leaves out decorated functions, because its way of switching between mutants does not support them. Here each mutant is a
file of its own, so they are included.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, cast

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from paimon_cli import errors

ERRORS = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)} | {
    "AssertionError",
    "RuntimeError",
    "SnapshotGone",
    "TypeError",
    "TypeVar",
    "ValueError",
}
TYPE_ALIAS = re.compile(r"[A-Z]\w* = (Callable|Sequence|Mapping|tuple|dict|list)\[")
NO_EFFECT = re.compile(r",? *strict=\w+|, (?=\))|(?<=\bcast\()(\w+\[.*?\]|\w+)(?=, )")
SWAPS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A change of a module. Its `key` stays the same if other lines of the module move."""

    module: Path
    function: str
    before: str
    after: str
    code: str
    first_line: int
    last_line: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.module.as_posix(), self.function, self.before, self.after)


class Module:
    """The mutants of a module, created on demand: a room has thousands."""

    def __init__(self, root: Path, path: Path) -> None:
        self._path = path
        self._source = (root / path).read_text()
        wrapper = MetadataWrapper(cst.parse_module(self._source))
        visitor = _Visitor()
        self._tree = wrapper.visit(visitor)
        self._mutations = visitor.mutations
        self._positions = wrapper.resolve(PositionProvider)
        self._functions = visitor.functions

    def __len__(self) -> int:
        return len(self._mutations)

    def mutant(self, number: int) -> Mutant | None:
        """The mutant with this number; None if the change has no effect (such as on types), or is not valid Python."""
        mutation = self._mutations[number]
        code = cast(cst.Module, self._tree.deep_replace(mutation.original_node, mutation.mutated_node)).code
        if code == self._source or not _compiles(code):
            return None
        position = self._positions[mutation.original_node]
        before, after = changed_lines(self._source, code)
        if TYPE_ALIAS.match(before) or _effect(before) == _effect(after):
            return None
        function = self._functions.get(mutation.original_node, "")
        return Mutant(self._path, function, before, after, code, position.start.line, position.end.line)


def changed_lines(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, before and after, without their indentation."""
    old, new = before.splitlines(), after.splitlines()
    blocks = [op for op in SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if op[0] != "equal"]
    first, last = blocks[0], blocks[-1]
    before_it = int(first[1] == last[2] and first[1] > 0)  # an insertion is identified by the line before it
    return _text(old[first[1] - before_it : last[2]]), _text(new[first[3] - before_it : last[4]])


def _text(lines: Sequence[str]) -> str:
    return "\n".join(line.strip() for line in lines)


def _effect(text: str) -> str:
    """The code without what has no effect. None is as false as False."""
    return NO_EFFECT.sub("", text).replace("False", "None")


def _compiles(code: str) -> bool:
    try:
        compile(code, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class _Visitor(MutationVisitor):
    """mutmut's walk over a module, including decorated functions, without the wording of errors."""

    def __init__(self) -> None:
        super().__init__((*mutation_operators, *OPERATORS), IgnoredCode(set(), set(), set()))
        self.functions: dict[cst.CSTNode, str] = {}
        self._names: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append(node.name.value)
        made = len(self.mutations)
        goes_on = super().on_visit(node)
        for mutation in self.mutations[made:]:
            self.functions[mutation.original_node] = ".".join(self._names)
        return goes_on

    def on_leave(self, original_node: cst.CSTNode) -> None:
        super().on_leave(original_node)
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._names.pop()

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            return False
        return _is_wording(node) or super()._skip_node_and_children(node)


def _is_wording(node: cst.CSTNode) -> bool:
    """Whether the node creates an error, or a text for one."""
    if isinstance(node, cst.Assign):
        return m.matches(node.targets[0].target, m.Name("what") | m.Name("why") | m.Name("hint"))
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in ERRORS


def _statement(call: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    """A statement is left out: a call for its effect, or a change of a variable."""
    if len(call.body) == 1 and m.matches(call.body[0], m.Expr(m.Call()) | m.AugAssign() | m.Raise()):
        yield call.with_changes(body=[cst.Pass()])


def _condition(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    """A check is reversed."""
    condition = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), condition))


def _clause(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    """One of two conditions is forgotten."""
    for side in (node.left, node.right):
        yield side.with_changes(lpar=[*side.lpar, cst.LeftParen()], rpar=[*side.rpar, cst.RightParen()])


def _filter(node: cst.CompFor) -> Iterator[cst.CSTNode]:
    """The `if` of a comprehension is forgotten."""
    for position in range(len(node.ifs)):
        yield node.with_changes(ifs=[*node.ifs[:position], *node.ifs[position + 1 :]])


def _loop(node: cst.For) -> Iterator[cst.CSTNode]:
    """Only the first item is handled."""
    if isinstance(node.body, cst.IndentedBlock):
        end = cst.SimpleStatementLine([cst.Break()])
        yield node.with_changes(body=node.body.with_changes(body=[*node.body.body, end]))


def _less(node: cst.Integer) -> Iterator[cst.CSTNode]:
    """A number is off by one, in the other direction than mutmut's."""
    if node.evaluated_value > 0:
        yield node.with_changes(value=repr(node.evaluated_value - 1))


def _swap(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Minimum and maximum, or any and all, are confused."""
    if isinstance(node.func, cst.Name) and node.func.value in SWAPS:
        yield node.with_changes(func=cst.Name(SWAPS[node.func.value]))


def _sorted(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Something is not sorted, or not reversed."""
    if m.matches(node.func, m.Name("sorted") | m.Name("reversed")):
        yield node.with_changes(func=cst.Name("list"), args=node.args[:1])


def _handler(node: cst.ExceptHandler) -> Iterator[cst.CSTNode]:
    """One type of exception is not expected."""
    if isinstance(node.type, cst.Tuple) and len(node.type.elements) > 1:
        for position in range(len(node.type.elements)):
            rest = [*node.type.elements[:position], *node.type.elements[position + 1 :]]
            yield node.with_changes(type=node.type.with_changes(elements=rest))


OPERATORS: tuple[tuple[type, Callable[[Any], Iterable[cst.CSTNode]]], ...] = (
    (cst.SimpleStatementLine, _statement),
    (cst.If, _condition),
    (cst.While, _condition),
    (cst.BooleanOperation, _clause),
    (cst.CompFor, _filter),
    (cst.For, _loop),
    (cst.Integer, _less),
    (cst.Call, _swap),
    (cst.Call, _sorted),
    (cst.ExceptHandler, _handler),
)
