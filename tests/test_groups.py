"""Tests of a group keep to one worker: each has one server, one Spark or one cluster. Parts of tests are left to the night."""

from __future__ import annotations

import gc
import json

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


class Garbage:
    """What only the collector frees, with a finalizer that needs stack."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        json.dumps([[1]])


def test_deep_nesting_is_no_failure_of_finalizers_that_run_meanwhile() -> None:
    thresholds = gc.get_threshold()
    try:
        for objects in range(800, 1100):  # the depth at which the collector comes
            gc.disable()
            Garbage()
            gc.set_threshold(objects, 1, 1)
            gc.enable()
            with pytest.raises(RecursionError):
                json.loads("[" * 5000)
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
