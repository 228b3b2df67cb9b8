"""Kills of some commands; scripts/nightly/kill_commands.py kills all of them, hundreds of times."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from tests.nightly import BRIEF
from tests.processes import killed_commands
from tests.processes.killed_commands import COMMANDS, CommandKills, CommandTrial, kill_commands, violations


@BRIEF
def test_what_a_kill_leaves_can_be_read_and_finished(tmp_path: Path, brief: bool) -> None:
    chosen = tuple(command for command in COMMANDS if command.words in ("expire", "rollback", "orphans rm"))[:: 4 if brief else 1]
    figures = kill_commands(tmp_path, len(chosen), seed=3, commands=chosen)
    assert not figures.wrong, figures.wrong
    assert figures.kills == len(chosen) == (2 if brief else 5)


def test_whatever_is_wrong_is_seen(tmp_path: Path) -> None:
    """A table that lacks a file, after a command that did not notice."""
    figures = CommandKills(seed=1)
    trial = CommandTrial(next(c for c in COMMANDS if c.words == "tags create"), tmp_path, figures)
    trial._restore()
    next((tmp_path / "t").glob("p=1/bucket-*/*.parquet")).unlink()
    with mock.patch.object(killed_commands, "newest_rows", lambda root: trial._before):
        assert any("PV012" in complaint for complaint in trial._look())
    assert violations(tmp_path / "image") == []
