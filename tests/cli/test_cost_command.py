"""`cost` says what a removal frees at once, and what it leaves for which command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.cli.results import human_size
from paimon_cli.errors import DamagedFile
from paimon_cli.inspect.daily_growth import GrowthRow
from paimon_cli.inspect.operation_cost import OperationCost
from paimon_cli.inspect.stored_bytes import CostRow
from paimon_cli.jobs.table_cost import CompactionCost, Saving, TableCost
from tests.cli.calling import Run

KB = 1024


def cost_of(name: str, size: int, month: float | None = None, problem: DamagedFile | None = None, days: int = 1) -> TableCost:
    """The cost of a table with files of these KB."""
    if problem is not None:
        return TableCost(name, month=month, currency="EUR", problem=problem)
    savings = [
        Saving(
            name,
            f"saving {number}",
            1,
            now * KB,
            "rows",
            f"do {number}",
            later * KB,
            "once" if later else "",
            "then",
            7 * KB * number,
        )
        for number, (now, later) in enumerate([(3, 0), (1, 90), (size, 0)])
    ]
    growth = [GrowthRow(name, f"2026-01-{day:02}", 1, (size + day) * KB, 5 * KB, 2 * KB) for day in range(1, days + 1)]
    operations = [OperationCost(name, "write", 1, 2, 3, 4 * KB, 6 * KB, None if month is None else 0.0123456)]
    currency = None if month is None else "EUR"
    due = CompactionCost(name, 1, 2, 8 * KB, 9 * KB, f"compact {name}")
    rows = [CostRow(name, "live", 2, size * KB)]
    return TableCost(name, 2, size * KB, rows, savings, growth, due, operations, month, currency)


@pytest.fixture
def shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the command says of given costs."""

    def of(costs: Sequence[TableCost], *words: str, code: int = 0) -> Any:
        monkeypatch.setattr(Catalog, "cost", lambda *_, **given: costs)
        return run("cost", *(each.table for each in costs), *words, code=code)

    return of


def test_one_table_is_shown_with_its_savings_growth_and_operations(shown: Any) -> None:
    out = shown([cost_of("t", 20, 12345.678, days=9)]).out.splitlines()
    assert "TABLE" not in out[0].upper().split() and "2 files, 20.0 kB, 12,345.68 EUR a month" in out
    at = out.index("1.0 kB in saving 1; loses rows: do 1")
    said = ["1.0 kB in saving 1; loses rows: do 1", "  beyond the 7.0 kB of changelogs that it writes in place of the snapshots"]
    said += ["  then 90.0 kB more, once: then", "20.0 kB in saving 2; loses rows: do 2"]
    said += [
        "  beyond the 14.0 kB of changelogs that it writes in place of the snapshots",
        "3.0 kB in saving 0; loses rows: do 0",
    ]
    assert out[at : at + 6] == said, "the largest first"
    assert out[at + 6].startswith("9.0 kB later, once snapshots expire, in 2 files") and out[at + 6].endswith(
        "8.0 kB at most: compact t"
    )
    days = [f"2026-01-0{day}: {20 + day}.0 kB added (5.0 kB by compactions), 2.0 kB replaced or deleted" for day in range(3, 10)]
    assert out[at + 7 : -1] == days, "the newest"
    assert out[-1] == "a write: 6 requests to an object store, 4.0 kB read, 6.0 kB written, 0.012346 EUR"
    without = shown([cost_of("t", 20)]).out.splitlines()
    assert "2 files, 20.0 kB" in without and without[-1].endswith("6.0 kB written")


def test_several_tables_are_added_up(shown: Any) -> None:
    costs = [cost_of("a", 20, 0.00012, days=2), cost_of("b", 30, 0.5, days=1)]
    out = shown(costs).out.splitlines()
    assert "2 tables, 4 files, 50.0 kB, 0.500120 EUR a month" in out and "TABLE" in out[0].upper().split()
    assert [line for line in out if line.startswith("2026")] == [
        "2026-01-01: 52.0 kB added (10.0 kB by compactions), 4.0 kB replaced or deleted",
        "2026-01-02: 22.0 kB added (5.0 kB by compactions), 2.0 kB replaced or deleted",
    ]
    assert "1 smaller saving: -o json shows all" in out and not any(line.startswith("a write") for line in out)
    found = shown(costs, "-o", "json").json
    assert found["total"] == {"files": 4, "bytes": 50 * KB, "month": 0.50012, "currency": "EUR"}
    counts = {name: len(found[name]) for name in ("items", "savings", "due", "growth", "operations")}
    assert counts == {"items": 2, "savings": 6, "due": 2, "growth": 3, "operations": 2}
    assert shown(costs[:1], "-o", "json").json["items"] == [{"table": "a", "owner": "live", "files": 2, "bytes": 20 * KB}]


def test_a_cost_that_cannot_be_told_is_an_error_beside_the_others(shown: Any) -> None:
    lost, costs = DamagedFile("snapshot-3 is gone", hint="look"), [cost_of("a", 20, 2.0), cost_of("b", 30, 4.0)]
    assert shown([cost_of("x", 0, 0.0, lost)], code=10).err.startswith("error: snapshot-3 is gone")
    found = shown([cost_of("x", 0, 0.0, lost), *costs], code=9)
    assert "3 tables, 4 files, 50.0 kB, 6.00 EUR a month" in found.out
    assert "the cost of 1 table of 3 cannot be told\nx: snapshot-3 is gone\nhint: look" in found.err
    assert "of 2 tables of 4 " in shown([*costs, *[cost_of(name, 0, 0.0, lost) for name in "xy"]], code=9).err


def test_what_a_branch_leaves_is_said_with_the_command_that_deletes_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = Table.create(path, columns=["id BIGINT NOT NULL", "v STRING"], primary_key=["id"], options={"bucket": "1"})
    table.write([{"id": number, "v": f"{number}" * 50} for number in range(200)], compact="none")
    table.branches.create("b 2", snapshot=1)
    table.write([{"id": 1, "v": "newer"}], compact="none")
    table.compact(strategy="full")
    table.expire(retain_max=1)

    (saving,) = [each for each in run("cost", path, "-o", "json").json["savings"] if each["what"] == "branch b 2"]
    now, later = saving["bytes"], saving["freed_later"]
    lines = run("cost", path).out.splitlines()
    at = next(number for number, line in enumerate(lines) if " in branch b 2; " in line)
    assert lines[at].startswith(f"{human_size(now)} in branch b 2; ")
    assert lines[at + 1] == f"  then {human_size(later)} more, {saving['later_when']}: {saving['later_command']}"
    assert saving["later_command"] == f"paimon-cli orphans rm {path} --apply"

    def size() -> int:
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())

    before = size()
    run(*shlex.split(saving["command"])[1:], "--yes")
    assert (before - size(), later > now) == (now, True)
    run(*shlex.split(saving["later_command"])[1:], "--older-than", "0 ms", "--force", "--yes")
    assert before - size() == now + later
