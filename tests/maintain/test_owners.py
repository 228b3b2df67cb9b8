"""What keeps the bytes of a table is found without decoding a manifest twice, and buckets are read together as one by one."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from paimon_cli.api.table import Table
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.manifest_reader import ManifestReader, SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.named_files import changelog_entries, file_paths, metadata_paths
from paimon_cli.maintain.owners import LIVE, SNAPSHOTS, OwnedFiles, Owner, _expect_all, find_owners
from paimon_cli.maintain.tags import create_tag, plan_removal, remove_tags
from paimon_cli.metadata.snapshot import Snapshot
from tests.maintain.test_tags import KEEP_ONE
from tests.rivals import Meddler
from tests.tables import compact, make_table, write


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    columns = {"p": "INT NOT NULL", "id": "INT NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["p", "id"], ["p"], bucket=2, options={"write-only": "true"})
    write(context, [{"p": number % 5, "id": number} for number in range(40)])
    return context


def test_each_manifest_of_a_single_snapshot_is_decoded_once(table: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Counter[str]()
    content = ManifestReader._content

    def counting(self: ManifestReader, name: str, size: int | None) -> bytes:
        read[name] += "list" not in name
        return content(self, name, size)

    monkeypatch.setattr(ManifestReader, "_content", counting)
    found = find_owners(table.reopened())
    listed = [path for path in Path(table.url).rglob("*") if path.is_file()]
    assert (found.files, found.size) == (len(listed), sum(path.stat().st_size for path in listed))
    assert {name: count for name, count in read.items() if count > 1} == {}


def test_all_buckets_at_once_are_those_one_by_one(table: TableContext) -> None:
    write(table, [{"p": 3, "id": 7}, {"p": 9, "id": 1}])
    buckets = bucket_files(table, table.snapshots.latest())
    assert buckets.whole() == [*buckets.values()] and len(buckets.whole()) == len(buckets) > 10


def test_each_kind_of_version_that_has_disappeared_is_noticed(tmp_path: Path) -> None:
    """What it named may have been counted as orphans."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    layout = context.layout
    for path in (layout.snapshot(7), layout.tag("gone"), layout.changelog(7)):
        with pytest.raises(SnapshotGone, match=path.rpartition("/")[2]):
            _expect_all(context, [path])
    _expect_all(context, [layout.latest_hint, layout.earliest_changelog_hint, layout.manifest("manifest-1")])


