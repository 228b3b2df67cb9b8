"""What notebooks show: hostile cells and names are text, and everything is bounded."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Catalog, Table
from paimon_cli.api import notebook

HOSTILE = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "'\"&amp;", "a\x1b[31m\u202eb\x00c", "x" * 10_000, None]
TAGS = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "small"}


class Seen(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(thing: Any) -> Seen:
    page = thing._repr_html_()
    assert len(page) < 60_000
    seen = Seen(page)
    assert seen.tags <= TAGS and {name for name, _ in seen.attributes} <= {"style"}
    assert all(text.isprintable() for text in seen.texts)
    return seen


@pytest.fixture
def table(tmp_path: Path) -> Table:
    name = "<b>bold</b>"
    table = Table.create(tmp_path / "t&t", columns=["k INT NOT NULL", f"`{name}` STRING"], primary_key="k", bucket=1)
    table.write(pa.table({"k": pa.array(range(6), pa.int32()), name: HOSTILE}))
    return table


def test_hostile_cells_and_names_are_text(table: Table) -> None:
    seen = shown(table.scan())
    assert "<script>alert(1)</script>" in seen.texts and "<b>bold</b>" in seen.texts and "NULL" in seen.texts
    assert "<b>bold</b>" in shown(table).texts


def test_a_table_shows_its_columns_snapshot_and_levels(table: Table) -> None:
    texts = " ".join(shown(table).texts)
    for part in ("INT NOT NULL", "key", "snapshot 1 of", "6 records", "1 file,", "level 0"):
        assert part in texts
    table.compact(strategy="full")
    assert "level 5" in " ".join(shown(table).texts)


def test_a_scan_shows_ten_rows(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=["k INT", "t TIMESTAMP(9)", "m MAP<STRING, INT>"])
    assert "no snapshot yet" in " ".join(shown(table).texts)
    table.write({"k": pa.array(range(1_000), pa.int32()), "t": pa.array([2**62] * 1_000, pa.timestamp("ns"))})
    texts = shown(table.scan()).texts
    assert texts.count("NULL") == 10 and "9" in texts and "10" not in texts and "the first 10 rows" in texts
    assert shown(table.scan(limit=3)).texts.count("NULL") == 3
    assert "the first 10 rows" not in shown(table.scan(limit=3)).texts


def test_a_scan_that_would_read_much_shows_no_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_MAX_READ", 10)
    assert any("no rows are shown" in text for text in shown(table.scan()).texts)


def test_an_error_is_shown_and_not_raised(table: Table) -> None:
    scan = table.scan()
    for file in (Path(table.url) / "bucket-0").glob("data-*"):
        file.write_bytes(b"<damaged>")
    assert any("damaged" in text or "cannot" in text for text in shown(scan).texts)


def test_many_columns_are_bounded(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=[f"c{number} STRING" for number in range(300)])
    table.write({f"c{number}": ["x" * 1_000] for number in range(300)})
    assert "the first 30 of 300 columns" in " ".join(shown(table.scan()).texts)
    assert "the first 50 rows" in " ".join(shown(table).texts)


def test_summaries_and_plans_say_what_matters(table: Table) -> None:
    done = table.update(values={"<b>bold</b>": "x"}, where="k = 1")
    assert {"rows", "1", "snapshots", "[snapshot 2]"} <= set(shown(done).texts)
    plan = table.scan(where="k = 1").explain()
    assert len(repr(plan)) < 400 and "files_skipped_by_bucket" not in repr(plan)
    assert "files to read" in shown(plan).texts
    planned = table.plan_truncate()
    assert "function" not in repr(planned) and shown(planned)


def test_reports_and_plans_of_all_kinds_are_tables(table: Table) -> None:
    """Also those without a run: what holds several results, such as findings, is a table of its own."""
    for number in range(12):
        table.update(values={"<b>bold</b>": str(number)}, where="k = 1", compact="none")
    plan = table.plan_compaction()
    assert {"decisions", "bucket", "snapshot id"} <= set(shown(plan).texts)
    health = table.health()
    assert {"verdict", "findings", "warning", "severity"} <= set(shown(health).texts)
    for result in (table.verify(), table.describe(), table.schema(), table.plan_fix(), table.plan_maintenance()):
        assert shown(result).texts
    rows = Catalog(str(Path(table.url).parent)).compare(f"{table.url}@1", table.url)
    assert {"differing columns", "differences"} <= set(shown(rows).texts)


def test_tags_branches_and_consumers_are_tables(table: Table) -> None:
    table.tags.create("year-end")
    assert {"tags", "year-end", "snapshot id"} <= set(shown(table.tags).texts)
    assert {"branches", "main"} <= set(shown(table.branches).texts)
    assert "none" in shown(table.consumers).texts
