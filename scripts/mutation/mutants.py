"""Creates changed versions of the modules of a room, with mutmut's operators and others that resemble common mistakes.

Changes to the wording of errors are left out, because few tests judge wording; so are changes to annotations and docstrings.
mutmut leaves out decorated functions, because its way of switching between mutants does not support them. Here each mutant is a
file of its own, so they are included.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import cast

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from paimon_cli import errors
from scripts.mutation.slips import SLIPS

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
BLOCKS = (cst.BaseCompoundStatement, cst.IndentedBlock)


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
    operator: str = ""

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
        self.operators: tuple[str, ...] = tuple(visitor.made_by)
        """The name of the operator that makes each mutant."""

    def __len__(self) -> int:
        return len(self._mutations)

    def mutant(self, number: int) -> Mutant | None:
        """The mutant with this number; None if the change has no effect (such as on types), or is not valid Python."""
        mutation = self._mutations[number]
        code = cast(cst.Module, self._tree.deep_replace(mutation.original_node, mutation.mutated_node)).code
        if code == self._source or not _compiles(code):
            return None
        change = Change.between(self._source, code)
        if TYPE_ALIAS.match(change.before) or _effect(change.before) == _effect(change.after):
            return None
        node = mutation.original_node
        lines = (change.first_line, change.last_line)
        if not isinstance(node, BLOCKS):  # only the first line of an expression is known to be reached
            position = self._positions[node]
            lines = (position.start.line, position.end.line)
        function = self._functions.get(node, "")
        return Mutant(self._path, function, change.before, change.after, code, *lines, self.operators[number])


@dataclass(frozen=True)
class Change:
    """The lines that differ, before and after, without their indentation; the lines before it by number."""

    before: str
    after: str
    first_line: int
    last_line: int

    @classmethod
    def between(cls, before: str, after: str) -> Change:
        old, new = before.splitlines(), after.splitlines()
        blocks = [op for op in SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if op[0] != "equal"]
        first, last = blocks[0], blocks[-1]
        above = int(first[1] == last[2] and first[1] > 0)  # an insertion is identified by the line before it
        begin, end = first[1] - above, last[2]
        return cls(_text(old[begin:end]), _text(new[first[3] - above : last[4]]), begin + 1, end)


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
        super().__init__((), IgnoredCode(set(), set(), set()))
        self.functions: dict[cst.CSTNode, str] = {}
        self.made_by: list[str] = []
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

    def _create_mutations(self, node: cst.CSTNode) -> None:
        for kind, operator in (*mutation_operators, *SLIPS):
            self._operators = [(kind, operator)]
            super()._create_mutations(node)
            self.made_by += [operator.__name__] * (len(self.mutations) - len(self.made_by))

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            return False
        return _is_wording(node) or super()._skip_node_and_children(node)


def _is_wording(node: cst.CSTNode) -> bool:
    """Whether the node creates an error, or a text for one."""
    if isinstance(node, cst.Assign):
        return m.matches(node.targets[0].target, m.Name("what") | m.Name("why") | m.Name("hint"))
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in ERRORS
