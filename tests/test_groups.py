"""Tests of a group keep to one worker: each has one server, one Spark or one cluster. Parts of tests are left to the night."""

from __future__ import annotations

import pytest

from tests.conftest import ByModule


@pytest.mark.xdist_group("some")
def test_a_worker_knows_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    """pytest-xdist tells it by the node id; under a pytest that it does not fit it spreads the tests without a word."""
    is_grouped = request.config.getoption("loadgroup", False)
    assert request.node.nodeid.endswith("@some") == is_grouped


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [("tests/a/test_b.py::test_c[x@y]", "tests/a/test_b.py"), ("tests/a/test_b.py::TestC::test_d[x@y]@some", "some")],
)
def test_tests_without_a_group_are_distributed_by_module(nodeid: str, unit: str) -> None:
    assert ByModule.__new__(ByModule)._split_scope(nodeid) == unit  # of no run


@pytest.mark.in_part(3)
@pytest.mark.parametrize("letter", "ab")
@pytest.mark.parametrize("number", range(5))
def test_cases_that_are_left_to_the_night(number: int, letter: str, request: pytest.FixtureRequest) -> None:
    is_at_night = request.node.get_closest_marker("nightly") is not None
    assert is_at_night == (f"{number}{letter}" not in ("0a", "2b", "3b", "4b"))
