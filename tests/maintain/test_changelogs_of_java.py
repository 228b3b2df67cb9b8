"""What Java deletes of changelogs stops nothing: lists of long-lived ones beside a producer, and the changelog of a snapshot that
a tag keeps, and that is the first of a branch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.api.table import Table
from paimon_cli.errors import DamagedFile, PaimonError
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.jobs.erasure.inventory import Inventory
from paimon_cli.maintain.named_files import changelog_entries, file_paths
from paimon_cli.maintain.owners import find_owners
from tests.tables import make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
OPTIONS = {"changelog.num-retained.max": "40", "snapshot.num-retained.max": "3", "snapshot.num-retained.min": "1"}


def table_of(folder: Path, producer: str) -> Table:
    context = make_table(folder / "t", COLUMNS, ["k"], options={**OPTIONS, "changelog-producer": producer})
    for number in range(4):
        write(context, [{"k": number, "v": "v"}])
    table = Table.open(context.url)
    table.expire(retain_max=3, retain_min=1)
    for changelog in ChangelogHistory(context.storage, context.layout).all():
        if changelog.changelog_manifest_list is None:
            for name in (changelog.base_manifest_list, changelog.delta_manifest_list):
                Path(context.layout.manifest(name)).unlink(missing_ok=True)
    return table


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_missing_lists_stop_nothing_beside_a_producer(tmp_path: Path, producer: str) -> None:
    table = table_of(tmp_path, producer)
    target = table.context.snapshots.latest_id()
    assert target is not None and ChangelogHistory(table.context.storage, table.context.layout).ids()
    table.tags.create("one")
    table.tags.create("two")
    table.branches.create("b", tag="one")
    write(table.context, [{"k": 9, "v": "later"}])
    table.rollback(str(target))
    assert {row["k"] for row in rows(table.context)} == {0, 1, 2, 3}
    orphans = table.plan_orphans(older_than="0 s", force=True)
    assert table.orphan_rows(orphans.plan) == []
    table.tags.rm("two")
    table.branches.rm("b")
    table.tags.rm("one")
    table.expire(retain_max=1, retain_min=1)
    table.expire(what="changelogs", retain_max=1, retain_min=1)
    assert table.verify().violations == []


def test_a_rollback_that_cannot_know_what_to_delete_changes_nothing(tmp_path: Path) -> None:
    """Without a producer the lists name the changes, so that a missing one is damage."""
    table = table_of(tmp_path, "none")
    target = table.context.snapshots.latest_id()
    write(table.context, [{"k": 9, "v": "later"}])
    for _ in range(2):
        with pytest.raises(PaimonError):
            table.rollback(str(target))
        assert {row["k"] for row in rows(table.context)} == {0, 1, 2, 3, 9}


def test_a_tag_whose_changelog_went_with_its_snapshot_stops_nothing(tmp_path: Path) -> None:
    """Java's expiry of main deletes the changelog of a snapshot that a tag keeps, and heeds no branch that began with the tag."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog-producer": "input"})
    write(context, [{"k": 0, "v": "v"}])
    table = Table.open(context.url)
    table.tags.create("one")
    table.branches.create("b", tag="one")
    write(context, [{"k": 1, "v": "v"}])
    write(context.at_branch("b"), [{"k": 2, "v": "of b"}])
    snapshot = context.snapshots.get(1)
    lost = [path for entry in changelog_entries(context, snapshot) for path in file_paths(context, entry)]
    assert snapshot.changelog_manifest_list is not None
    lost += [
        context.layout.manifest(meta.file_name) for meta in context.manifests.manifest_list(snapshot.changelog_manifest_list)
    ]
    for path in (*lost, context.layout.manifest(snapshot.changelog_manifest_list), context.layout.snapshot(1)):
        Path(path).unlink()
    table = Table.open(context.url)
    assert find_owners(table.context).latest == 2
    assert len(Inventory.take(Table.open(context.url).context).versions) == 5
    table.backup(str(tmp_path / "copy"))
    assert rows(Table.open(str(tmp_path / "copy")).context.at_branch("b")) == rows(context.at_branch("b"))
    assert table.orphan_rows(table.plan_orphans(older_than="0 s", force=True).plan) == []
    write(table.context, [{"k": 3, "v": "v"}])
    table.expire(retain_max=1, retain_min=1)
    table.tags.rm("one")
    assert table.verify(level="full", all_snapshots=True).violations == []
    assert {row["k"] for row in rows(table.context.at_branch("b"))} == {0, 2}


def test_a_tag_whose_expiry_was_killed_stops_no_search_for_orphans(tmp_path: Path) -> None:
    """Then the list of its changelog is there, but not the manifests, which go first."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog-producer": "input"})
    write(context, [{"k": 0, "v": "v"}])
    Table.open(context.url).tags.create("one")
    write(context, [{"k": 1, "v": "v"}])
    name = context.snapshots.get(1).changelog_manifest_list
    assert name is not None
    for meta in context.manifests.manifest_list(name):
        Path(context.layout.manifest(meta.file_name)).unlink()
    Path(context.layout.snapshot(1)).unlink()
    table = Table.open(context.url)
    plan = table.plan_orphans(older_than="0 s", force=True).plan
    assert [row.path.rpartition("/")[2][:10] for row in table.orphan_rows(plan)] == ["changelog-"]


def test_a_snapshot_that_follows_another_and_lost_its_changelog_stops_the_search_for_orphans(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"changelog-producer": "input"})
    for number in range(3):
        write(context, [{"k": number, "v": "v"}])
    name = context.snapshots.get(2).changelog_manifest_list
    assert name is not None
    Path(context.layout.manifest(name)).unlink()
    with pytest.raises(DamagedFile):
        Table.open(context.url).plan_orphans(older_than="0 s", force=True)
