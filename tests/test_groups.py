"""Tests of a group keep to one worker: each group has one server, one Spark or one cluster."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("some")
def test_a_worker_knows_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    """pytest-xdist tells it by the node id; under a pytest that it does not fit it spreads the tests without a word."""
    is_grouped = request.config.getoption("loadgroup", False)
    assert request.node.nodeid.endswith("@some") == is_grouped
