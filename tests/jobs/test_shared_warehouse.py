"""Five services share a warehouse, and two are killed: a small run of `scripts/nightly/shared_warehouse`."""

from __future__ import annotations

import pytest

from paimon_cli.jobs.service.leases import Leases
from scripts.nightly import shared_warehouse
from tests.nightly import first


@pytest.mark.parametrize("seed", first(1, [1, 2]))
def test_services_share_tables_without_starving_or_repeating_any(seed: int) -> None:
    found = shared_warehouse.run(tables=40, rounds=30, seed=seed)
    assert found["faults"] == []
    assert found["killed"] == 2 and len(found["takeovers_ms"]) == 2 and found["compactions"] > 50
    assert found["requests_per_idle_table"] == 1


def test_the_simulation_finds_services_without_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leases, "acquire", lambda self, storage, directory: True)
    found = shared_warehouse.run(tables=40, rounds=30, seed=1)
    assert any("another service compacted" in fault for fault in found["faults"])


def test_the_simulation_finds_leases_that_live_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leases, "_lifetime", lambda self, storage, path: 10**9)
    found = shared_warehouse.run(tables=40, rounds=30, seed=1)
    assert any("killed service was not replaced" in fault or "starved" in fault for fault in found["faults"])
