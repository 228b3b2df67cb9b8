"""Policies of warehouses, which are read again in each round."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.catalog.table_location import locate_table
from paimon_cli.catalog.warehouse_policy import COUNTS_EVERY, Policies, PolicyFile
from paimon_cli.errors import DamagedFile
from paimon_cli.maintain.policy import Policy, PolicyKey
from paimon_cli.maintain.read_rates import ReadCounts
from paimon_cli.storage.local_storage import LocalStorage

GOAL = "tables: {shop.orders: {goal: %s}}"


def test_a_changed_policy_counts_from_the_next_round_on(tmp_path: Path) -> None:
    file = tmp_path / ".paimon-cli" / "policy.yaml"
    file.parent.mkdir()
    place, warned = locate_table(str(tmp_path / "shop.db" / "orders")), list[str]()
    policies = Policies(Policy(), warned.append)

    def goal() -> object:
        return policies.of(place).value(PolicyKey.GOAL)

    file.write_text(GOAL % "balanced")
    assert goal() == "balanced"
    file.write_text(GOAL % "cost")
    assert goal() == "balanced"
    policies.renew()
    assert goal() == "cost"
    file.write_text("tables: [")
    for _ in range(2):
        policies.renew()
        assert goal() == "cost", "the last one that could be read"
    assert len(warned) == 1 and "the last one counts" in warned[0]
    file.unlink()
    policies.renew()
    assert goal() is None


def test_the_users_own_rules_are_about_a_name_too(tmp_path: Path) -> None:
    """By them it is known which tables share a budget, also tables that others serve."""
    file = tmp_path / ".paimon-cli" / "policy.yaml"
    file.parent.mkdir()
    file.write_text(GOAL % "cost")
    policies = Policies(Policy.read(b"databases: {shop: {budget: 1GB/day}}", "own"), pytest.fail)
    policies.of(locate_table(str(tmp_path / "shop.db" / "orders")))
    found = policies.about("shop.orders")
    assert found.value(PolicyKey.GOAL) == "cost" and found.value(PolicyKey.BUDGET).size == 1 << 30
    assert policies.about("shop.other").value(PolicyKey.BUDGET).size == 1 << 30
    assert policies.about("web.orders").value(PolicyKey.BUDGET) is None


def test_counts_of_reads_are_read_again_after_some_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, policies = locate_table(str(tmp_path / "shop.db" / "orders")), Policies(Policy(), pytest.fail)
    first = policies.reads(place)
    rounds = 0
    while policies.reads(place) is first:
        policies.renew()
        rounds += 1
        monkeypatch.setattr("paimon_cli.catalog.warehouse_policy.PolicyFile.reads", lambda file: ReadCounts())
        assert rounds <= COUNTS_EVERY
    assert rounds == COUNTS_EVERY


def test_counts_that_were_read_again_are_those_of_the_tables_that_exist(tmp_path: Path) -> None:
    """Not what had been chosen of the counts before."""
    file = tmp_path / ".paimon-cli" / "reads.ndjson"
    file.parent.mkdir()
    place, policies = locate_table(str(tmp_path / "shop.db" / "orders")), Policies(Policy(), pytest.fail)
    policies.know_all_tables([place])
    for reads in (10, 90):
        file.write_text(f'{{"table": "shop.orders", "partition": "dt=1", "reads": {reads}}}\n')
        for _ in range(COUNTS_EVERY):
            policies.renew([place])
        assert policies.reads(place).counts == {("shop.orders", "dt=1"): reads}


@pytest.mark.parametrize("linked", [".paimon-cli", ".paimon-cli/policy.yaml"])
def test_a_policy_behind_a_link_is_not_read(tmp_path: Path, linked: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "policy.yaml").write_text(GOAL % "cost")
    place = tmp_path / "wh" / linked
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "elsewhere" / ("policy.yaml" if linked.endswith("yaml") else ""))
    with pytest.raises(DamagedFile, match="is a link"):
        PolicyFile(LocalStorage(), str(tmp_path / "wh")).content()