def test_the_changelog_of_the_latest_snapshot_is_live(tmp_path: Path) -> None:
    """No expiry of older snapshots frees it."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"changelog-producer": "input"})
    write(context, [{"k": 1}])
    assert {group.owners for group in find_owners(context).groups} == {frozenset((Owner(LIVE),))}
    write(context, [{"k": 2}])
    files, _ = find_owners(context).only(Owner(SNAPSHOTS))
    assert files == 6, "the first snapshot, its three lists, and its changelog with its manifest"


DAY_SECONDS = 86_400


def aged(path: Path, days: float, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    then = time.time() - days * DAY_SECONDS
    os.utime(path, (then, then))
    return path


def named_by(context: TableContext, *snapshots: Snapshot) -> set[str]:
    """Found one by one: metadata, live files, and the changelogs whose lists are there."""
    named: set[str] = set()
    for snapshot in snapshots:
        named.update(metadata_paths(context, snapshot))
        for entry in context.manifests.live_entries(snapshot):
            named.update(file_paths(context, entry))
    return named


def with_changelogs(context: TableContext, *snapshots: Snapshot) -> set[str]:
    changelogs = (entry for snapshot in snapshots for entry in changelog_entries(context, snapshot))
    return named_by(context, *snapshots).union(*(file_paths(context, entry) for entry in changelogs))


def groups_of(expected: Mapping[Owner, set[str]], root: Path) -> dict[frozenset[Owner], list[int]]:
    """The number and bytes of the files below `root` by their owners; what the latest snapshot needs is only live."""
    groups: dict[frozenset[Owner], list[int]] = {}
    for path in (path for path in root.rglob("*") if path.is_file()):
        owners = frozenset(owner for owner, paths in expected.items() if str(path) in paths)
        group = groups.setdefault(frozenset((Owner(LIVE),)) if Owner(LIVE) in owners else owners, [0, 0])
        group[0] += 1
        group[1] += path.stat().st_size
    return groups


def test_each_file_belongs_to_all_that_need_it(tmp_path: Path) -> None:
    """Of every kind of version, record and foreign file something, against what each version names by itself."""
    options = {"changelog-producer": "input", "changelog.num-retained.max": "99", "changelog.num-retained.min": "99"}
    columns = {"p": "INT NOT NULL", "id": "INT NOT NULL"}
    made = make_table(tmp_path / "t", columns, ["p", "id"], ["p"], options={**options, "write-only": "true"})
    for number in range(5):
        write(made, [{"p": number % 2, "id": number}, {"p": 2, "id": number}])
        create_tag(made, f"t-{number}")
    for branch, begin in (("x", "t-0"), ("x-y", "t-1")):
        create_branch(made, branch, begin)
        write(made.at_branch(branch), [{"p": 0, "id": 99}])
    remove_tags(made, plan_removal(made, ["t-1", "t-4"]), delete_files(made))
    compact(made)
    expire_snapshots(made, KEEP_ONE)
    write(made, [{"p": 1, "id": 7}])
    root, context = Path(made.url), TableContext.open(made.url)
    layout, latest = context.layout, context.snapshots.latest()
    assert latest is not None and context.snapshots.ids() == [6, 7]
    records = ("lease/compaction-1", f"removal/removal-{'0' * 8}", "commit-user/commit-a", "backup/.b", "backup/run-1")
    live = {str(aged(root / name, 9)) for name in records}
    live |= {*map(str, (root / "schema").iterdir()), *(layout.snapshot(latest.id), layout.latest_hint, layout.earliest_hint)}
    old = ("p=0/bucket-0/data-old", "manifest/manifest-old", "snapshot/README", "schema/.schema-9.tmp", "index/i", "statistics/s")
    expected = {
        Owner("orphans"): {str(aged(root / name, 1.01)) for name in old},
        Owner("uncommitted"): {str(aged(root / name, 0.99)) for name in ("p=2/bucket-0/data-new", "manifest/manifest-new")},
        Owner("other"): {str(aged(root / name, 9)) for name in ("notes", "deep/er/and/er", "tag/notes", "branch/notes", "p=0/f")},
        Owner("consumer", "tag-c"): {str(aged(root / "consumer/consumer-tag-c", 9, b'{"nextSnapshot": 7}'))},
        Owner(LIVE): live | with_changelogs(context, latest),
        Owner(SNAPSHOTS): {layout.snapshot(6)} | with_changelogs(context, *context.snapshots.newest_first()),
        Owner("changelogs"): {str(path) for path in (root / "changelog").iterdir()},
    }
    for changelog in ChangelogHistory(context.storage, layout).all():
        name = changelog.changelog_manifest_list
        assert name is not None
        expected[Owner("changelogs")] |= {layout.manifest(name)}
        expected[Owner("changelogs")] |= {layout.manifest(meta.file_name) for meta in context.manifests.manifest_list(name)}
        for entry in changelog_entries(context, changelog):
            expected[Owner("changelogs")].update(file_paths(context, entry))
    for name, tag in context.tags.all().items():
        expected[Owner("tag", name)] = named_by(context, tag.snapshot) | {layout.tag(name)}
    for branch in ("x", "x-y"):
        view, directory = context.at_branch(branch), root / "branch" / f"branch-{branch}"
        tagged = named_by(view, *(tag.snapshot for tag in view.tags.all().values()))
        of_branch = with_changelogs(view, *view.snapshots.newest_first()) | tagged
        expected[Owner("branch", branch)] = of_branch | {str(path) for path in directory.rglob("*") if path.is_file()}
    groups = groups_of(expected, root)
    found = find_owners(TableContext.open(made.url))
    assert {group.owners: [group.files, group.size] for group in found.groups} == groups
    assert len(groups) > 12 and {owner for owners in groups for owner in owners} == expected.keys()
    assert found.latest == 7
    for branch in ("x", "x-y"):
        sizes = [path.stat().st_size for path in (root / "branch" / f"branch-{branch}").rglob("*") if path.is_file()]
        assert found.branch_directories[branch] == (len(sizes), sum(sizes))


def test_files_outside_of_the_table_count_if_a_version_names_them(tmp_path: Path) -> None:
    """Others there may be those of another table."""
    places = ",".join(f"file:{tmp_path}/{name}/t" for name in ("hot", "cold"))
    options = {"data-file.external-paths": places, "data-file.external-paths.strategy": "round-robin"}
    url = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=8, options=options).url
    context = Table.open(url, {"external-paths.allowed": f"{tmp_path}/hot,{tmp_path}/cold"}).context
    for _ in range(3):
        write(context, [{"k": number} for number in range(40)])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path).parts[0] for path in files} == {"t", "hot", "cold"}
    aged(tmp_path / "hot/t/bucket-0/data-of-another.parquet", 9)
    found = find_owners(context.reopened())
    assert (found.files, found.size) == (len(files), sum(path.stat().st_size for path in files))
    assert {owner for group in found.groups for owner in group.owners} == {Owner(LIVE), Owner(SNAPSHOTS)}


def test_versions_that_go_while_files_are_counted_begin_it_anew(tmp_path: Path) -> None:
    """A tag that is gone when it is read names nothing, and a changelog without its list looks damaged."""
    options = {"changelog-producer": "input", "changelog.num-retained.max": "99", "changelog.num-retained.min": "99"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options=options)
    for number in range(3):
        write(context, [{"k": number}])
    create_tag(context, "one", 1)
    expire_snapshots(context, KEEP_ONE)
    layout, changelog = context.layout, ChangelogHistory(context.storage, context.layout).find(1)
    assert changelog is not None and changelog.changelog_manifest_list is not None
    lost = [layout.changelog(1), layout.manifest(changelog.changelog_manifest_list)]

    def found(ending: str, act: Callable[[], object]) -> OwnedFiles:
        return find_owners(TableContext.open(context.url, storage=Meddler("read_bytes", ending, act)))

    def go() -> None:
        for path in lost:
            Path(path).unlink()

    owners = [owner for group in found("tag-one", Path(layout.tag("one")).unlink).groups for owner in group.owners]
    assert Owner("uncommitted") in owners and "tag" not in {owner.kind for owner in owners}
    before = find_owners(context).files
    after = found(changelog.changelog_manifest_list, go)
    assert after.files == before - len(lost)
