"""The result of a command, for tests that run commands in this process.

Typer makes the commands of an application from its functions whenever one is run: twice as long as most commands of tests take.
In one process they are made once. Code that a test replaces is still found, as commands only refer to their functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from typer import testing

testing._get_command = cache(testing._get_command)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Answer:
    """What a command printed and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Answer]
