"""What `make nightly` runs beyond a small part that runs each time.

A test of many similar cases is marked `in_part(step)`: of each `step` cases one runs each time, the others at night (`conftest`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def at_night(*values: Any) -> Any:
    """A parameter of a test that runs at night only."""
    return pytest.param(*values, marks=pytest.mark.nightly)


BRIEF = pytest.mark.parametrize("brief", [True, at_night(False)], ids=["brief", "in-full"])
"""A test in two forms, of which the one in full runs at night only."""


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test, of which only the first run each time: seeds, or kinds in the order of their importance."""
    given = list(values)
    return [*given[:count], *map(at_night, given[count:])]
