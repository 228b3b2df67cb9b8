"""Runs commands in this process, as `paimon-cli ARGS` would."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from paimon_cli.cli.app import app


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


@pytest.fixture
def run() -> Run:
    """`run("snapshots", "ls", table)`; `code` is the exit code to expect."""

    def call(*arguments: object, code: int | None = 0, stdin: str | None = None) -> Answer:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        answer = Answer(result.exit_code, result.stdout, result.stderr)
        assert code is None or answer.code == code, f"{answer.out}{answer.err}"
        return answer

    return call
