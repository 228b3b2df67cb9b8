"""`blame` and `snapshots diff`: the versions of a key, and the changes between two snapshots."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from paimon_cli.history.table_context import TableContext
from tests import tables
from tests.cli.calling import Run
from tests.goldens import golden_table
from tests.nightly import first


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    """Key 7: written, changed, moved by a compaction, deleted."""
    columns = {"dt": "DATE NOT NULL", "id": "INT NOT NULL", "name": "STRING"}
    made = tables.make_table(tmp_path / "t", columns, ["dt", "id"], ["dt"], 2)
    tables.write(made, [{"dt": "2026-01-01", "id": n, "name": f"n{n}"} for n in range(20)], commit_user="etl")
    tables.write(made, [{"dt": "2026-01-01", "id": 7, "name": "it's me"}], commit_user="fix")
    tables.compact(made)
    tables.write(made, [{"dt": "2026-01-01", "id": 7, "name": "x", "_op": "-D"}], commit_user="gone")
    return made


def test_blame(run: Run, context: TableContext) -> None:
    items = run("blame", context.url, "--key", "id=7,dt=2026-01-01", "-o", "json").json["items"]
    shown = [(i["snapshot_id"], i["until"], i["kind"], i["level"], i["values"]["name"]) for i in items]
    assert shown == [(1, 3, "+I", 0, "n7"), (2, 3, "+I", 0, "it's me"), (3, None, "+I", 5, "it's me"), (4, None, "-D", 0, "x")]
    assert [i["commit_user"] for i in items][:2] == ["etl", "fix"] and items[2]["commit_kind"] == "COMPACT"
    assert items[0]["sequence"] == "7" or int(items[0]["sequence"]) < int(items[1]["sequence"]) == int(items[2]["sequence"])
    assert "4 versions" in run("blame", context.url, "--key", "id=7").out
    assert run("blame", context.url, "--key", "id=700", "-o", "json").json["items"] == []


def test_blame_tells_who_wrote_and_what_readers_saw(run: Run, context: TableContext, tmp_path: Path) -> None:
    html = tmp_path / "key.html"
    items = run("blame", context.url, "--key", "id=7,dt=2026-01-01", "--html", str(html), "-o", "json").json["items"]
    assert [i["seen"] and i["seen"]["name"] for i in items] == ["n7", "it's me", "it's me", None]
    assert {i["engine"] for i in items} == {"paimon-cli"}
    text = html.read_text()
    assert text.count("<tr") == 5 and text.count('class="changed"') == 3 and "no row" in text and "COMPACT" in text
    assert "it&#x27;s me" in text and "<script" not in text
    run("blame", context.url, "--key", "id=7", "--html", str(html), code=2)
    run("blame", context.url, "--key", "id=7", "--html", str(html), "--force")
    run("blame", context.url, "--key", "id=7", "--force", code=2)


def test_files_name_the_library_that_wrote_them(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "dedup_unpartitioned_levels", tmp_path)
    key = tables.rows(TableContext.open(str(table)))[0]["k"]
    items = run("blame", str(table), "--key", f"k={key}", "-o", "json").json["items"]
    assert items and {i["engine"].partition(" version")[0] for i in items} == {"Java: parquet-mr"}


def test_blame_without_the_first_snapshots_or_files(run: Run, context: TableContext) -> None:
    victim = next(Path(context.url).glob("dt=*/bucket-*/*"))
    Path(context.layout.snapshot(1)).unlink()
    items = run("blame", context.url, "--key", "id=7", "-o", "json").json["items"]
    assert [i["snapshot_id"] for i in items] == [2, 2, 3, 4] and any(i["earlier"] for i in items)
    for path in victim.parent.parent.glob("bucket-*/*"):
        path.unlink()
    assert "not shown" in run("blame", context.url, "--key", "id=7").out


@pytest.mark.parametrize("key", ["name=x", "id=", "id", "id=seven"])
def test_blame_of_a_column_that_is_not_a_key(run: Run, context: TableContext, key: str) -> None:
    run("blame", context.url, "--key", key, code=2)


def test_texts_and_quotes(run: Run, tmp_path: Path) -> None:
    made = tables.make_table(tmp_path / "t", {"k": "STRING NOT NULL", "v": "INT"}, ["k"])
    tables.write(made, [{"k": "o'neil", "v": 1}])
    assert len(run("blame", made.url, "--key", "k=o'neil", "-o", "json").json["items"]) == 1


def test_append_tables_have_no_keys(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "append_unaware", tmp_path)
    assert "no primary key" in run("blame", table, "--key", "a=1", code=2).err
    rows = run("snapshots", "diff", table, "earliest", "latest", "--rows", "-o", "json").json["items"]
    assert rows and {row["kind"] for row in rows} == {"+I"}


def test_files(run: Run, context: TableContext) -> None:
    items = run("snapshots", "diff", context.url, "2", "3", "-o", "json").json["items"]
    assert [i["change"] for i in items if i["level"] == 0] == ["removed"] * sum(i["level"] == 0 for i in items)
    assert {i["level"] for i in items if i["change"] == "added"} == {5}
    assert "0 files added, 0 files removed" in run("snapshots", "diff", context.url, "2", "2").out


def test_rows(run: Run, context: TableContext) -> None:
    def changes(before: object, after: object) -> list[tuple[str, str]]:
        items = run("snapshots", "diff", context.url, before, after, "--rows", "-o", "json").json["items"]
        return [(i["kind"], i["values"]["name"]) for i in items]

    assert changes(1, 2) == [("-U", "n7"), ("+U", "it's me")] and changes(2, 3) == []
    assert changes(3, 4) == [("-D", "it's me")] and changes(4, 1) == [("+I", "n7")]
    assert len(changes(1, "latest")) == 1
    tables.write(context, [{"dt": "2026-01-01", "id": 3, "name": "n3"}])
    assert changes(4, 5) == [], "written once more as it was"
    run("snapshots", "diff", context.url, 1, 9, code=3)
    run("snapshots", "diff", context.url, 1, 2, "--rows", "--files", code=2)


@pytest.mark.parametrize("name", first(1, ["dv_dedup", "dedup_partitioned", "sequence_field"]))
def test_diffs_lead_from_rows_to_rows(run: Run, tmp_path: Path, name: str) -> None:
    """Applied to the rows of one snapshot, the changes give the rows of the next, all along the history."""
    try:
        context = TableContext.open(str(golden_table("java-0.9", name, tmp_path)))
    except KeyError:
        pytest.fail(f"no golden {name}")
    ids = context.snapshots.ids()
    key = context.schema.primary_keys
    for before, after in pairwise(ids):
        rows = {tuple(str(row[c]) for c in key): row for row in tables.rows(context, snapshot_id=before)}
        for item in run("snapshots", "diff", context.url, before, after, "--rows", "-o", "json").json["items"]:
            place = tuple(str(item["values"][c]) for c in key)
            if item["kind"] in ("-U", "-D"):
                assert rows.pop(place) == item["values"]
            else:
                rows[place] = item["values"]
        expected = tables.rows(context, snapshot_id=after)
        assert sorted(map(str, rows.values())) == sorted(map(str, expected))


def test_rows_that_wait_are_not_compared_without_a_word(run: Run, tmp_path: Path) -> None:
    table, rows = tmp_path / "t", tmp_path / "rows.csv"
    rows.write_text("k,v\n1,a\n2,b\n")
    options = ("--option", "deletion-vectors.enabled=true", "--option", "write-only=true")
    run("create", table, "-C", "k INT NOT NULL", "-C", "v STRING", "--primary-key", "k", "--bucket", "1", *options)
    for _ in range(2):
        run("write", table, rows)
    answer = run("snapshots", "diff", table, 1, 2, "--rows")
    assert "0 changes" in answer.out and "4 stored records of snapshot 2 waited for a compaction" in answer.err
