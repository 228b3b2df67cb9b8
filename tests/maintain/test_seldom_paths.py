"""Rare cases of clean-ups: damaged versions that expire, tags of expired snapshots above the target, changelogs above it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from paimon_cli.errors import DamagedFile
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.maintain.branches import create_branch, plan_fast_forward
from paimon_cli.maintain.expire_changelogs import expire_changelogs, plan_changelogs
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.named_files import FileToDelete, measured
from paimon_cli.maintain.needed_files import NeededFiles, SharedManifests
from paimon_cli.maintain.orphans import find_orphans
from paimon_cli.maintain.retention import Retention, consumers, oldest_consumed, reset_consumer, tagged_snapshots
from paimon_cli.maintain.rollback import plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.storage.threads import in_parallel
from tests.maintain.plain_files import needed, on_disk
from tests.maintain.test_expire_changelogs import outlived
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.rivals import Meddler
from tests.tables import rows, write


def back(context: TableContext, snapshot_id: int) -> None:
    roll_back(context, plan_rollback(context, rollback_target(context, snapshot_id)), delete_files(context))


def cut(path: str) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[:-9])


def list_of(context: TableContext, snapshot: Snapshot) -> str:
    return context.layout.manifest(snapshot.delta_manifest_list)


@pytest.mark.parametrize("damaged", [3, 4, 5])
def test_back_over_a_damaged_snapshot(tmp_path: Path, damaged: int) -> None:
    """Its own files are left to orphan cleaning; those of the others are deleted."""
    context = table_of_five(tmp_path)
    before = rows(context, snapshot_id=2)
    cut(list_of(context, context.snapshots.get(damaged)))
    back(TableContext.open(context.url), 2)
    assert context.snapshots.ids() == [1, 2] and rows(context) == before
    assert needed(Path(context.url)) < on_disk(Path(context.url))


@pytest.mark.parametrize("damaged", [1, 3, 5])
@pytest.mark.parametrize("damage", [cut, os.remove])
def test_expiry_of_a_damaged_snapshot(tmp_path: Path, damaged: int, damage: Callable[[str], None]) -> None:
    """Its files are left to orphan cleaning; those of the other snapshots go. What stays must be readable."""
    context = table_of_five(tmp_path)
    before, snapshot = rows(context), context.snapshots.get(damaged)
    damage(list_of(context, snapshot))
    context = TableContext.open(context.url)
    if damaged == 5:
        with pytest.raises(DamagedFile):
            expire_snapshots(context, KEEP_ONE)
        assert context.snapshots.ids() == [1, 2, 3, 4, 5]
        return
    assert expire_snapshots(context, KEEP_ONE).snapshots == (1, 2, 3, 4)
    assert rows(context) == before
    assert needed(Path(context.url)) <= on_disk(Path(context.url))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("time", [1, 2])
def test_two_expiries_do_not_disturb_each_other(tmp_path: Path, number: int, time: int) -> None:
    """The other one deletes everything while this one plans, just before it reads the list of a snapshot for the n-th time."""
    context = table_of_five(tmp_path)
    before = rows(context)
    name = context.snapshots.get(number).delta_manifest_list
    storage = Meddler("read_bytes", name, lambda: expire_snapshots(context, KEEP_ONE) and None, time)
    expire_snapshots(replace(TableContext.open(context.url, storage=storage), read_threads=1), KEEP_ONE)
    assert storage.count >= 1
    assert context.snapshots.ids() == [5] and rows(context) == before
    assert needed(Path(context.url)) == on_disk(Path(context.url))


def test_back_to_a_tag_below_another_of_an_expired_snapshot(tmp_path: Path) -> None:
    """Files that only that other tag needed are deleted with it."""
    context = table_of_five(tmp_path)
    before = rows(context, snapshot_id=1)
    create_tag(context, "one", 1)
    create_tag(context, "three", 3)
    expire_snapshots(context, KEEP_ONE)
    back(context, 1)
    assert context.tags.names() == ["one"] and context.snapshots.ids() == [1] and rows(context) == before
    assert on_disk(Path(context.url)) == needed(Path(context.url))


def test_back_below_changelogs(tmp_path: Path) -> None:
    """Changelogs above the target are removed; the hints name the remaining ones, or are removed as well."""
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
    """It can be decoded: only its size shows that it is not the file that the list names."""
    context = table_of_five(tmp_path)
    newest = context.snapshots.get(5)
    (one,) = context.manifests.manifest_list(newest.delta_manifest_list)
    other = max(context.manifests.manifests_of(context.snapshots.get(4)), key=lambda meta: meta.file_size)
    assert one.file_size != other.file_size
    Path(context.layout.manifest(one.file_name)).write_bytes(Path(context.layout.manifest(other.file_name)).read_bytes())
    context = TableContext.open(context.url)
    with pytest.raises(DamagedFile, match="bytes, but"):
        find_orphans(context, 1 << 60, force=True)
    with pytest.raises(DamagedFile, match="bytes, but"):
        SharedManifests(context).live(newest)
    with pytest.raises(DamagedFile, match="bytes, but"):
        NeededFiles().need_version(context, newest)


def test_a_branch_is_not_made_of_a_damaged_schema(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    cut(context.layout.schema(0))
    with pytest.raises(DamagedFile, match="schema-0"):
        create_branch(context, "b", snapshot_id=3)
    assert not context.branches.names()


def test_orphans_show_the_minimum_age(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    write(context, [{"k": 1, "v": "x"}])
    assert find_orphans(context, 12_345).older_than == 12_345


def test_versions_that_share_manifests_read_each_once_while_they_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table_of_five(tmp_path)
    read: list[str] = []
    decode = type(context.manifests).manifest

    def noted(self: ManifestReader, name: str, size: int | None = None) -> Sequence[ManifestEntry]:
        read.append(name)
        return decode(self, name, size)

    monkeypatch.setattr(type(context.manifests), "manifest", noted)
    snapshots = [context.snapshots.get(number) for number in (3, 2, 1)]
    names = [[meta.file_name for meta in context.manifests.manifests_of(snapshot)] for snapshot in snapshots]
    expected = [sorted(e.file.file_name for e in context.manifests.live_entries(snapshot)) for snapshot in snapshots]
    read.clear()
    shared = SharedManifests(context)
    assert [sorted(e.file.file_name for e in shared.live(snapshot)) for snapshot in snapshots] == expected
    assert sorted(read) == sorted({name for of_one in names for name in of_one}) and len(read) == 3
    read.clear()
    monkeypatch.setattr(PIECES, "needed_entries_kept", 2)
    little = SharedManifests(context)
    little.live(snapshots[0])
    assert len(read) == 3
    little.live(snapshots[0])
    assert len(read) > 3, "it keeps two entries at most"
    read.clear()
    monkeypatch.setattr(PIECES, "needed_entries_kept", 0)
    least = SharedManifests(context)
    least.live(snapshots[2])
    least.live(snapshots[2])
    assert len(read) == 1, "the last one stays, however big it is"


def test_a_snapshot_that_vanished_from_main_is_not_common_with_a_branch(tmp_path: Path) -> None:
    main = table_of_five(tmp_path)
    create_branch(main, "b", snapshot_id=3)
    Path(main.layout.snapshot(3)).unlink()
    plan = plan_fast_forward(main, "b")
    assert plan.common is None and 3 in plan.added


@pytest.mark.parametrize("act", [create_tag, create_branch])
def test_a_damaged_snapshot_is_named_by_its_path(tmp_path: Path, act: Callable[..., object]) -> None:
    context = table_of_five(tmp_path)
    cut(context.layout.snapshot(3))
    with pytest.raises(DamagedFile) as damaged:
        act(context, "a", snapshot_id=3)
    assert damaged.value.details["path"] == context.layout.snapshot(3)
    assert context.tags.names() == [] == context.branches.directories()


def test_many_calls_are_begun_in_portions_and_answered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "submitted_calls", 4)
    for threads in (1, 2, 5):
        begun = count()
        numbers = (next(begun) for _ in range(11))
        answers = in_parallel(lambda number: number * 2, numbers, threads)
        assert next(answers) == 0
        assert next(begun) == (1 if threads == 1 else 4), "not all are begun before the first is answered"
        rest = list(answers)
        assert rest == sorted(rest) and len(rest) == 10


def test_each_deleted_file_is_heard_of(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    paths = [f"{context.url}/{name}" for name in "abc"]
    for path in paths[:2]:
        Path(path).touch()
    heard: list[int] = []
    assert delete_files(context, heard.append)(paths) == 3 and heard == [1, 1, 1]
    assert not any(Path(path).exists() for path in paths) and delete_files(context)([]) == 0


def test_sizes_missing_in_metadata_come_from_listings(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for folder in ("one", "two"):
        (Path(context.url) / folder).mkdir()
        for place, name in enumerate("abc"):
            (Path(context.url) / folder / name).write_bytes(b"x" * place)
    files = [
        *(FileToDelete(f"{context.url}/one/{name}", "k") for name in "ab"),
        *(FileToDelete(f"{context.url}/one/{name}", "k", 99) for name in ("c", "gone")),
        FileToDelete(f"{context.url}/one/away", "k"),
        *(FileToDelete(f"{context.url}/two/{name}", "j", 77) for name in ("a", "gone")),
    ]
    assert [(file.path.removeprefix(f"{context.url}/"), file.kind, file.size) for file in measured(context, files)] == [
        *[("one/a", "k", 0), ("one/b", "k", 1), ("one/c", "k", 2)],
        *[("two/a", "j", 77), ("two/gone", "j", 77)],
    ]


def test_other_files_hold_no_snapshots(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for directory, name in ((context.layout.tag_directory, "tag-x"), (context.layout.consumer_directory, "consumer-x")):
        (Path(directory) / name).mkdir(parents=True)
        (Path(directory) / "other").write_text("not JSON")
    create_tag(context, "two", 2)
    assert [snapshot.id for snapshot in tagged_snapshots(context)] == [2] and oldest_consumed(context) is None
    assert expire_snapshots(context, KEEP_ONE).snapshots == (1, 2, 3, 4)
    assert [file.name for file in find_orphans(context, 1 << 60, force=True).files] == []
    create_tag(context, "one-more", 5)
    assert [snapshot.id for snapshot in tagged_snapshots(context)] == [2, 5]


def test_tags_and_consumers_that_go_as_they_are_read_hold_nothing(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for name in ("a", "b"):
        create_tag(context, name, 2 if name == "a" else 3)
        reset_consumer(context, name, 4)
    for ending, left in (("tag-a", [3]), ("consumer-a", [3])):
        going = Meddler("read_bytes", ending, Path(f"{context.url}/{ending.partition('-')[0]}/{ending}").unlink)
        seen = replace(context, storage=going)
        assert [snapshot.id for snapshot in tagged_snapshots(seen)] == left
        assert {consumer.name for consumer in consumers(seen)} == ({"a", "b"} if ending == "tag-a" else {"b"})
