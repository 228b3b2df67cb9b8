"""Tables of every kind under random steps of the library, with crashes and rivals, beside what they must hold; and planted bugs.

`scripts/nightly/model.py` makes many more steps.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.maintain import expire_snapshots, rollback, tags
from paimon_cli.maintain.needed_files import NeededFiles
from tests.model.play import KINDS, STEPS_OF_A_TABLE, play
from tests.simulation.conftest import _quick_metadata as _quick_metadata

TABLES, MIN_STEPS = 10, 2000
Replace = Callable[..., Any]


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_random_steps(kind: str, part: int, tmp_path: Path) -> None:
    worlds = [play(tmp_path, kind, str(number)) for number in range(part * TABLES // 2, (part + 1) * TABLES // 2)]
    assert TABLES * STEPS_OF_A_TABLE * len(KINDS) >= MIN_STEPS
    assert sum(world.crashes for world in worlds) >= 5 and sum(world.rivals for world in worlds) >= 3


def _no_tags(context: Any) -> list[Any]:
    return []


def _nothing(context: Any) -> NeededFiles:
    return NeededFiles()


PLANTED: dict[str, tuple[str, list[tuple[Any, str, Replace]]]] = {
    "expiry deletes files of tags": ("deduplicate", [(expire_snapshots, "tagged_snapshots", _no_tags)]),
    "expiry deletes files of branches": ("append", [(expire_snapshots, "needed_by_other_branches", _nothing)]),
    "a deleted tag takes files of branches": ("deduplicate", [(tags, "needed_by_other_branches", _nothing)]),
    "a rollback leaves later tags": ("append", [(rollback, "tags_above", lambda context, number: [])]),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_found(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kind, places = PLANTED[name]
    for place, attribute, wrong in places:
        monkeypatch.setattr(place, attribute, wrong)
    with pytest.raises(AssertionError):
        for number in range(120):
            play(tmp_path, kind, str(number))
