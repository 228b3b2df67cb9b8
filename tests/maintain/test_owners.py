"""What keeps the bytes of a table is found without decoding a manifest twice, and buckets are read together as one by one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.manifest_reader import ManifestReader, SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.owners import LIVE, SNAPSHOTS, Owner, _expect_all, find_owners
from tests.tables import make_table, write


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
