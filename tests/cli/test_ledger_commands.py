"""`ledger`: tells what `maintain --watch` did; damage is a warning, not an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paimon_cli import Table
from paimon_cli.api.ledger import LedgerRow, LedgerTotal
from paimon_cli.cli.app import app
from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.output import records
from paimon_cli.inspect.spent_on_table import spent_on_table
from paimon_cli.maintain.ledger import Ledger
from paimon_cli.options.option_text import human_size
from paimon_cli.storage.local_storage import LocalStorage
from tests.jobs.test_leases import HandClock


def run(*arguments: str, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    columns, options = ["id BIGINT NOT NULL"], {"bucket": "1", "num-sorted-run.compaction-trigger": "2"}
    table = Table.create(tmp_path / "wh/shop.db/orders", columns=columns, primary_key=["id"], options=options)
    for _ in range(4):
        table.write([{"id": 1}], compact="none")
    run("maintain", "--database", "shop", "--warehouse", str(tmp_path / "wh"), "--watch", "--max-rounds", "1", "--yes")
    return tmp_path / "wh"


def test_the_ledger_of_a_warehouse_is_shown(warehouse: Path) -> None:
    (row,) = json.loads(run("ledger", "ls", "--warehouse", str(warehouse), "-o", "json")[0])["items"]
    assert (row["table"], row["runs_before"], row["runs_after"], row["score"]) == ("shop.orders", 4, 1, None)
    (total,) = json.loads(run("ledger", "show", "--since", "7d", "--warehouse", str(warehouse), "-o", "json")[0])["items"]
    assert (total["steps"], total["runs_removed"], total["bytes_read"]) == (1, 3, row["bytes_read"])
    shown = run("ledger", "show", "--warehouse", str(warehouse))[0]
    assert "3 sorted runs merged away" in shown
    assert total["triggers_written"] > 0 and total["history_runs"] is None, "the triggers would have merged the same runs"
    assert "written by compactions, Paimon's triggers would have written" in shown, "no commit followed"


def test_the_sums_of_two_rounds_go_from_before_the_first_to_after_the_last(warehouse: Path) -> None:
    table = Table.open(warehouse / "shop.db/orders")
    for _ in range(3):
        table.write([{"id": number} for number in range(1000)], compact="none")
    run("maintain", "--database", "shop", "--warehouse", str(warehouse), "--watch", "--max-rounds", "1", "--yes")
    first, last = json.loads(run("ledger", "ls", "--warehouse", str(warehouse), "-o", "json")[0])["items"]
    (total,) = json.loads(run("ledger", "show", "--warehouse", str(warehouse), "-o", "json")[0])["items"]
    for figure in ("read_bytes_before", "read_bytes_after"):
        assert first[figure] != last[figure]
    assert (total["read_bytes_before"], total["read_bytes_after"]) == (first["read_bytes_before"], last["read_bytes_after"])
    assert (total["steps"], total["bytes_read"]) == (2, first["bytes_read"] + last["bytes_read"])


def test_the_page_of_a_table_has_the_sums_of_the_last_week(warehouse: Path) -> None:
    page, table = warehouse / "page.html", str(warehouse / "shop.db/orders")
    (total,) = json.loads(run("ledger", "show", "--since", "7d", "--warehouse", str(warehouse), "-o", "json")[0])["items"]
    for arguments in ((table,), ("shop.orders", "--warehouse", str(warehouse))):
        run("report", *arguments, "--html", str(page), "--force")
        text = page.read_text()
        assert "What services did in the last 7 days" in text
        cells = (str(total["steps"]), "0", human_size(total["bytes_read"]), human_size(total["bytes_written"]))
        assert "".join(f'<td class="number">{cell}</td>' for cell in cells) in text
    Table.create(warehouse / "shop.db/other", columns=["id BIGINT"])
    run("report", str(warehouse / "shop.db/other"), "--html", str(page), "--force")
    assert "The ledger of the warehouse has nothing about this table for that time." in page.read_text()


def test_a_damaged_ledger_spoils_no_page(warehouse: Path) -> None:
    """An object that cannot be read is not counted, which the page says."""
    page, ledger = warehouse / "page.html", warehouse / ".paimon-cli/ledger"
    (ledger / "round-1795900000000-4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd-1").write_bytes(b"[" * 99_999)
    found = spent_on_table(Ledger(LocalStorage(), str(warehouse), HandClock(1_795_900_001_000)), "shop.orders")
    assert found is not None and "1 object of the ledger cannot be read" in found.problem
    run("report", str(warehouse / "shop.db/orders"), "--html", str(page))
    assert "What services did in the last 7 days" in page.read_text()


def test_figures_are_rounded() -> None:
    total = LedgerTotal("t", 2, 0, 0, 0, 1.1 + 2.2, 0, 0, 0, 0, 0, 0, 0, 284.97754198264755, 0, "", "", "", 1, 2 / 3, 1, 1 / 3)
    (shown,) = records([total])
    figures = [shown[name] for name in ("seconds", "score", "history_runs", "triggers_runs")]
    assert figures == [3.3, 284.978, 0.667, 0.333]
    texts = {column.name: column.kind.text(getattr(total, column.name)) for column in columns_of(LedgerTotal)}
    assert (texts["seconds"], texts["score"]) == ("3.300", "284.978")
    row = LedgerRow(0, "s", 1, "t", "compacted", 0, 0, 0, 0, 1.1 + 2.2, 0.0, 0, 0, 0, 0, None, None, "", "", "")
    assert [records([row])[0][name] for name in ("seconds", "score")] == [3.3, None]


def test_a_hostile_object_is_named_and_left_out(warehouse: Path) -> None:
    (warehouse / ".paimon-cli/ledger/round-1795900000000-4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd-1").write_bytes(b"[" * 99_999)
    (warehouse / ".paimon-cli/ledger/\x1b[2Jevil").write_bytes(b"")
    shown, said = run("ledger", "ls", "--since", "9999d", "--warehouse", str(warehouse), "-o", "json")
    assert len(json.loads(shown)["items"]) == 1
    assert said.count("left out") == 2 and "\x1b" not in said


def test_a_table_without_a_warehouse_has_no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PAIMON_WAREHOUSE", raising=False)
    run("ledger", "ls", code=8)


def test_an_empty_ledger_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "wh").mkdir()
    assert "0 steps" in run("ledger", "ls", "--warehouse", str(tmp_path / "wh"))[0]
