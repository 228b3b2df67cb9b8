"""A few kills of each process; `scripts/nightly/kill_processes.py` does hundreds, also on S3 and under the lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly import at_night
from tests.processes.actors import WRITERS
from tests.processes.kills import Killing
from tests.processes.place import Place


@pytest.mark.parametrize("kills", [5, at_night(40)])
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path, kills: int) -> None:
    place = Place(str(tmp_path / "t"), {}, str(tmp_path), seed=1)
    figures = Killing(place, "local").run(kills=kills)
    assert not figures.wrong, figures.wrong[:10]
    assert figures.kills == kills and figures.reads > kills // 4 and figures.compactions > 0
    assert figures.acknowledged > WRITERS and figures.expired > 0
