"""A small run of `scripts.nightly.clock_jumps`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.clock_jumps import play


@pytest.mark.parametrize("seed", range(3))
def test_clocks_that_jump_harm_nothing(tmp_path: Path, seed: int) -> None:
    play(tmp_path, f"small-{seed}", 14)
