"""`cost`: the parts add up to the listing of the directory, and what is predicted is what removals free."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.catalog import table_listing
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import bucket_files
from paimon_cli.inspect.compaction_report import decision_rows
from paimon_cli.jobs.table_cost import Saving
from tests.goldens import GOLDENS, Golden, golden_table

DAYS_AGO = 3 * 86_400


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def files_in(directory: Path) -> int:
    return sum(path.is_file() for path in directory.rglob("*"))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Twelve commits, three of them compactions, two tags, a branch and a consumer."""
    path = tmp_path / "wh" / "shop.db" / "orders"
    made = Table.create(path, columns=["id BIGINT NOT NULL", "v STRING"], primary_key=["id"], options={"bucket": "2"})
    for commit in range(9):
        made.write([{"id": number, "v": f"{commit}-{number}" * 20} for number in range(commit, commit + 40)], compact="none")
        if commit % 3 == 1:
            made.compact(strategy="full")
        if commit in (2, 5):
            made.tags.create(f"after-{commit}")
    made.branches.create("dev", tag="after-2")
    Table.open(path, branch="dev").write([{"id": 1000, "v": "of the branch"}], compact="none")
    return made


def parts(table: Table) -> dict[str, tuple[int, int]]:
    return {row.owner: (row.files, row.bytes) for row in table.cost().rows}


def savings(table: Table) -> dict[str, tuple[int, int]]:
    return {saving.what: (saving.files, saving.bytes) for saving in table.cost().savings}


def saving_of(table: Table, what: str) -> Saving:
    return next(saving for saving in table.cost().savings if saving.what == what)


def directory_of(table: Table) -> Path:
    return Path(table.context.url)


def test_the_parts_add_up_to_the_directory(table: Table) -> None:
    cost = table.cost()
    assert (cost.files, cost.bytes) == (files_in(directory_of(table)), size_of(directory_of(table)))
    assert sum(row.bytes for row in cost.rows) == cost.bytes
    assert sum(row.files for row in cost.rows) == cost.files
    assert {row.owner for row in cost.rows} >= {"live", "snapshots before 12", "tag after-5", "branch dev"}


def test_live_files_are_those_of_the_latest_snapshot(table: Table) -> None:
    assert parts(table)["live"][1] >= sum(file.size for file in table.files())
    table.expire(retain_max=1)
    for name in ("after-2", "after-5"):
        table.tags.rm(name)
    assert {owner for owner in parts(table) if "branch" not in owner} == {"live"}


def test_an_expiry_frees_what_was_predicted(table: Table) -> None:
    predicted = savings(table)["all snapshots but the latest"]
    before = size_of(directory_of(table)), files_in(directory_of(table))
    table.expire(retain_max=1)
    hint = directory_of(table) / "snapshot" / "EARLIEST"  # the only new file
    assert before[0] - size_of(directory_of(table)) + hint.stat().st_size == predicted[1]
    assert before[1] - files_in(directory_of(table)) + 1 == predicted[0]


@pytest.mark.parametrize("is_expired", (False, True))
def test_a_tag_frees_what_was_predicted(table: Table, is_expired: bool) -> None:
    if is_expired:
        table.expire(retain_max=1)
    predicted = savings(table)["tag after-5"]
    before = size_of(directory_of(table)), files_in(directory_of(table))
    table.tags.rm("after-5")
    assert (before[1] - files_in(directory_of(table)), before[0] - size_of(directory_of(table))) == predicted
    assert (predicted[0] > 1) == is_expired  # while the snapshots are there, the tag keeps nothing but its own file


def test_a_consumer_keeps_what_the_expiry_would_free(table: Table) -> None:
    table.consumers.reset("nightly", next_snapshot=3)
    table.alter.set({"snapshot.num-retained.max": "1", "snapshot.num-retained.min": "1"})
    opened = Table.open(directory_of(table))
    opened.expire()
    predicted = saving_of(opened, "snapshots that only consumer nightly keeps")
    before = size_of(directory_of(table)), files_in(directory_of(table))
    opened.consumers.rm("nightly")
    between = size_of(directory_of(table)), files_in(directory_of(table))
    assert (before[0] - between[0], before[1] - between[1]) == (predicted.bytes, predicted.files)
    opened.expire()
    longer_hint = 1  # EARLIEST is 12 instead of 3
    assert between[0] - size_of(directory_of(table)) + longer_hint == predicted.freed_later > 1000
    assert predicted.later_command == f"paimon-cli expire {directory_of(table)}"


