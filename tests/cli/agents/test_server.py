"""The server as a process, and calls that hang: what one call does must not stop the others, nor reach standard output."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from paimon_cli import Table
from paimon_cli.cli.agents.answers import DEFAULT_ROWS, MAX_ANSWER_BYTES, MAX_ROWS, MOST_TEXT
from paimon_cli.cli.agents.change_tools import CHANGING_TOOLS
from paimon_cli.cli.agents.desk import MAX_HANGING_IN_TABLE
from paimon_cli.cli.agents.read_tools import READING_TOOLS
from tests.cli.agents.serving import Agent, ToldError, new_agent
from tests.cli.calling import Run

PROGRAM = [sys.executable, "-m", "paimon_cli"]


def test_a_client_talks_to_the_process(tmp_path: Path) -> None:
    warehouse = new_agent(tmp_path).warehouse
    arguments = [*PROGRAM[1:], "mcp", "--warehouse", str(warehouse), "--allow-changes"]
    started = StdioServerParameters(command=PROGRAM[0], args=arguments, env=dict(os.environ))

    async def session() -> Any:
        async with Client(started) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            plan = await client.call_tool("plan_delete", {"table": "shop.orders", "where": "id < 5"})
            done = await client.call_tool("apply", {"token": plan.structured_content["data"]["token"]})
            count = await client.call_tool("count_rows", {"table": "shop.orders"})
            return tools, done.is_error, count.structured_content["data"]["count"]

    tools, is_error, count = anyio.run(session)
    assert "apply" in tools and not is_error and count == 15


def said(process: subprocess.Popen[str], *messages: dict[str, Any]) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()


def test_standard_output_is_the_protocol_and_the_process_ends_with_its_input(tmp_path: Path) -> None:
    warehouse = new_agent(tmp_path).warehouse
    program = (
        "import os, sys; from paimon_cli.cli.agents import read_tools\n"
        "inner = read_tools.READING_TOOLS.tools['count_rows'].run\n"
        "def noisy(*a, **k):\n"
        "    print('noise'); os.write(1, b'more noise'); os.system('echo noise of a child'); return inner(*a, **k)\n"
        "object.__setattr__(read_tools.READING_TOOLS.tools['count_rows'], 'run', noisy)\n"
        "from paimon_cli.__main__ import main; sys.exit(main())\n"
    )
    command = [sys.executable, "-c", program, "mcp", "--warehouse", str(warehouse)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        said(process, {"id": 1, "method": "initialize", "params": info}, {"method": "notifications/initialized"})
        called = {"name": "count_rows", "arguments": {"table": "shop.orders"}}
        said(process, {"id": 2, "method": "tools/call", "params": called})
        assert process.stdout is not None and process.stdin is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert process.stdin.write("this is not JSON\n")
        process.stdin.close()
        rest, noise = process.stdout.read(), process.stderr.read() if process.stderr else ""
        assert process.wait(30) == 0
    answers = {message["id"]: message for message in map(json.loads, lines)}
    assert json.loads(answers[2]["result"]["content"][0]["text"])["data"]["count"] == 20
    assert all("jsonrpc" in json.loads(line) for line in rest.splitlines())
    assert noise.count("noise") >= 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_at_once(tmp_path: Path, number: int, code: int) -> None:
    command = [*PROGRAM, "mcp", "--warehouse", str(new_agent(tmp_path).warehouse)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said(process, {"id": 1, "method": "ping", "params": {}})
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(number)
        try:
            assert process.wait(60) == code
        finally:
            process.kill()


def test_it_needs_a_warehouse_and_says_so(run: Run, tmp_path: Path) -> None:
    assert "pass --warehouse URI" in run("mcp", code=2).err
    run("mcp", "--warehouse", tmp_path / "nothing", code=3)
    run("mcp", "--warehouse", tmp_path, "--timeout", "0s", code=2)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_table_that_hangs_costs_its_own_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    agent = new_agent(tmp_path, seconds=0.5)
    Table.create("shop.stuck", warehouse=str(agent.warehouse), columns=["id BIGINT"])
    inner = Table.scan

    def scan(table: Table, *arguments: Any, **named: Any) -> Any:
        if table.name == "shop.stuck":
            released.wait(60)
        return inner(table, *arguments, **named)

    monkeypatch.setattr(Table, "scan", scan)
    for _ in range(MAX_HANGING_IN_TABLE):
        with pytest.raises(ToldError) as caught:
            agent.call("count_rows", table="shop.stuck")
        assert caught.value.code == "PC-TIMEOUT" and "for more time" in str(caught.value.hint)
        assert caught.value.message.startswith("count_rows took more than 0.5 s: it asks for much, or")
        assert caught.value.details == {"tool": "count_rows"}
        assert agent.call("count_rows", table="shop.orders")["count"] == 20
    began = time.monotonic()
    with pytest.raises(ToldError) as caught:
        agent.call("count_rows", table="shop.stuck")
    assert caught.value.code == "PC-TIMEOUT" and "shop.stuck still does not answer" in caught.value.message
    assert caught.value.hint == "try other tables, and this one later"
    assert time.monotonic() - began < 0.4
    released.set()
    time.sleep(0.1)
    assert agent.call("count_rows", table="shop.stuck")["count"] == 0


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM range(1000000000000) a, range(1000) b",
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT max(i) FROM r",
    ],
)
def test_a_query_without_an_end_is_interrupted(tmp_path: Path, query: str) -> None:
    agent = new_agent(tmp_path, seconds=1.0)
    with pytest.raises(ToldError) as caught:
        agent.call("run_sql", query=query)
    assert caught.value.code == "PC-TIMEOUT"
    ends = time.monotonic() + 20
    while agent.desk._visits and time.monotonic() < ends:
        time.sleep(0.05)
    assert not agent.desk._visits


def test_a_query_that_needs_too_much_memory_is_an_error(tmp_path: Path) -> None:
    agent = new_agent(tmp_path)
    query = "SELECT string_agg(repeat('x', 1000000), '') FROM range(100000)"
    with pytest.raises(ToldError) as caught:
        agent.call("run_sql", query=query)
    assert caught.value.code in ("PC-USAGE", "PC-TIMEOUT", "PC-UNAVAILABLE")
    assert agent.call("count_rows", table="shop.orders")["count"] == 20


def test_a_change_that_takes_long_is_not_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = new_agent(tmp_path, seconds=0.5)
    token = agent.call("plan_delete", table="shop.orders", where="id = 1")["token"]
    inner, may_go_on = Table.delete, threading.Event()

    def slow(table: Table, *arguments: Any, **named: Any) -> Any:
        may_go_on.wait(30)
        return inner(table, *arguments, **named)

    monkeypatch.setattr(Table, "delete", slow)
    with pytest.raises(ToldError) as caught:
        agent.call("apply", token=token)
    assert caught.value.code == "PC-TIMEOUT" and "was not stopped" in caught.value.message
    may_go_on.set()
    assert agent.call("apply", token=token)["result"]["rows"] == 1
    with pytest.raises(ToldError) as caught:
        agent.call("apply", token=token)
    assert caught.value.code == "PC-REFUSED"


def test_a_bug_is_an_error_with_a_code_and_the_server_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = new_agent(tmp_path)

    def broken(table: Table) -> Any:
        raise RuntimeError("boom s3://user:secret-word@bucket/x")

    monkeypatch.setattr(Table, "describe", broken)
    with pytest.raises(ToldError) as caught:
        agent.call("describe_table", table="shop.orders")
    assert caught.value.code == "PC-INTERNAL" and "secret-word" not in caught.value.message
    assert agent.call("count_rows", table="shop.orders")["count"] == 20


def test_many_calls_at_once_are_all_answered(tmp_path: Path) -> None:
    agent = new_agent(tmp_path)

    async def many(client: Client) -> list[int]:
        counts: list[int] = []

        async def one() -> None:
            result = await client.call_tool("count_rows", {"table": "shop.orders"})
            counts.append(result.structured_content["data"]["count"])

        async with anyio.create_task_group() as group:
            for _ in range(40):
                group.start_soon(one)
        return counts

    assert agent.with_client(many) == [20] * 40


def test_agents_have_the_tables_of_the_warehouse_only(tmp_path: Path) -> None:
    assert Agent(new_agent(tmp_path).warehouse).call("list_databases")["databases"][0]["database"] == "shop"


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    new_agent(tmp_path)
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PATH": place},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(row["id"] for row in ast.literal_eval(done.stdout)) == [0, 1, 2]


def test_the_page_names_every_tool_and_the_bounds_of_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents.md").read_text(encoding="utf-8")
    for name in (READING_TOOLS + CHANGING_TOOLS).tools:
        assert f"`{name}`" in page, name
    assert f"| 100, at most {MAX_ROWS:,} (`limit`) |" in page and DEFAULT_ROWS == 100
    assert f"| {MAX_ANSWER_BYTES >> 10} kB, {MOST_TEXT:,}; " in page
    for block in re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        json.loads(block)
