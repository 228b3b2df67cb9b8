"""The page of `report`: true figures, nothing from outside, escaped texts, and a size that does not grow with the table."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.inspect import report_cost
from paimon_cli.inspect import report_figures as figures_module
from paimon_cli.inspect.charts import (
    LABELS,
    NARROW,
    WIDE,
    Axis,
    Bar,
    Line,
    Part,
    Range,
    bars,
    binned,
    lines,
    nice_ceiling,
    ranges,
)
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.report_figures import RANDOM_USERS, Moment, ReportFigures, report_figures
from paimon_cli.inspect.report_page import _ends
from paimon_cli.options.option_text import human_size
from paimon_cli.storage.threads import cached_property
from tests.goldens import golden_table

SHAPE = pa.schema([pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
VOID = {"meta", "br"}


def rows(keys: range, partition: str = "a", value: str = "x") -> pa.Table:
    return pa.table({"p": [partition] * len(keys), "k": list(keys), "v": [value] * len(keys)}, schema=SHAPE)


def keyed(folder: Path, name: str = "t", **options: str) -> Table:
    settings = {"bucket": "2", "write-only": "true", **options}
    return Table.create(str(folder / name), schema=SHAPE, primary_key=["p", "k"], partition_by=["p"], options=settings)


def figures_of(table: Table) -> ReportFigures:
    return report_figures(table.context, table.name, table.name)


class Page(HTMLParser):
    """The content of a page: tags that are not closed, charts without a name, and all texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page_of(table: Table, folder: Path) -> tuple[str, Page]:
    table.report(str(folder / "page.html"), force=True)
    text = (folder / "page.html").read_text(encoding="utf-8")
    return text, Page(text)


