"""The error boundary: which form a failure is told in, and which option was meant."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paimon_cli import __version__
from paimon_cli.cli import app as boundary
from paimon_cli.cli.app import _known_option, _wants_json
from paimon_cli.cli.results import ARGUMENTS
from paimon_cli.errors import NotFound
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


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let each command that opens a table fail so."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("paimon_cli.api.table.open_table", fail)


def test_output_that_is_lost_is_a_failure_unless_the_command_has_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "flush_stdout", lambda: OSError(28, "No space left on device"))
    assert "No space left" in run("version", code=6).err
    failing(monkeypatch, NotFound("there is no table"))
    answer = run("snapshots", "ls", "./t", code=3)
    assert "there is no table" in answer.err and "No space" not in answer.err


def test_a_library_that_breaks_off_is_told_like_any_bug(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, type(boundary.RUST_PANIC, (BaseException,), {})("index out of bounds"))
    assert run("snapshots", "ls", "./t", code=1).err.startswith("error: a library has failed\n")
    failing(monkeypatch, GeneratorExit())
    with pytest.raises(GeneratorExit):
        run("snapshots", "ls", "./t")


def test_a_library_that_exits_has_lost_the_output_only_if_its_pipe_broke(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "discard_stdout", lambda: None)
    for context, code in ((BrokenPipeError(), 0), (ValueError(), 1), (None, 1)):
        end = SystemExit(1)
        end.__context__ = context
        failing(monkeypatch, end)
        run("snapshots", "ls", "./t", code=code)


def test_the_version_is_all_that_is_printed(run: Run) -> None:
    assert run("--version").out == f"paimon-cli {__version__}\n"
    assert run("--version", "snapshots", "ls").out == f"paimon-cli {__version__}\n"


def test_hints_repeat_the_words_of_the_call(run: Run) -> None:
    run("version", "-o", "json")
    assert ARGUMENTS.get() == ["version", "-o", "json"]
    assert "=hunter2" not in run("snapshots", "ls", "./hunter2", "--option", "s3.secret-key=hunter2", code=3).err


def test_memory_and_processors_are_set_before_libraries_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    for name in ("keep_pandas_out", "share_arenas"):
        monkeypatch.setattr(boundary, name, lambda name=name: done.append(name))
    monkeypatch.setattr(boundary, "set_for_this_process", done.append)
    boundary.prepare_process()
    settings = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
    assert done == ["keep_pandas_out", settings, "share_arenas"]


@pytest.mark.parametrize(("end", "code"), [(0, 0), (7, 7), (1, 1), (None, 0), ("a text", 1)])
def test_a_process_ends_at_once_with_its_files_removed_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, end: Any, code: int
) -> None:
    done: list[Any] = []
    for name in ("prepare_streams", "end_as_interrupted", "prepare_process", "flush_stderr"):
        monkeypatch.setattr(boundary, name, lambda name=name: done.append(name))
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: done.append("files"))
    monkeypatch.setattr(os, "_exit", done.append)
    monkeypatch.setattr(boundary, "app", lambda: sys.exit(end))
    boundary.main()
    assert done == ["prepare_streams", "end_as_interrupted", "prepare_process", "files", "flush_stderr", code]


NOT_UTF_8 = os.fsdecode(b"\xff")


@pytest.mark.parametrize(
    "words", [("tags", "create", "t", NOT_UTF_8), ("alter", "t", "set", f"a={NOT_UTF_8}"), ("read", "t", f"--where={NOT_UTF_8}")]
)
def test_an_argument_that_is_not_utf_8_is_refused(run: Run, words: tuple[str, ...]) -> None:
    error = run(*words, code=2).err
    assert error.startswith("error: cannot read the argument ") and "\\udcff" in error


def test_a_file_whose_name_is_not_utf_8_may_be_named(run: Run, tmp_path: Path) -> None:
    table, path = str(tmp_path / "t"), f"{tmp_path}/{NOT_UTF_8}.csv"
    run("create", table, "-C", "k INT")
    Path(path).write_text("k\n1\n")
    run("write", table, path)
    assert run("read", table, "-o", "csv").out == "k\n1\n"