def test_a_consumer_keeps_what_is_too_young_for_the_expiry_of_the_table(table: Table) -> None:
    table.consumers.reset("nightly", next_snapshot=3)
    predicted = saving_of(table, "snapshots that only consumer nightly keeps")
    assert predicted.later_command == f"paimon-cli expire {directory_of(table)} --retain-max 1"
    table.expire(retain_max=1)
    table.consumers.rm("nightly")
    between = size_of(directory_of(table))
    table.expire(retain_max=1)
    longer_hint = 1
    assert between - size_of(directory_of(table)) + longer_hint == predicted.freed_later > 1000


def test_what_an_expiry_writes_is_not_freed(tmp_path: Path) -> None:
    """Where changelogs outlive snapshots, each snapshot that goes becomes one."""
    made = Table.create(
        tmp_path / "wh" / "shop.db" / "t",
        columns=["id BIGINT NOT NULL", "v STRING"],
        primary_key=["id"],
        options={"bucket": "1", "write-only": "true", "changelog-producer": "input", "changelog.time-retained": "1 d"},
    )
    for commit in range(6):
        made.write([{"id": number, "v": f"{commit}"} for number in range(40)], compact="none")
    predicted, before = saving_of(made, "all snapshots but the latest"), size_of(directory_of(made))
    made.expire(retain_max=1)
    hints = sum((directory_of(made) / name).stat().st_size for name in ("snapshot/EARLIEST", "changelog/LATEST"))
    written = sum(path.stat().st_size for path in directory_of(made).glob("changelog/changelog-*"))
    assert predicted.bytes_written == written > 0
    assert before - size_of(directory_of(made)) + hints == predicted.bytes


def test_changelogs_that_are_not_due_may_go_at_once(tmp_path: Path) -> None:
    made = Table.create(
        tmp_path / "wh" / "shop.db" / "t",
        columns=["id BIGINT NOT NULL", "v STRING"],
        primary_key=["id"],
        options={"bucket": "1", "write-only": "true", "changelog-producer": "input", "changelog.time-retained": "1 d"},
    )
    for commit in range(6):
        made.write([{"id": number, "v": f"{commit}"} for number in range(40)], compact="none")
    made.expire(retain_max=1)
    assert not [what for what in savings(made) if what == "changelogs that are due to expire"]
    predicted = saving_of(made, "all changelogs that may go")
    assert predicted.command.endswith(" --what changelogs --retain-max 1") and predicted.bytes > 1000
    before = {path: path.stat().st_size for path in directory_of(made).rglob("*") if path.is_file()}
    made.expire(what="changelogs", retain_max=1)
    gone = [size for path, size in before.items() if not path.exists()]
    assert (len(gone), sum(gone)) == (predicted.files, predicted.bytes)
    assert "all changelogs that may go" not in savings(made)


@pytest.mark.parametrize("producer", ["input", "none"])
def test_changelogs_keep_nothing_that_went_with_their_snapshots(tmp_path: Path, producer: str) -> None:
    """A tag keeps the manifests of compactions whose files are gone."""
    made = Table.create(
        tmp_path / "wh" / "shop.db" / "t",
        columns=["id BIGINT NOT NULL", "v STRING"],
        primary_key=["id"],
        options={"bucket": "1", "write-only": "true", "changelog-producer": producer, "changelog.time-retained": "1 d"},
    )
    for commit in range(9):
        made.write([{"id": number, "v": f"{commit}"} for number in range(40)], compact="none")
        if commit % 3 == 2:
            made.compact(strategy="full")
    made.tags.create("one")
    made.write([{"id": 1, "v": "later"}], compact="none")
    made.expire(retain_max=1, retain_min=1)
    predicted = saving_of(made, "all changelogs that may go")
    before = {path: path.stat().st_size for path in directory_of(made).rglob("*") if path.is_file()}
    said = made.expire(what="changelogs", retain_max=1, retain_min=1)
    gone = [size for path, size in before.items() if not path.exists()]
    assert (len(gone), sum(gone)) == (predicted.files, predicted.bytes) == (said.files, said.size)
    assert made.verify().violations == []
    assert made.orphan_rows(made.plan_orphans(older_than="0 s", force=True).plan) == []