def test_history_is_what_each_snapshot_shows(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(6):
        table.write(rows(range(number, number + 20), "ab"[number % 2]))
        if number in (2, 4):
            table.compact(strategy="full")
    table.write(rows(range(3), "a"), overwrite=True)
    table.delete(where="k = 1")
    moments = figures_of(table).history
    assert [moment.snapshot_id for moment in moments] == list(table.snapshot_ids())
    for moment in moments:
        buckets = table.buckets(snapshot=moment.snapshot_id)
        assert moment.files == sum(bucket.files for bucket in buckets)
        assert moment.size == sum(bucket.size for bucket in buckets)
        runs = [bucket.sorted_runs or 0 for bucket in buckets]
        assert moment.most_runs == max(runs)
        assert moment.mean_runs == round(sum(runs) / len(runs), 2)
        trees = table.lsm(snapshot=moment.snapshot_id)
        oldest, size = sum(tree.runs[-1].size for tree in trees), sum(run.size for tree in trees for run in tree.runs)
        assert moment.space_percent == 100 * (size - oldest) // oldest


@pytest.mark.parametrize(
    ("writer", "name"),
    [
        ("java-0.9", "tags_and_expire"),
        ("java-1.4", "append"),
        ("java-1.4", "deletion_vectors"),
        ("java-1.4", "postpone"),
        ("java-1.4", "dynamic"),
    ],
)
def test_tables_of_every_kind(tmp_path: Path, writer: str, name: str) -> None:
    table = Table.open(str(golden_table(writer, name, tmp_path)))
    text, page = page_of(table, tmp_path)
    charts = page.tags.count("svg")
    assert charts >= 4 and text.count("<title id=") == text.count("<desc id=") == charts
    assert page.tags.count("details") >= 3
    assert not re.search(r"https?:|//|<script|<img|<link|@import|url\(", text.replace(table.url, ""))


def test_a_table_without_commits(tmp_path: Path) -> None:
    text, page = page_of(keyed(tmp_path), tmp_path)
    assert "Nothing has been committed yet." in page.texts and "svg" not in page.tags
    assert "none yet" in text


def test_texts_of_the_table_are_escaped(tmp_path: Path) -> None:
    table = keyed(tmp_path, "<b>&'x\"")
    evil = "</title><script>alert(1)</script>\x1b[31m"
    table.write(rows(range(3), "<i>p"), commit_user=evil, commit_id=1)
    table.alter.set({"fields.v.aggregate-function": "last_value"})
    text, page = page_of(table, tmp_path)
    assert "<script" not in text and "<i>p" not in text and "\x1b" not in text
    assert any("</title><script>alert(1)</script>\N{REPLACEMENT CHARACTER}[31m" in shown for shown in page.texts)
    assert any(shown.endswith("<b>&'x\"") for shown in page.texts)


def test_history_is_bytes_and_records_of_each_commit(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(3):
        table.write(rows(range(10 * (number + 1))))
    table.compact(strategy="full")
    history = figures_of(table).history
    assert [moment.written_rows for moment in history] == [10, 20, 30, 30]
    assert [moment.kind for moment in history] == ["APPEND", "APPEND", "APPEND", "COMPACT"]
    added = [sum(file.size for file in table.files(snapshot=number)) for number in (1, 2)]
    assert [history[0].written_bytes, (history[1].written_bytes or 0) + added[0]] == added
    text, page = page_of(table, tmp_path)
    assert {"Bytes written by each commit", "Records written by each commit"} <= set(page.texts)
    assert "snapshot 3: 30, APPEND" in text and "snapshot 4: 30, COMPACT" in text


def test_a_paragraph_says_why_reads_cost_what_they_cost_and_what_to_do(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"num-sorted-run.compaction-trigger": "3"})

    def said() -> str:
        return re.sub(r"<[^>]+>", "", page_of(table, tmp_path)[0].partition("and why</h2>\n<p>")[2].partition("</p>")[0])

    table.write(rows(range(50)))
    assert "merges nothing: each bucket is a single sorted run" in said() and "compact" not in said().partition("run.")[0]
    table.write(rows(range(50)))
    assert "merges 2 sorted runs per bucket, at most 2." in said()
    assert f"If it is read often and written rarely, paimon-cli compact {table.url} merges each bucket into one run" in said()
    table.write(rows(range(50)))
    table.write(rows(range(5), "quiet"))
    debt = figures_of(table).debt
    assert (
        f"A compaction is due in {debt.due} of {debt.buckets} buckets: paimon-cli compact {table.url} --strategy minor" in said()
    )
    assert "need no merge" in said() and "lie at level 0" in said()
    append = Table.create(str(tmp_path / "append"), schema=SHAPE)
    append.write(rows(range(5)))
    table = append
    assert "opens 1 file of" in said() and "Small files make it slower" in said()


def test_rows_that_wait_for_buckets_are_in_no_sorted_run(tmp_path: Path) -> None:
    """They used to count as sorted runs of a bucket, and as space that a compaction would free."""
    table = keyed(tmp_path, **{"bucket": "-2", "postpone.default-bucket-num": "1"})
    table.write(rows(range(100)))
    table.compact(strategy="minor")
    (merged,) = table.files()
    for n in range(3):
        table.write(rows(range(n, 50)))
    figures = figures_of(table)
    assert figures.runs_of_buckets == {1: 1}
    waiting = sum(file.file_size for file in figures.waiting)
    assert (len(figures.waiting), waiting) == (3, figures.description.size - merged.size)
    assert figures.debt.level_0_bytes == merged.size
    last = figures.history[-1]
    assert (last.files, last.most_runs, last.mean_runs, last.space_percent) == (4, 1, 1.0, 0)
    names = [(bucket.bucket, bucket.runs) for bucket in figures.buckets]
    assert names == [("p=a / bucket 0", 1), ("p=a / waiting for buckets", None)]
    assert [tree.bucket for tree in figures.trees] == ["p=a / bucket 0"]
    page = page_of(table, tmp_path)[0]
    assert f"3 files of {human_size(waiting)} wait for buckets: no read shows their rows before a compaction" in page
    assert f"A read of the whole table opens 1 file of {human_size(merged.size)}, and merges nothing" in page


def test_rows_that_reads_merge_before_they_have_buckets(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"bucket": "-2", "postpone.default-bucket-num": "1", "postpone.merge-on-read": "true"})
    table.write(rows(range(100)))
    alone = page_of(table, tmp_path)[0]
    assert "1 file of" in alone and "waits for buckets: each read merges its rows until a compaction." in alone
    table.compact(strategy="minor")
    table.write(rows(range(50)))
    page = page_of(table, tmp_path)[0]
    assert "A read of the whole table opens 2 files of" in page
    assert "merges nothing" not in page and "cannot be cheaper" not in page


