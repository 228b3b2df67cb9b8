"""The tools that change tables, through the client of the SDK: a plan and its token, and everything that a token must not do."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.cli.agents.change_tools import CHANGING_TOOLS
from paimon_cli.cli.agents.permits import MAX_PLANNED, VALID_MILLIS
from paimon_cli.ingest.row_sources import JsonObjects
from tests.cli.agents.serving import Agent, ToldError, new_agent

PLANS: list[tuple[str, dict[str, Any]]] = [
    ("plan_write", {"rows": [{"id": 1, "name": "z"}, {"id": 90, "name": "new", "price": "1.50", "day": "2026-11-29"}]}),
    ("plan_write", {"rows": [{"id": 1}], "op": "delete"}),
    ("plan_update", {"where": "id < 3", "values": {"name": "it's"}}),
    ("plan_update", {"where": "id < :n", "expressions": {"name": "upper(name)"}, "params": {"n": 3}}),
    ("plan_delete", {"where": "id >= 15"}),
    ("plan_compaction", {}),
    ("plan_create_tag", {"name": "weekly", "time_retained": "7 d"}),
    ("plan_delete_tag", {"name": "kept"}),
]
FORBIDDEN = (
    "drop",
    "erase",
    "truncate",
    "expire",
    "rollback",
    "alter",
    "option",
    "purge",
    "orphan",
    "repair",
    "branch",
)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    found = new_agent(tmp_path)
    found.table().write([{"id": 2, "name": "again"}])
    found.table().tags.create("kept", snapshot=1)
    return found


def names_of(agent: Agent) -> dict[int, str]:
    return {row["id"]: row["name"] for row in agent.table().to_arrow().to_pylist()}


def refused(agent: Agent, token: str) -> ToldError:
    before = agent.files()
    with pytest.raises(ToldError) as caught:
        agent.call("apply", token=token)
    assert agent.files() == before
    return caught.value


@pytest.mark.parametrize(("tool", "arguments"), PLANS, ids=str)
def test_a_change_takes_two_steps(agent: Agent, tool: str, arguments: dict[str, Any]) -> None:
    before = agent.files()
    plan = agent.call(tool, table="shop.orders", **arguments)
    assert agent.files() == before
    done = agent.call("apply", token=plan["token"])
    assert (done["applied"], done["table"]) == (plan["change"], "shop.orders")
    assert agent.files() != before
    assert agent.table().verify(level="full").errors == 0
    assert refused(agent, plan["token"]).code == "PC-REFUSED"


def test_plans_say_what_would_happen_and_it_does(agent: Agent) -> None:
    plan = agent.call("plan_write", table="shop.orders", rows=[{"id": 1, "name": "z"}, {"id": 90, "name": "new"}])
    assert (plan["rows"], plan["existing_rows"], plan["snapshot_id"]) == (2, 1, 2)
    assert [row["name"] for row in plan["sample_after"]] == ["z", "new"]
    agent.call("apply", token=plan["token"])
    assert names_of(agent)[1] == "z" and names_of(agent)[90] == "new"
    plan = agent.call("plan_update", table="shop.orders", where="id = 1", values={"name": "upper(name)"})
    assert (plan["rows"], plan["sample_before"][0]["name"], plan["sample_after"][0]["name"]) == (1, "z", "upper(name)")
    agent.call("apply", token=plan["token"])
    assert names_of(agent)[1] == "upper(name)"
    plan = agent.call("plan_delete", table="shop.orders", where="id >= 15")
    assert (plan["rows"], len(plan["sample_before"])) == (6, 5)
    result = agent.call("apply", token=plan["token"])["result"]
    assert result["rows"] == 6 and result["snapshots"] and max(names_of(agent)) == 14


def test_a_plan_without_an_effect_has_no_token(agent: Agent) -> None:
    agent.table().compact()
    without: list[tuple[str, dict[str, Any]]] = [
        ("plan_delete", {"where": "id > 1000"}),
        ("plan_update", {"where": "false", "values": {"name": "x"}}),
        ("plan_compaction", {}),
    ]
    for tool, arguments in without:
        assert "token" not in agent.call(tool, table="shop.orders", **arguments)


@pytest.mark.in_part(3)
@pytest.mark.parametrize(("tool", "arguments"), PLANS, ids=str)
@pytest.mark.parametrize("moved", ["commit", "column", "option", "dropped", "created again"])
def test_a_change_is_refused_when_the_table_has_moved(agent: Agent, tool: str, arguments: dict[str, Any], moved: str) -> None:
    token = agent.call(tool, table="shop.orders", **arguments)["token"]
    table = agent.table()
    if moved == "commit":
        table.write([{"id": 500, "name": "other"}])
    elif moved == "column":
        table.alter.add_column("extra INT")
    elif moved == "option":
        table.alter.set({"num-sorted-run.compaction-trigger": "9"})
    else:
        table.drop(purge=True)
        if moved == "created again":
            again = new_agent(agent.warehouse.parent).table()
            again.write([{"id": 2, "name": "again"}])
            again.tags.create("kept", snapshot=1)
    assert refused(agent, token).code == ("PC-NOT-FOUND" if moved == "dropped" else "PC-CONFLICT-DATA")
    assert refused(agent, token).code == "PC-REFUSED"


def test_a_commit_between_the_look_and_the_commit_refuses_the_change(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is bound to the snapshot of the plan: rows of other buckets and keys would pass every other check."""
    token = agent.call("plan_write", table="shop.orders", rows=[{"id": 1, "name": "z"}])["token"]
    inner, others = Table.write, list[Any]()

    def raced(table: Table, *arguments: Any, **named: Any) -> Any:
        if not others:
            others.append(None)
            inner(agent.table(), [{"id": 501, "name": "other"}])
        return inner(table, *arguments, **named)

    monkeypatch.setattr(Table, "write", raced)
    with pytest.raises(ToldError) as caught:
        agent.call("apply", token=token)
    assert caught.value.code == "PC-CONFLICT-DATA"
    assert names_of(agent)[1] == "n1" and names_of(agent)[501] == "other"


