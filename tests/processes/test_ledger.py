"""The expected content of a table is computed correctly, and any difference is noticed."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from paimon_cli.commit.deduplication import Deduplication
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from tests.processes.actors import commit_once, wrong_in_a_read
from tests.processes.kills import Killing
from tests.processes.ledger import ACCOUNTS, DEPOSIT, FIRST_KEY, REGISTERS, Rows, changes, complaints, state
from tests.processes.place import Place

SEED, WRITER = 3, 1


def test_the_state_is_what_the_changes_add_up_to() -> None:
    rows: Rows = {}
    for number in range(1, 300):
        wanted = changes(SEED, WRITER, number)
        rows = {k: v for k, v in {**rows, **wanted}.items() if v is not None}
        assert rows == state(SEED, WRITER, number), number
        assert complaints(SEED, WRITER, rows, number, number) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({REGISTERS[0]: 39}, "half a commit"),
        ({ACCOUNTS[0]: 10 * DEPOSIT}, "the bank holds"),
        ({FIRST_KEY + 40: None}, "lost, doubled or wrong keys at commit 40: [1040]"),
        ({FIRST_KEY + 12: 12}, "lost, doubled or wrong keys at commit 40: [1012]"),
        (dict.fromkeys(REGISTERS, 38), "shows commit 38, 40 were acknowledged"),
    ],
)
def test_whatever_is_wrong_is_seen(change: dict[int, int | None], complaint: str) -> None:
    rows = {k: v for k, v in {**state(SEED, WRITER, 40), **change}.items() if v is not None}
    assert complaint in " ".join(complaints(SEED, WRITER, rows, 40, 41))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(str(tmp_path / "t"), {}, str(tmp_path), SEED)
    found.make_table()
    for writer in (0, 1):
        assert commit_once(found, writer, 1)
        found.acknowledge(writer, 1)
    return found


def wrong(place: Place) -> str:
    killing = Killing(place, "local")
    killing.look_at_the_end()
    return " ".join(killing.figures.wrong)


def test_nothing_is_wrong_with_a_sound_table(place: Place) -> None:
    assert wrong(place) == "" and wrong_in_a_read(place) == []


def test_an_acknowledged_commit_that_is_not_there(place: Place) -> None:
    place.acknowledge(0, 2)
    assert "shows commit 1, 2 were acknowledged" in " ".join(wrong_in_a_read(place) or [])
    assert "writer 0 has commits [1, 3], not [1, 2, 3]" in wrong(place)


@pytest.mark.parametrize(("lost", "complaint"), [((), ""), ((2, 3), "writer 0 has commits [4], not [1, 2, 3, 4]")])
def test_snapshots_that_expired_unseen_hide_no_lost_commits(place: Place, lost: tuple[int, ...], complaint: str) -> None:
    expire_snapshots(place.open(), Retention(at_least=1, at_most=1, millis=0, limit=None))
    for number in lost:
        place.acknowledge(0, number)
    found = wrong(place)
    assert complaint in found and bool(found) == bool(lost)


def test_a_commit_that_was_made_twice(place: Place) -> None:
    with mock.patch.multiple(Deduplication, already_committed=lambda _: False, committed_since_begin=lambda *_: False):
        commit_once(place, 1, 1)
    assert "writer 1 committed [1] more than once" in wrong(place)


def test_a_process_that_failed(place: Place) -> None:
    place.note("compactor-0", kind="failed", why="TypeError: of no matter")
    assert "compactor-0 failed: TypeError: of no matter" in wrong(place)
