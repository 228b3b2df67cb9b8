"""The error boundary: which form a failure is told in, and which option was meant."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paimon_cli.cli import app as boundary
from paimon_cli.cli.app import _known_option, _wants_json
from tests.cli.calling import Run


@pytest.mark.parametrize(
    ("words", "is_json"),
    [
        ("read t -o json", True),
        ("read t -ojson", True),
        ("-o json read t", True),
        ("read t --output json", True),
        ("compact t --output=json -n", True),
        ("compact t -no json", True),
        ("compact t -vojson", True),
        ("read t --output-format json", True),
        ("read t --output-format=json", True),
        ("compact --watch --log-format json", True),
        ("compact --watch --log-format=json", True),
        ("read json", False),
        ("read t -o ndjson", False),
        ("read t -o csv json", False),
        ("read t -so json", False),
        ("read t --output-path=json", False),
        ("", False),
    ],
)
def test_failures_have_the_form_of_the_output(words: str, is_json: bool) -> None:
    assert _wants_json(words.split()) is is_json


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--filter", "--where"),
        ("--head", None),
        ("--WHERE", "--where"),
        ("--where", None),
        ("-W", "-w"),
        ("--nothing", None),
        (None, None),
    ],
)
def test_an_option_of_other_programs_is_known_where_the_command_has_ours(given: str | None, meant: str | None) -> None:
    parameters = [SimpleNamespace(opts=["-w", "--where"]), SimpleNamespace(opts=["--dry-run"])]
    context = SimpleNamespace(command=SimpleNamespace(params=parameters))
    assert _known_option(context, given) == meant
    assert _known_option(None, given) is None


def test_a_reader_of_the_output_that_has_gone_is_no_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short outputs only meet that when they are flushed at the end, long ones in the command."""
    gone: list[object] = []

    def write(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("paimon_cli.api.table.open_table", write)
    monkeypatch.setattr(boundary, "has_lost_reader", lambda stream: True)
    monkeypatch.setattr(boundary, "discard_stdout", lambda: gone.append("discarded"))
    answer = run("snapshots", "ls", "./t")
    assert (answer.out, answer.err, gone) == ("", "", ["discarded"])


def test_all_commands_are_shown_alone_and_before_the_help_only(run: Run) -> None:
    shown = run("--all").out
    assert shown == run("--help", "--all").out == run("--all", "--help").out != run("--help").out
    assert "compact-manifests" in shown
    assert "--all needs --help" in run("--all", "version", code=2).err
