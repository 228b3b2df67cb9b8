"""Two actors at a time: every order of their calls, with a fault at every call, explored completely."""

from __future__ import annotations

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore
from tests.simulation.scenarios import scenario

COMPLETE = [
    "writer-writer",
    "writer-compactor",
    "compactor-compactor",
    "writer-expiry",
    "compactor-expiry",
    "expiry-expiry",
    "tag-expiry",
    "overwriter-compactor",
    "checked-writers",
    "upgrades",
    "upgrades-expiry",
    "twins",
]
ORPHANS = ["writer-orphans", "compactor-orphans", "expiry-orphans"]


@pytest.mark.in_part(6)
@pytest.mark.parametrize("name", COMPLETE)
def test_every_order_with_a_crash_at_every_call(name: str) -> None:
    """Crashes also between the calls that the other actor cannot notice."""
    result = explore(scenario(name), private_faults=True)
    assert not result.findings, explain(result.findings)
    assert result.complete and result.ended > 1 and result.states > 200


def test_cleaning_of_orphans_beside_an_expiry() -> None:
    """With one interruption; in every order, and beside writers, at night."""
    result = explore(scenario("expiry-orphans"), max_switches=1)
    assert not result.findings, explain(result.findings)
    assert result.complete


@pytest.mark.nightly
@pytest.mark.parametrize("name", ORPHANS)
def test_cleaning_of_orphans_in_every_order(name: str) -> None:
    result = explore(scenario(name), private_faults=True)
    assert not result.findings, explain(result.findings)
    assert result.complete


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", ["two-batches", "merged-manifests", "merged-at-once", "tombstones"])
def test_every_order_on_tables_with_other_options(name: str) -> None:
    result = explore(scenario(name))
    assert not result.findings, explain(result.findings)
    assert result.complete


def test_crashed_jobs_that_are_run_again_commit_once() -> None:
    """One crash anywhere, then the same commit user and identifier again; with one interruption."""
    result = explore(scenario("writer-writer-restart"), private_faults=True, max_switches=1)
    assert not result.findings, explain(result.findings)
    assert result.complete


def test_a_writer_so_slow_that_its_number_has_expired() -> None:
    result = explore(scenario("slow-writer"), max_switches=1)
    assert not result.findings, explain(result.findings)
    assert result.complete


def test_a_slow_writer_that_crashes_and_is_run_again() -> None:
    """It counts once, whether its snapshot came back below a gap or expired in its turn; completely at night."""
    result = explore(scenario("slow-writer-restart"), max_switches=1, max_schedules=400)
    assert not result.findings, explain(result.findings)
    assert result.schedules == 400