def test_a_branch_frees_its_directory_and_leaves_its_data_to_the_cleaning_of_orphans(table: Table) -> None:
    """Nothing else keeps what the branch was made of, nor what was written to it."""
    table.expire(retain_max=1)
    table.tags.rm("after-2")
    predicted = saving_of(table, "branch dev")
    before = size_of(directory_of(table)), files_in(directory_of(table))
    table.branches.rm("dev")
    between = size_of(directory_of(table))
    assert (before[0] - between, before[1] - files_in(directory_of(table))) == (predicted.bytes, predicted.files)
    assert parts(table)["uncommitted"][1] == predicted.freed_later > predicted.bytes
    assert predicted.later_command == f"paimon-cli orphans rm {directory_of(table)} --apply"
    for path in directory_of(table).rglob("*"):
        os.utime(path, (path.stat().st_mtime - DAYS_AGO,) * 2)
    assert table.remove_orphans()[1] == predicted.freed_later
    assert between - size_of(directory_of(table)) == predicted.freed_later


def test_a_branch_whose_files_others_keep_leaves_nothing(table: Table) -> None:
    table.branches.create("same", tag="after-5")
    predicted = saving_of(table, "branch same")
    before = size_of(directory_of(table))
    table.branches.rm("same")
    assert before - size_of(directory_of(table)) == predicted.bytes
    assert (predicted.freed_later, predicted.later_when, predicted.later_command) == (0, "", "")


def test_files_of_no_version_are_orphans_once_they_are_old(table: Table) -> None:
    root = directory_of(table)
    live = next(root.glob("bucket-*/data-*"))
    young, old, foreign = live.with_name("data-young-0.parquet"), live.with_name("data-old-0.parquet"), root / "README"
    for path, content in ((young, b"young"), (old, b"old!"), (foreign, b"not of Paimon")):
        path.write_bytes(content)
    os.utime(old, (old.stat().st_mtime - DAYS_AGO,) * 2)
    assert {owner: part for owner, part in parts(table).items() if owner in ("orphans", "uncommitted", "other")} == {
        "uncommitted": (1, 5),
        "orphans": (1, 4),
        "other": (1, 13),
    }
    assert savings(table)["orphans"] == (1, 4)


def test_nothing_is_said_about_a_table_with_an_unreadable_version(table: Table) -> None:
    (directory_of(table) / "tag" / "tag-after-2").write_bytes(b"{")
    with pytest.raises(DamagedFile):
        table.cost()
    (cost,) = Catalog(str(directory_of(table).parent.parent)).cost()
    assert isinstance(cost.problem, DamagedFile)


def test_a_catalog_sums_its_tables(table: Table) -> None:
    catalog = Catalog(str(directory_of(table).parent.parent))
    Table.create(directory_of(table).parent / "empty", columns=["id BIGINT"], options={"bucket": "-1"})
    costs = catalog.cost(database="shop")
    assert {cost.table: cost.bytes for cost in costs} == {
        "shop.orders": size_of(directory_of(table)),
        "shop.empty": size_of(directory_of(table).parent / "empty"),
    }


def test_the_growth_of_a_day_ends_at_the_live_files(table: Table) -> None:
    """All commits are retained, so the bytes that they added and removed are those of the latest state."""
    (day,) = table.cost().growth
    live = sum(file.size for file in table.files())
    assert day.added_bytes - day.removed_bytes == live
    assert (day.commits, 0 < day.rewritten_bytes < day.added_bytes) == (12, True)


def test_a_compaction_that_is_due_frees_later_what_it_replaces(tmp_path: Path) -> None:
    made = Table.create(tmp_path / "t", columns=["id BIGINT NOT NULL", "v STRING"], primary_key=["id"], options={"bucket": "1"})
    assert made.cost().due is None
    for commit in range(6):
        made.write([{"id": number, "v": f"{commit}-{number}" * 20} for number in range(40)], compact="none")
    due = made.cost().due
    assert due is not None and due.files == 6
    assert due.freed_later == due.write_bytes == sum(file.size for file in made.files())
    made.compact()
    assert sum(file.size for file in made.files()) <= due.write_bytes, "that is the most"
    dead = sum(row.bytes for row in made.cost().rows if row.owner.startswith("snapshots"))
    assert made.cost().due is None
    assert 0 < due.freed_later < dead
    assert due.freed_later == sum(file.size for file in made.files(snapshot=6))
    made.expire(retain_max=1)
    assert {row.owner for row in made.cost().rows} == {"live"}


