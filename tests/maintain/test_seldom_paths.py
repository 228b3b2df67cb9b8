"""What clean-ups meet seldom: damaged versions that go, tags of expired snapshots above the target, changelogs above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.errors import DamagedFile
from paimon_cli.history.changelog_history import ChangelogHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.expire_changelogs import expire_changelogs, plan_changelogs
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.orphans import find_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.side_by_side import delete_files
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.snapshot import Snapshot
from tests.maintain.plain_files import needed, on_disk
from tests.maintain.test_expire_changelogs import outlived
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.tables import rows, write


def back(context: TableContext, snapshot_id: int) -> None:
    roll_back(context, plan_rollback(context, rollback_target(context, snapshot_id)), delete_files(context))


def cut(path: str) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[:-9])


def list_of(context: TableContext, snapshot: Snapshot) -> str:
    return context.layout.manifest(snapshot.delta_manifest_list)


@pytest.mark.parametrize("damaged", [3, 4, 5])
def test_back_over_a_damaged_snapshot(tmp_path: Path, damaged: int) -> None:
    """What it alone had is left to the cleaning of orphans; the others' files go."""
    context = table_of_five(tmp_path)
    before = rows(context, snapshot_id=2)
    cut(list_of(context, context.snapshots.get(damaged)))
    back(TableContext.open(context.url), 2)
    assert context.snapshots.ids() == [1, 2] and rows(context) == before
    assert needed(Path(context.url)) < on_disk(Path(context.url))


@pytest.mark.parametrize("damaged", [1, 3])
def test_expiry_of_a_damaged_snapshot(tmp_path: Path, damaged: int) -> None:
    context = table_of_five(tmp_path)
    before = rows(context)
    cut(list_of(context, context.snapshots.get(damaged)))
    assert expire_snapshots(TableContext.open(context.url), KEEP_ONE).snapshots == (1, 2, 3, 4)
    assert rows(context) == before
    assert needed(Path(context.url)) <= on_disk(Path(context.url))


def test_back_to_a_tag_below_another_of_an_expired_snapshot(tmp_path: Path) -> None:
    """What only that other tag held goes with it."""
    context = table_of_five(tmp_path)
    before = rows(context, snapshot_id=1)
    create_tag(context, "one", 1)
    create_tag(context, "three", 3)
    expire_snapshots(context, KEEP_ONE)
    back(context, 1)
    assert context.tags.names() == ["one"] and context.snapshots.ids() == [1] and rows(context) == before
    assert on_disk(Path(context.url)) == needed(Path(context.url))


def test_back_below_changelogs(tmp_path: Path) -> None:
    """Those above the target go; the hints tell what is left, or go as well."""
    context = outlived(tmp_path)
    tagged = outlived(tmp_path / "tagged")
    layout = context.layout
    copy = Path(layout.changelog(3)).read_bytes()
    Path(layout.tag_directory).mkdir()
    Path(layout.tag("three")).write_bytes(copy)
    back(context, 3)
    history = ChangelogHistory(context.storage, layout)
    assert history.ids() == [1, 2, 3] and Path(layout.latest_changelog_hint).read_text() == "3"
    plan = plan_changelogs(tagged, Retention(3, 3, 0, None))
    assert plan is not None
    expire_changelogs(tagged, plan, delete_files(tagged))
    layout = tagged.layout
    assert ChangelogHistory(tagged.storage, layout).ids() == [4, 5]
    Path(layout.tag_directory).mkdir()
    Path(layout.tag("one")).write_bytes(Path(layout.changelog(4)).read_bytes().replace(b'"id" : 4', b'"id" : 3'))
    back(tagged, 3)
    assert ChangelogHistory(tagged.storage, layout).ids() == []
    assert not Path(layout.latest_changelog_hint).exists() and not Path(layout.earliest_changelog_hint).exists()


def test_a_manifest_of_another_size_stops_the_cleaning(tmp_path: Path) -> None:
    """It can be decoded: only its size tells that it is not what the list names."""
    context = table_of_five(tmp_path)
    newest = context.snapshots.get(5)
    (one,) = context.manifests.manifest_list(newest.delta_manifest_list)
    other = max(context.manifests.manifests_of(context.snapshots.get(4)), key=lambda meta: meta.file_size)
    assert one.file_size != other.file_size
    Path(context.layout.manifest(one.file_name)).write_bytes(Path(context.layout.manifest(other.file_name)).read_bytes())
    with pytest.raises(DamagedFile, match="bytes where"):
        find_orphans(TableContext.open(context.url), 1 << 60, force=True)


def test_a_branch_is_not_made_of_a_damaged_schema(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    cut(context.layout.schema(0))
    with pytest.raises(DamagedFile, match="schema-0"):
        create_branch(context, "b", snapshot_id=3)
    assert not context.branches.names()


def test_orphans_say_how_old_they_had_to_be(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    write(context, [{"k": 1, "v": "x"}])
    assert find_orphans(context, 12_345).older_than == 12_345
