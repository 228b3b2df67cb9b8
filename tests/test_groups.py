"""Tests of a group keep to one worker: each has one server, one Spark or one cluster. Parts of tests are left to the night."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("some")
def test_a_worker_knows_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    """pytest-xdist tells it by the node id; under a pytest that it does not fit it spreads the tests without a word."""
    is_grouped = request.config.getoption("loadgroup", False)
    assert request.node.nodeid.endswith("@some") == is_grouped


@pytest.mark.in_part(3)
@pytest.mark.parametrize("letter", "ab")
@pytest.mark.parametrize("number", range(5))
def test_cases_that_are_left_to_the_night(number: int, letter: str, request: pytest.FixtureRequest) -> None:
    is_at_night = request.node.get_closest_marker("nightly") is not None
    assert is_at_night == ((2 * number + "ab".index(letter)) % 3 > 0)