def test_a_report_of_an_older_snapshot_shows_the_table_as_it_was(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for _ in range(4):
        table.write(rows(range(10)))
    table.compact(strategy="full")
    found = report_figures(table.context, table.name, table.name, 3)
    assert (found.at_snapshot, found.description.snapshot_id, found.history[-1].snapshot_id) == (3, 3, 3)
    assert [kind for _, kind in found.kinds] == ["APPEND"] * 3
    assert sum(bucket.files for bucket in found.buckets) == len(table.files(snapshot=3)) == found.description.files
    table.report(str(tmp_path / "old.html"), snapshot=3)
    assert "The files and the history at snapshot 3." in (tmp_path / "old.html").read_text()
    with pytest.raises(NotFound):
        table.report(str(tmp_path / "none.html"), snapshot=9)


def test_the_time_axis_has_seconds_where_it_is_short(tmp_path: Path) -> None:
    def moment(number: int, millis: int) -> Moment:
        return Moment(number, millis, 1, 1, None, None, None)

    day, noon = 86_400_000, 43_200_000
    assert _ends(moment(1, noon), moment(8, noon + 61_000)) == ("1: 1970-01-01 12:00:00", "8: 12:01:01")
    assert _ends(moment(1, noon), moment(8, noon + 7_200_000)) == ("1: 1970-01-01 12:00", "8: 14:00")
    assert _ends(moment(1, noon), moment(8, noon + day)) == ("1: 1970-01-01 12:00", "8: 1970-01-02 12:00")


def test_each_chart_is_drawn_for_narrow_windows_too(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for _ in range(3):
        table.write(rows(range(20), "a long name of a partition"))
    text, page = page_of(table, tmp_path)
    assert text.count('<div class="wide">') == text.count('<div class="narrow">') == page.tags.count("figure")
    assert f'viewBox="0 0 {NARROW.width} ' in text and NARROW.width <= 360, "texts keep their size in a window of 400 pixels"
    assert 'class="scroll"><svg' not in text
    assert "@media print" in text and "How many sorted runs of a bucket a reader opens and merges" in text
    places = [
        float(x)
        for x in re.findall(r'(?:x|x1|x2)="(-?[0-9.]+)"', text.partition('<div class="narrow">')[2].partition("</svg>")[0])
    ]
    assert places and max(places) <= NARROW.width


def test_users_with_random_names_are_one_row(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(3):
        table.write(rows(range(2)))
        table.write(rows(range(2)), commit_user="etl", commit_id=number)
    table.write(rows(range(2)), commit_user="late", commit_id=1)
    found = [(row.user, row.users, row.commits) for row in figures_of(table).committers]
    assert found == [("etl", 1, 3), (RANDOM_USERS, 3, 3), ("late", 1, 1)]


def test_figures_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("_MAX_BUCKETS", 3), ("MAX_TREES", 2), ("MAX_RUNS", 4), ("MAX_USERS", 3), ("MAX_CHANGES", 5)):
        monkeypatch.setattr(figures_module, name, most)
    table = keyed(tmp_path)
    for number in range(8):
        table.write(rows(range(40), f"p{number % 4}"), commit_user=f"user {number}", commit_id=1)
        table.write(rows(range(40), "busy"), commit_user="user 0", commit_id=2 + number)
    found = figures_of(table)
    assert len(found.buckets) == 3 and found.bucket_count == 10
    assert sum(found.runs_of_buckets.values()) == 10
    assert [len(tree.runs) for tree in found.trees] == [4, 4] and found.trees[0].runs_left == 4
    assert [run.run for run in found.trees[0].runs] == [1, 2, 3, 8]
    assert [row.user for row in found.committers] == ["user 0", "user 1", "others"]
    assert found.committers[-1].users == 6 and sum(row.commits for row in found.committers) == 16
    assert len(found.history) == 5 and found.history_ends == "the newest 5 of 16 snapshots"
    assert found.history[-1].snapshot_id == 16


def test_a_history_ends_where_changes_cannot_be_read(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for _ in range(4):
        table.write(rows(range(5)))
    table.tags.create("kept", snapshot=1)
    table.expire(retain_max=2, retain_min=1)
    (tmp_path / "t" / "snapshot" / "snapshot-1").write_bytes((tmp_path / "t" / "tag" / "tag-kept").read_bytes())
    found = figures_of(Table.open(str(tmp_path / "t")))
    assert [moment.snapshot_id for moment in found.history] == [3, 4]


def test_debt_is_what_compact_plans(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"num-sorted-run.compaction-trigger": "3"})
    for _ in range(3):
        table.write(rows(range(50)))
    table.write(rows(range(5), "quiet"))
    debt = figures_of(table).debt
    planned = [bucket for bucket in table.lsm() if bucket.output_level is not None]
    assert debt.due == len(planned) > 0 and debt.buckets == len(table.lsm())
    assert debt.read_bytes == sum(run.size for bucket in planned for run in bucket.runs if run.picked)
    assert debt.level_0_bytes == sum(file.size for file in table.files(level=0))


def test_a_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    table, page = keyed(tmp_path), tmp_path / "page.html"
    page.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        table.report(str(page))
    assert page.read_text() == "mine"
    assert table.report(str(page), force=True).size == page.stat().st_size


@pytest.mark.parametrize(
    ("value", "base", "ceiling"),
    [(0, 10, 1), (7, 10, 8), (10, 10, 10), (1001, 10, 1500), (0.3, 10, 0.3), (5 << 20, 1024, 5 << 20), (900, 1024, 1000)],
)
def test_axes_end_at_round_numbers(value: float, base: int, ceiling: float) -> None:
    assert nice_ceiling(value, base) == pytest.approx(ceiling)


def test_long_lines_keep_their_peaks_and_their_end() -> None:
    points = [(float(n), 1.0) for n in range(100_000)]
    points[77_777] = (77_777.0, 50.0)
    points[-1] = (99_999.0, 25.0)
    _, body = lines([Line(points, filled=False)], Axis(str), Axis(str))
    path = next(part for part in body if part.startswith("<path"))
    assert len(path) < 10_000 and "V14.0" in path and path.endswith('V69.0H712"/>')


def test_groups_are_neighbours() -> None:
    assert [list(group) for group in binned(range(7), 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert binned([], 3) == []


def test_long_labels_fit_left_of_their_bars() -> None:
    name = f"p={'m' * 60} / bucket 17"
    _, (label, *_) = bars([Bar(name, [Part(1, "bar", "")], "")])
    shown = label.rpartition("</text>")[0].rpartition(">")[2]
    assert shown.startswith("p=m") and shown.endswith(" / bucket 17") and f"<title>{name}</title>" in label
    assert 6.8 * len(shown) <= LABELS - 8, "pixels of an average letter"


def test_bytes_by_what_keeps_them_are_those_of_cost(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(20)))
    table.tags.create("first <i>")
    table.write(rows(range(30)))
    table.compact(strategy="full")
    (Path(table.url.removeprefix("file://")) / "p=a" / "bucket-0" / "data-lost-0.parquet").write_bytes(b"12345")
    text, page = page_of(table, tmp_path)
    cost = table.cost()
    assert len(cost.rows) >= 4 and "What is stored, and what keeps it" in page.texts
    for row in cost.rows:
        place = page.texts.index(row.owner)
        assert page.texts[place + 1 : place + 4 : 2] == [f"{row.files:,}", f"{row.bytes:,}"]
    assert f"{cost.files:,} files of {human_size(cost.bytes)}" in text and "<i>" not in text
    assert "What services did" not in text, "the table is in no warehouse"


def test_what_a_damaged_version_keeps_is_not_told(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(20)))
    table.tags.create("a")
    (Path(table.url.removeprefix("file://")) / "tag" / "tag-a").write_text("{")
    assert any(each.startswith("It cannot be told what keeps the files") for each in page_of(table, tmp_path)[1].texts)


def test_many_owners_are_added_up(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(report_cost.SHOWN_OWNERS + 4):
        table.write(rows(range(3)))
        table.tags.create(f"t{number}")
    page = page_of(table, tmp_path)[1]
    others = len(table.cost().rows) - report_cost.SHOWN_OWNERS
    assert others > 0 and f"{others} others" in page.texts


def test_ranges_are_as_long_as_they_reach() -> None:
    for sheet in (WIDE, NARROW):
        _, body = ranges([Range("run 1", 0.5, 0.75, "level0", "a", "b"), Range("run 2", 0.25, 0.25, "level0", "a", "b")], sheet)
        full = sheet.width - sheet.labels - sheet.notes
        drawn = [
            tuple(map(float, found)) for found in re.findall(r'<rect [^>]*?x="([\d.]+)"[^>]*? width="([\d.]+)"', "".join(body))
        ]
        assert drawn == [(sheet.labels + full * 0.5, full * 0.25), (sheet.labels + full * 0.25, 2.0)]


def test_the_last_commit_of_a_user_is_its_newest(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(6):
        table.write(rows(range(2)), commit_user=f"user {number % 2}", commit_id=number)
    newest = {snapshot.commit_user: snapshot.time_millis for snapshot in reversed(list(table.context.snapshots.newest_first()))}
    assert {row.user: row.last for row in figures_of(table).committers} == newest and len(newest) == 2


def test_a_commit_that_comes_in_while_the_figures_are_read_is_no_part_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the files of one snapshot would be shown as those of the next, and each older one be wrong by its changes."""
    table = keyed(tmp_path)
    for number in range(3):
        table.write(rows(range(number, number + 20)))
    before = figures_of(table)

    class Overtaken(ExaminedTable):
        @cached_property
        def all_buckets(self) -> list[BucketFiles]:
            found = list(super().all_buckets)
            Table.open(table.url).write(rows(range(500), "new"))
            return found

    monkeypatch.setattr(figures_module, "ExaminedTable", Overtaken)
    found = figures_of(table)
    assert Table.open(table.url).snapshot().id == before.history[-1].snapshot_id + 1
    assert (found.history, found.kinds, found.committers) == (before.history, before.kinds, before.committers)
