"""Scripts: the recorded storage calls of programs whose behaviour depends only on the answers.

Such a program makes the same calls whenever it gets the same answers. Its calls form a tree that branches where answers differ.
Where the tree is known the program need not run: a simulation follows its lines, and runs the program only after an answer that
is new at that line. The jobs of actors have scripts, and so have the checks of the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

_MAX_LINES = 400_000
"""With more lines, all scripts are discarded: they only save time, and do not affect results."""


class StorageCall(NamedTuple):
    """A storage call."""

    operation: str
    path: str
    arguments: tuple[Any, ...] = ()


class Report(NamedTuple):
    """A report of a job to the oracle between two calls: a method of the oracle and its arguments."""

    method: str
    arguments: tuple[Any, ...]


class ScriptNode:
    """A node of a script: the call that the program makes there or, at its end, its result.

    `history`: a digest of all answers so far, which determines the rest. `reports`: those made since the previous line.
    """

    __slots__ = ("answers", "before", "call", "history", "is_shared", "reports", "result")

    def __init__(
        self,
        call: StorageCall | None,
        history: int,
        before: tuple[ScriptNode, Any] | None,
        reports: Iterable[Report] = (),
        result: Any = None,
    ) -> None:
        self.call = call
        self.history = history
        self.before = before
        self.reports = tuple(reports)
        self.result = result
        self.answers: dict[Any, ScriptNode] = {}
        self.is_shared: bool | None = None
        """Whether other actors can observe the call in every run; None if that depends on the run, or is not known yet."""

    def follow(self, answer: Any, call: StorageCall | None, reports: Iterable[Report] = (), result: Any = None) -> ScriptNode:
        """Add the line that follows this answer."""
        assert self.call is not None
        history = hash((self.history, self.call.operation, self.call.path, answer))
        line = self.answers[answer] = ScriptNode(call, history, (self, answer), reports, result)
        return line

    def lines_to_here(self) -> list[ScriptNode]:
        """All lines from the beginning of the script to this one."""
        found = [self]
        while (before := found[-1].before) is not None:
            found.append(before[0])
        return found[::-1]


class Scripts:
    """The scripts of one scenario, by what they depend on besides answers, and other cached results."""

    def __init__(self) -> None:
        self.first_lines: dict[Any, ScriptNode] = {}
        self.results: dict[Any, Any] = {}


_SCRIPTS: dict[int, tuple[object, Scripts]] = {}
_lines = 0


def scripts_of(scenario: object) -> Scripts:
    """The scripts of this scenario object."""
    if id(scenario) not in _SCRIPTS:
        _SCRIPTS[id(scenario)] = (scenario, Scripts())
    return _SCRIPTS[id(scenario)][1]


def count_lines(number: int) -> None:
    """Count new lines, or other cached data of about the same size."""
    global _lines
    _lines += number
    if _lines > _MAX_LINES:
        forget_scripts()


def forget_scripts() -> None:
    """Forget all scripts, so that programs can run with changed code."""
    global _lines
    _lines = 0
    for _, scripts in _SCRIPTS.values():
        scripts.first_lines.clear()
        scripts.results.clear()
    _SCRIPTS.clear()


class Observed(Protocol):
    """What a program observes without changing it."""

    def look(self, call: StorageCall) -> Any: ...


def observed(scripts: Scripts, key: Any, world: Observed, program: Callable[[Callable[[StorageCall], Any]], Any]) -> Any:
    """The result of a program that only reads, by the function it is given. `key`: what it depends on besides the answers."""
    line = scripts.first_lines.get(key)
    while line is not None and line.call is not None:
        line = line.answers.get(world.look(line.call))
    if line is not None:
        return line.result
    asked: list[tuple[StorageCall, Any]] = []

    def ask(call: StorageCall) -> Any:
        answer = world.look(call)
        asked.append((call, answer))
        return answer

    result = program(ask)
    calls = [*(call for call, _ in asked), None]
    line = scripts.first_lines.setdefault(key, ScriptNode(calls[0], hash(calls[0]), None, result=None if asked else result))
    for number, (_, answer) in enumerate(asked, 1):
        is_end = number == len(asked)
        line = line.answers.get(answer) or line.follow(answer, calls[number], result=result if is_end else None)
    count_lines(len(asked) + 1)
    return result