def test_a_token_ends_after_five_minutes(agent: Agent) -> None:
    late, early = (agent.call("plan_delete", table="shop.orders", where=f"id = {number}")["token"] for number in (1, 2))
    agent.clock.millis += VALID_MILLIS - 1
    agent.call("apply", token=early)
    agent.clock.millis += 1
    assert refused(agent, late).code == "PC-REFUSED"


def test_a_token_is_good_at_one_server_only(agent: Agent) -> None:
    token = agent.call("plan_delete", table="shop.orders", where="id = 1")["token"]
    other = Agent(agent.warehouse)
    assert refused(other, token).code == "PC-REFUSED"
    agent.call("apply", token=token)
    assert 1 not in names_of(agent)


@pytest.mark.parametrize("token", ["x", "", "0" * 43, "a" * 10_000, "../../token", "%00"])
def test_a_made_up_token_is_refused(agent: Agent, token: str) -> None:
    agent.call("plan_delete", table="shop.orders", where="id = 1")
    assert refused(agent, token).code in ("PC-REFUSED", "PC-USAGE")


def test_nothing_can_be_added_to_a_token(agent: Agent) -> None:
    token = agent.call("plan_delete", table="shop.orders", where="id = 1")["token"]
    for more in ({"where": "true"}, {"table": "shop.other"}, {"force": True}):
        with pytest.raises(ToldError) as caught:
            agent.call("apply", token=token, **more)
        assert caught.value.code == "PC-USAGE"
    agent.call("apply", token=token)
    assert len(names_of(agent)) == 19


def test_tokens_are_long_random_and_few(agent: Agent) -> None:
    tokens = [agent.call("plan_delete", table="shop.orders", where="id = 1")["token"] for _ in range(MAX_PLANNED + 1)]
    assert len(set(tokens)) == len(tokens) and min(map(len, tokens)) >= 43
    assert refused(agent, tokens[0]).code == "PC-REFUSED"
    agent.call("apply", token=tokens[-1])


def test_a_token_used_twice_at_once_makes_one_commit(agent: Agent) -> None:
    token = agent.call("plan_update", table="shop.orders", where="id = 1", values={"name": "once"})["token"]
    outcomes: list[Any] = []

    def use() -> None:
        try:
            outcomes.append(agent.desk.permits.use(token)["applied"] if agent.desk.permits else None)
        except Exception as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert agent.table().snapshot_id == 3 and "update" in outcomes


def test_without_the_flag_there_is_no_tool_that_changes(tmp_path: Path) -> None:
    agent = new_agent(tmp_path, may_change=False)
    assert all(tool.annotations.read_only_hint for tool in agent.tools())
    assert "changes nothing" in str(agent.server.instructions)
    for name in ("apply", *(name for name in CHANGING_TOOLS.tools if name != "plan_compaction")):
        with pytest.raises(ToldError) as caught:
            agent.call(name, table="shop.orders")
        assert caught.value.code == "PC-NOT-FOUND"