def test_health_and_report_tell_what_a_read_takes(table: Table) -> None:
    read = table.cost().operations[0]
    row = table.health()
    assert (row.read_requests, row.read_bytes) == (read.requests, read.bytes_read)
    page = directory_of(table).parent / "page.html"
    table.report(str(page))
    assert f"On an object store it takes {read.requests} requests" in page.read_text()


def test_a_read_fetches_each_file_of_vectors(tmp_path: Path) -> None:
    options = {"bucket-key": "id", "deletion-vectors.enabled": "true"}
    table = Table.create(str(tmp_path / "t"), columns=["id INT"], bucket=3, options=options)
    table.write([{"id": number} for number in range(30)])
    table.delete(where="id % 2 = 0")
    buckets = bucket_files(table.context, table.context.snapshots.latest()).values()
    files, vectors = (sum(len(found) for found in of) for of in zip(*((b.files, b.index_files) for b in buckets), strict=True))
    costs = {cost.operation: cost for cost in table.cost().operations}
    metadata = costs["idle hour"].reads // 12
    assert vectors == 3 and costs["read"].reads == metadata + files + vectors


def test_dropped_tables_count_as_trash(table: Table) -> None:
    catalog = Catalog(str(directory_of(table).parent.parent))
    size = table.cost().bytes
    catalog.drop_table("shop.orders")
    (cost,) = catalog.cost(database="shop")
    assert [(row.table, row.owner) for row in cost.rows] == [("shop.orders", "trash")]
    assert cost.bytes == size
    assert len(catalog.cost()) == 1
    catalog.create_table("shop2.orders", columns=["id BIGINT"])
    catalog.drop_table("shop2.orders")
    assert [each.table for each in catalog.cost(database="shop")] == ["shop.orders"]
    assert [each.table for each in catalog.cost(database="shop2")] == ["shop2.orders"]
    assert sorted(each.table for each in catalog.cost()) == ["shop.orders", "shop2.orders"]


def test_a_damaged_entry_of_the_catalog_has_a_row(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum without it would look whole."""
    listed = table_listing.tables_of_warehouse

    def with_damage(metastore: Any, on_damage: Any) -> Any:
        on_damage(DamagedFile("its entry is damaged", path="shop.bad"))
        return listed(metastore, on_damage)

    monkeypatch.setattr(table_listing, "tables_of_warehouse", with_damage)
    costs = Catalog(str(directory_of(table).parent.parent)).cost()
    assert [(cost.table, cost.problem is not None) for cost in costs] == [("shop.bad", True), ("shop.orders", False)]


@pytest.mark.parametrize("golden", GOLDENS, ids=str)
@pytest.mark.in_part(4)
def test_every_file_of_other_writers_has_an_owner(golden: Golden, tmp_path: Path) -> None:
    directory = golden_table(golden.writer, golden.name, tmp_path)
    cost = Table.open(directory).cost()
    assert sum(row.bytes for row in cost.rows) == cost.bytes == size_of(directory)
    assert not {row.owner for row in cost.rows} & {"orphans", "uncommitted", "other"}


def test_files_that_only_change_their_level_are_not_fetched(tmp_path: Path) -> None:
    options = {"bucket": "1", "target-file-size": "1 kb"}  # smaller files are merged
    made = Table.create(tmp_path / "t", columns=["id BIGINT NOT NULL", "v STRING"], primary_key=["id"], options=options)
    for commit in range(6):
        made.write([{"id": commit * 100 + number, "v": "x"} for number in range(40)], compact="none")
    (planned,) = decision_rows(made.context, made.plan_compaction("minor").decisions)
    assert planned.upgraded == planned.files == 6
    costs = {row.operation: row for row in made.cost().operations}
    assert costs["compaction"].reads == costs["read"].reads - 6 + 1, "the metadata, which a commit reads again"
