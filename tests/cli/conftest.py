"""Runs commands in this process, as `paimon-cli ARGS` would."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from paimon_cli.cli.app import app
from tests.cli.calling import Answer, Run


@pytest.fixture
def run() -> Run:
    """`run("snapshots", "ls", table)`; `code` is the exit code to expect, None for any."""

    def call(*arguments: object, code: int | None = 0, stdin: str | None = None) -> Answer:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        answer = Answer(result.exit_code, result.stdout, result.stderr)
        assert code is None or answer.code == code, f"{answer.out}{answer.err}"
        return answer

    return call
