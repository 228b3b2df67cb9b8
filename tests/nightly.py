"""What `make nightly` runs beyond a small part that runs each time.

A test of many similar cases is marked `in_part(step)`: each `step`-th case runs each time, the others at night (`conftest`).
"""

from __future__ import annotations

from typing import Any

import pytest


def at_night(*values: Any) -> Any:
    """A parameter of a test that runs at night only."""
    return pytest.param(*values, marks=pytest.mark.nightly)


BRIEF = pytest.mark.parametrize("brief", [True, at_night(False)], ids=["brief", "in-full"])
"""A test in two forms, of which the one in full runs at night only."""