def test_only_apply_changes_and_some_things_no_tool_does(agent: Agent) -> None:
    tools = {tool.name: tool for tool in agent.tools()}
    assert [name for name, tool in tools.items() if not tool.annotations.read_only_hint] == ["apply"]
    for name in tools:
        assert name in ("plan_expiry",) or not any(word in name for word in FORBIDDEN)
    assert not any(tool.input_schema["additionalProperties"] for tool in tools.values())


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("plan_write", {"rows": []}),
        ("plan_write", {"rows": [{"id": 1}] * 1001}),
        ("plan_write", {"rows": [{"id": 1, "name": "x" * 2_000_000}]}),
        ("plan_write", {"rows": [{"id": "seven"}]}),
        ("plan_write", {"rows": [{"name": "no key"}]}),
        ("plan_write", {"rows": [{"id": 1, "nothing": 2}]}),
        ("plan_write", {"rows": [{"id": 1, "name": "***"}]}),
        ("plan_write", {"rows": [{"id": 10**30}]}),
        ("plan_write", {"rows": [{"id": 1, "price": "12345678901.5"}]}),
        ("plan_write", {"rows": [{"id": 1, "day": "tomorrow"}]}),
        ("plan_write", {"rows": "/etc/passwd"}),
        ("plan_write", {"rows": ["/etc/passwd"]}),
        ("plan_write", {"rows": [{"id": 1}], "op": "overwrite"}),
        ("plan_update", {"where": "id = 1"}),
        ("plan_update", {"where": "id = 1", "values": {"nothing": 1}}),
        ("plan_update", {"where": "id = 1", "values": {"id": 2}}),
        ("plan_update", {"where": "id = 1", "expressions": {"name": "read_text('/etc/passwd')"}}),
        ("plan_update", {"where": "id = 1", "expressions": {"name": "name, price = 0"}}),
        ("plan_update", {"values": {"name": "all"}}),
        ("plan_delete", {"where": ""}),
        ("plan_delete", {"where": "id = 1; DELETE FROM x"}),
        ("plan_delete", {}),
        ("plan_create_tag", {"name": "kept"}),
        ("plan_create_tag", {"name": "../../etc"}),
        ("plan_create_tag", {"name": "7"}),
        ("plan_create_tag", {"name": "x", "snapshot": 99}),
        ("plan_create_tag", {"name": "x", "time_retained": "long"}),
        ("plan_delete_tag", {"name": "nothing"}),
        ("plan_delete_tag", {"name": "../tag-kept"}),
        ("plan_compaction", {"strategy": "drop"}),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_when_it_is_planned(agent: Agent, tool: str, arguments: dict[str, Any]) -> None:
    before = agent.files()
    with pytest.raises(ToldError) as caught:
        agent.call(tool, table="shop.orders", **arguments)
    assert caught.value.code in ("PC-USAGE", "PC-BAD-INPUT", "PC-NOT-FOUND", "PC-NOT-SUPPORTED")
    assert agent.files() == before


def test_a_moved_tag_is_not_deleted(agent: Agent) -> None:
    token = agent.call("plan_delete_tag", table="shop.orders", name="kept")["token"]
    agent.table().tags.replace("kept", snapshot=2)
    assert refused(agent, token).code == "PC-CONFLICT-DATA"
    assert agent.table().tags["kept"].snapshot_id == 2


@pytest.mark.parametrize("other", ["tag", "snapshot"])
def test_a_tag_that_has_become_the_last_to_hold_its_files_is_not_deleted(agent: Agent, other: str) -> None:
    """Two plans, each of which says that nothing is lost, would together delete the last version of these rows."""
    table = agent.table()
    table.compact("full")
    if other == "tag":
        table.tags.create("twin", snapshot=1)
        table.expire(retain_max=1, retain_min=1, older_than="0 s")
    plan = agent.call("plan_delete_tag", table="shop.orders", name="kept")
    assert plan["file_count"] == 1
    if other == "tag":
        agent.call("apply", token=agent.call("plan_delete_tag", table="shop.orders", name="twin")["token"])
    else:
        table.expire(retain_max=1, retain_min=1, older_than="0 s")
    assert refused(agent, plan["token"]).code == "PC-CONFLICT-DATA"
    again = agent.call("plan_delete_tag", table="shop.orders", name="kept")
    assert again["file_count"] > 1
    assert agent.call("apply", token=again["token"])["result"]["files"] == again["file_count"] - 1  # the tag itself


def test_a_tag_is_made_for_the_snapshot_that_was_planned(agent: Agent) -> None:
    plan = agent.call("plan_create_tag", table="shop.orders", name="first", snapshot=1)
    assert plan["snapshot"]["id"] == 1
    agent.call("apply", token=plan["token"])
    assert agent.table().tags["first"].snapshot_id == 1
    assert agent.call("count_rows", table="shop.orders", tag="first")["count"] == 20


def test_what_was_read_can_be_written_back(agent: Agent) -> None:
    agent.table().write(JsonObjects(b'{"id": 9007199254740993, "name": "\\u00e9\\n", "price": "-1.50", "day": "2026-02-28"}'))
    (row,) = agent.call("read_rows", table="shop.orders", where="id > 1000")["rows"]
    agent.call("apply", token=agent.call("plan_write", table="shop.orders", rows=[{**row, "name": "back"}])["token"])
    assert agent.call("read_rows", table="shop.orders", where="id > 1000")["rows"] == [{**row, "name": "back"}]


def test_an_empty_and_an_append_table_can_be_written(agent: Agent) -> None:
    table = Table.create("shop.log", warehouse=str(agent.warehouse), columns=["at BIGINT", "what STRING"])
    plan = agent.call("plan_write", table="shop.log", rows=[{"at": 1, "what": "a"}, {"at": 2}])
    assert (plan["existing_rows"], plan["snapshot_id"]) == (None, None)
    agent.call("apply", token=plan["token"])
    agent.call("apply", token=agent.call("plan_delete", table="shop.log", where="at = 1")["token"])
    assert table.count() == 1
