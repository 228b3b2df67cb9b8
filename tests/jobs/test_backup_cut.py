"""What a backup holds while it copies, and what it releases."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import NotSupported
from paimon_cli.jobs import backup_cut
from paimon_cli.jobs.backup_cut import HeldCut
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.retention import keep_for_backups, place_of, write_consumer
from tests.tables import make_table, write


def test_what_is_released_is_not_held_again_by_a_renewal_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    write(context, [{"id": 1}])
    cut, renewing, deleted = HeldCut("one"), threading.Event(), threading.Event()
    cut.hold(context, 1)
    real = write_consumer

    def slow(*given: Any) -> None:
        renewing.set()
        deleted.wait(0.5)
        real(*given)

    def released(self: HeldCut) -> None:
        release(self)
        deleted.set()

    release = HeldCut.release
    monkeypatch.setattr("paimon_cli.jobs.backup_cut.write_consumer", slow)
    monkeypatch.setattr(backup_cut, "_RENEWED_SECONDS", 0.01)
    monkeypatch.setattr(HeldCut, "release", released)
    with pytest.raises(NotSupported), cut.renewed():
        assert renewing.wait(20)
        raise NotSupported("the table cannot be copied")
    assert not context.storage.exists(context.layout.consumer(cut.name))


def test_what_an_earlier_run_holds_is_not_released(tmp_path: Path) -> None:
    """The next run goes on where that one ended; only branches that this run was the first to hold are let go."""
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    write(context, [{"id": 1}])
    create_branch(context, "new", None, 1)
    HeldCut("one").hold(context, 1)
    cut = HeldCut("one")
    with pytest.raises(NotSupported), cut.renewed():
        cut.hold(context, 1)
        cut.hold(context.seen_from("new"), 1)
        raise NotSupported("the table cannot be copied")
    assert context.storage.exists(context.layout.consumer(cut.name))
    assert not context.storage.exists(context.layout.of_branch("new").consumer(cut.name))


def test_a_renewal_keeps_the_place_to_which_a_rollback_has_moved_it(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    for number in range(4):
        write(context, [{"id": number}])
    cut = HeldCut("one")
    cut.hold(context, 4)
    keep_for_backups(context, 2)
    cut.renew()
    cut.hold(context, 4)
    assert cut.place(context) == place_of(context, cut.name) == 2
    cut.go_on(context, 3)
    cut.renew()
    assert place_of(context, cut.name) == 3
