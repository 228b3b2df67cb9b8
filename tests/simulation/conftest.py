"""Metadata that was decoded once is remembered while a module of simulations runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.quick_metadata import quick_metadata


@pytest.fixture(autouse=True, scope="module")
def _quick_metadata() -> Iterator[None]:
    with quick_metadata():
        yield
