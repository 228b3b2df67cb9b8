"""Orphans are found, classified and deleted; files that any version or running writer may need never are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from itertools import permutations
from pathlib import Path

import pytest

from paimon_cli.errors import DamagedFile, FilesLeft, Refused, RequestRefused, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.reclaim_job import clean_orphans, orphan_rows
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.orphan_origin import OrphanedCommit
from paimon_cli.maintain.orphans import (
    DAY_MILLIS,
    Orphans,
    find_orphans,
    not_ahead_of_the_storage,
    remove_orphans,
)
from paimon_cli.maintain.tags import create_tag
from paimon_cli.maintain.used_names import MentionedFiles, UsedNames, stamp_of
from paimon_cli.metadata import manifest_table
from paimon_cli.metadata.data_file import EMPTY_ROW, EntryKind, ManifestEntry
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import BelatedClock, SystemClock
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus
from tests.commit.commit_tables import SteppingClock, data_file
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.maintain.versions import check_versions, files_on_disk, named_files
from tests.rivals import Meddler
from tests.tables import compact, make_table, rows, write


def make_old(context: TableContext, days: float = 3) -> None:
    """Make all files look as if they had last been changed days ago."""
    then = context.clock.now_millis() / 1000 - days * 86_400
    for path in (Path(context.url), *Path(context.url).glob("**/*")):
        os.utime(path, (then, then))


def found(context: TableContext, force: bool = False) -> Orphans:
    return find_orphans(context, context.clock.now_millis() + (1000 if force else -DAY_MILLIS - 1000), force)


def explained(context: TableContext) -> dict[str, str | None]:
    return {row.path: row.origin for row in orphan_rows(context, found(context), explain=True)}


def remove(context: TableContext, orphans: Orphans) -> int:
    return len(remove_orphans(context, orphans, delete_files(context)))


def test_a_whole_table_has_no_orphans(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "two", 2)
    create_branch(context, "b", snapshot_id=3)
    write(context.at_branch("b"), [{"k": 5, "v": "b"}])
    expire_snapshots(context, KEEP_ONE)
    make_old(context)
    assert not found(context).files and not found(context.at_branch("b")).files
    check_versions(context)


@pytest.mark.parametrize("hidden", [{5}, {4, 5}, {3, 4, 5}], ids=str)
def test_what_snapshots_need_that_a_listing_hides_is_no_orphan(tmp_path: Path, hidden: set[int]) -> None:
    context = table_of_five(tmp_path)
    make_old(context)

    class StaleListings(LocalStorage):
        def list_directory(self, path: str) -> list[FileStatus]:
            return [status for status in super().list_directory(path) if status.name not in {f"snapshot-{n}" for n in hidden}]

    assert not found(TableContext.open(context.url, storage=StaleListings())).files


def test_files_below_a_data_directory_are_candidates(tmp_path: Path) -> None:
    """Tables of `data-file.path-directory` keep their buckets one directory deeper; older ones may lie where they were."""
    context = table_of_five(tmp_path)
    root = Path(context.url)
    (root / "data").mkdir()
    for bucket in root.glob("bucket-*"):
        bucket.rename(root / "data" / bucket.name)
    (root / "data" / "bucket-0" / "data-stray-0.parquet").write_bytes(b"x")
    (root / "bucket-0").mkdir()
    (root / "bucket-0" / "data-stray-1.parquet").write_bytes(b"x")
    moved = TableContext.open(context.url, {"data-file.path-directory": "data"})
    make_old(moved)
    orphans = found(moved)
    assert sorted(file.name for file in orphans.files) == ["data-stray-0.parquet", "data-stray-1.parquet"]
    assert remove(moved, orphans) == 2 and not found(moved).files
    check_versions(moved)


def test_a_lost_commit_is_explained(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    write(context, [{"k": 1, "v": "lost"}, {"k": 2, "v": "lost"}], commit_user="etl")
    content = context.storage.read_bytes(context.layout.snapshot(6))
    Path(context.layout.snapshot(6)).unlink()
    Path(context.layout.latest_hint).unlink()
    make_old(context)
    texts = explained(context)
    assert len(texts) == 4
    assert all(
        "lost commit of an unknown user" in str(text) and "1 file, 2 rows, all present" in str(text) for text in texts.values()
    )
    temporary = Path(context.url) / "snapshot" / ".snapshot-6.0b6f.tmp"
    temporary.write_bytes(content)
    make_old(context)
    texts = explained(context)
    assert "interrupted" in str(texts.pop("snapshot/.snapshot-6.0b6f.tmp"))
    assert all("lost commit of user etl" in str(text) for text in texts.values())
    assert remove(context, found(context)) == 5
    assert files_on_disk(context) == named_files(context)
    check_versions(context)


def test_files_of_dead_writers_and_jobs_are_distinguished(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    bucket = Path(context.url) / "bucket-0"
    live = next(entry.file.file_name for entry in context.manifests.delta_entries(context.snapshots.get(5)))
    stem, _, number = live.partition(".")[0].rpartition("-")
    (bucket / f"{stem}-9{number}.parquet").write_bytes(b"x")
    (bucket / "data-00000000-0000-4000-8000-000000000000-0.parquet").write_bytes(b"x")
    (Path(context.url) / "manifest" / "odd").write_bytes(b"x")
    (Path(context.url) / "_private").mkdir()
    (Path(context.url) / "_private" / "notes").write_bytes(b"x")
    make_old(context)
    texts = {path.rpartition("/")[2]: text for path, text in explained(context).items()}
    assert len(texts) == 3
    assert "left over from the job" in str(texts[f"{stem}-9{number}.parquet"]) and "snapshot 5" in str(
        texts[f"{stem}-9{number}.parquet"]
    )
    assert "its writer died" in str(texts["data-00000000-0000-4000-8000-000000000000-0.parquet"])
    assert texts["odd"] == "no version refers to it"


def test_young_files_stay(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    make_old(context)
    (Path(context.url) / "bucket-0" / "data-young.parquet").write_bytes(b"x")
    assert not found(context).files
    with pytest.raises(Refused, match="younger than a day"):
        find_orphans(context, context.clock.now_millis())
    assert [file.name for file in found(context, force=True).files] == ["data-young.parquet"]


class AheadClock:
    """This machine's clock is two days ahead."""

    def now_millis(self) -> int:
        return SystemClock().now_millis() + 2 * DAY_MILLIS

    def sleep(self, seconds: float) -> None:
        raise AssertionError("the clock must not be slept on")


def test_a_clock_that_is_ahead_makes_no_file_old(tmp_path: Path) -> None:
    context = replace(table_of_five(tmp_path), clock=AheadClock())
    write(context, [{"k": 1, "v": "in progress"}])
    Path(context.layout.snapshot(6)).unlink()
    Path(context.layout.latest_hint).write_text("5")
    before = {path for path in Path(context.url).rglob("*")}
    a_day_ago = context.clock.now_millis() - DAY_MILLIS
    assert find_orphans(context, a_day_ago).files, "by this clock they are old"
    checked = not_ahead_of_the_storage(context)
    assert {path for path in Path(context.url).rglob("*")} == before, "no probe stays"
    assert not find_orphans(checked, checked.clock.now_millis() - DAY_MILLIS).files
    with pytest.raises(Refused, match="younger than a day"):
        find_orphans(checked, a_day_ago)


def test_probes_of_processes_that_died_are_orphans(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    root = Path(context.url)
    (root / ".commit-probe-passed").mkdir()
    (root / ".commit-probe-passed" / "marker").write_bytes(b"")
    for name in (".commit-probe-1", ".commit-probe-2"):
        (root / name).mkdir()
    (root / ".commit-probe-1" / "time").write_bytes(b"")
    for path in (*root.glob(".commit-probe-*/*"), *root.glob(".commit-probe-*")):
        os.utime(path, (0, 0))
    orphans = find_orphans(context, 1000)
    assert [file.path for file in orphans.files] == [str(root / ".commit-probe-1" / "time")]
    remove_orphans(context, orphans, delete_files(context))
    assert [path.name for path in root.glob(".commit-probe-*")] == [".commit-probe-passed"]


def test_a_clock_that_agrees_or_lags_is_used(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    assert not_ahead_of_the_storage(context) is context
    behind = replace(context, clock=BelatedClock(SystemClock(), 5 * DAY_MILLIS))
    assert not_ahead_of_the_storage(behind) is behind


def test_a_version_that_cannot_be_read_stops_it(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    make_old(context)
    Path(context.layout.manifest(context.snapshots.get(2).delta_manifest_list)).write_bytes(b"nonsense")
    with pytest.raises(DamagedFile):
        found(TableContext.open(context.url))


def test_a_table_without_versions_is_not_emptied(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for number in context.snapshots.ids():
        Path(context.layout.snapshot(number)).unlink()
    make_old(context)
    with pytest.raises(Refused, match="the table refers to no files"):
        found(context)


def test_a_version_made_after_the_search_is_seen(tmp_path: Path) -> None:
    """An old file that a commit, a tag or a branch starts to use at the last moment."""
    context = table_of_five(tmp_path)
    text = context.storage.read_bytes(context.layout.snapshot(5))
    create_tag(context, "kept", 5)
    Path(context.layout.snapshot(5)).unlink()
    make_old(context)
    Path(context.layout.tag("kept")).unlink()
    orphans = found(context)
    assert len(orphans.files) == 4
    Path(context.layout.snapshot(5)).write_bytes(text)
    assert remove(context, orphans) == 0
    check_versions(context)


def test_copies_in_quarantine_and_empty_directories(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"dt": "STRING NOT NULL", "k": "INT NOT NULL"}, ["dt", "k"], ["dt"])
    write(context, [{"dt": "a", "k": 1}])
    lost = Path(context.url) / "dt=b" / "bucket-0" / "data-lost.parquet"
    lost.parent.mkdir(parents=True)
    lost.write_bytes(b"precious")
    (Path(context.url) / "dt=c" / "bucket-0").mkdir(parents=True)
    make_old(context)
    kinds = [row.kind for row in orphan_rows(context, found(context), explain=False)]
    assert kinds == ["data", "empty directory"]
    for inside in (context.url, f"{context.url}/dt=a"):
        with pytest.raises(UsageError, match="inside the table"):
            clean_orphans(context, found(context), inside, None, NoProgress())
    assert lost.exists()
    assert clean_orphans(context, found(context), str(tmp_path / "q"), None, NoProgress()) == (1, 8)
    assert (tmp_path / "q" / "dt=b" / "bucket-0" / "data-lost.parquet").read_bytes() == b"precious"
    assert sorted(path.name for path in Path(context.url).glob("dt=*")) == ["dt=a"]
    assert rows(context) == [{"dt": "a", "k": 1}]


def test_a_link_is_deleted_and_not_followed(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"x")
    os.symlink(tmp_path / "outside", Path(context.url) / "bucket-7")
    os.symlink(tmp_path / "outside" / "file", Path(context.url) / "bucket-0" / "data-link.parquet")
    context = replace(context, read_threads=1)
    orphans = found(context, force=True)
    assert [file.name for file in orphans.files] == ["data-link.parquet"]
    assert remove(context, orphans) == 1 and (tmp_path / "outside" / "file").exists()


# ---- whose they were ----------------------------------------------------------------------------------------------------


def lose(context: TableContext, *numbers: int) -> None:
    """These newest snapshots were never published."""
    for number in numbers:
        Path(context.layout.snapshot(number)).unlink()
    Path(context.layout.latest_hint).unlink()


def test_each_of_several_lost_commits_is_reported_with_its_user_and_rows(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for user, count in (("ann", 1), ("bob", 2), ("cid", 3)):
        write(context, [{"k": key, "v": user} for key in range(count)], commit_user=user)
        number = context.snapshots.latest_id()
        copy = Path(context.layout.snapshot_directory) / f".snapshot-{number}.ab.tmp"
        copy.write_bytes(Path(context.layout.snapshot(number or 0)).read_bytes())
    lose(context, 6, 7, 8)
    make_old(context)
    texts = [text for path, text in explained(context).items() if not path.startswith("snapshot/")]
    at = datetime.fromtimestamp(int(Path(context.layout.schema(0)).stat().st_mtime), timezone.utc)
    for user, what in (("ann", "1 file, 1 row"), ("bob", "1 file, 2 rows"), ("cid", "1 file, 3 rows")):
        text = f"looks like a lost commit of user {user} at {at:%Y-%m-%d %H:%M:%S} UTC: {what}, all present"
        assert texts.count(text) == 4, "a data file, a manifest and two lists"
    assert len(texts) == 12


def test_a_snapshot_that_was_cut_off_hides_no_other(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    write(context, [{"k": 1, "v": "lost"}], commit_user="etl")
    folder = Path(context.layout.snapshot_directory)
    (folder / ".snapshot-6.zz.tmp").write_bytes(Path(context.layout.snapshot(6)).read_bytes())
    (folder / ".snapshot-6.aa.tmp").write_bytes(b'{"version" : 3, "id"')
    (folder / ".snapshot-5.bb.tmp").write_bytes(Path(context.layout.snapshot(5)).read_bytes())
    lose(context, 6)
    make_old(context)
    texts = explained(context)
    assert sum("lost commit of user etl" in str(text) for text in texts.values()) == 4 and len(texts) == 7


@pytest.mark.parametrize("cut", ["manifest-list", "manifest"])
def test_manifests_that_were_cut_off_hide_no_others(tmp_path: Path, cut: str) -> None:
    context = table_of_five(tmp_path)
    for user in ("ann", "bob"):
        write(context, [{"k": 1, "v": user}], commit_user=user)
    snapshots = [context.snapshots.get(number) for number in (6, 7)]
    uuids = [snapshot.delta_manifest_list.removeprefix("manifest-list-")[:36] for snapshot in snapshots]
    lose(context, 6, 7)
    first = min(uuids)
    for path in Path(context.layout.manifest_directory).glob(f"{cut}-{first}*"):
        path.write_bytes(path.read_bytes()[:40])
    make_old(context)
    texts = {path.rpartition("/")[2]: str(text) for path, text in explained(context).items()}
    for uuid in uuids:
        found = [text for name, text in texts.items() if uuid in name]
        whole = cut == "manifest-list" or uuid != first
        assert len(found) == 3
        assert all(("1 file, 1 row, all present" if whole else "metadata of a commit attempt") in text for text in found)


def entry(name: str, rows: int) -> ManifestEntry:
    return ManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, 1, replace(data_file(name), row_count=rows))


AT = "2023-11-14 22:13:20 UTC"


@pytest.mark.parametrize(
    ("added", "on_disk", "used", "text"),
    [
        ("", "", "", f"metadata of a commit attempt of an unknown user at {AT} that was retried or given up"),
        ("ab", "ab", "ab", f"metadata of a commit attempt of an unknown user at {AT} that was retried or given up"),
        ("ab", "ab", "", f"looks like a lost commit of an unknown user at {AT}: 2 files, 3 rows, all present"),
        ("ab", "b", "a", f"looks like a lost commit of an unknown user at {AT}: 1 file, 2 rows, all present"),
        ("ab", "a", "b", f"looks like a lost commit of an unknown user at {AT}: 1 file, 1 row, all present"),
        ("abc", "ac", "", f"looks like a lost commit of an unknown user at {AT}: 3 files, 3 rows, 1 of them missing"),
        ("ab", "", "", f"metadata of a version that expired or was given up; its data files no longer exist (commit at {AT})"),
        ("ab", "a", "a", f"metadata of a version that expired or was given up; its data files no longer exist (commit at {AT})"),
    ],
)
def test_what_a_lost_commit_left_in_words(tmp_path: Path, added: str, on_disk: str, used: str, text: str) -> None:
    sizes = {"a": 1, "b": 2, "c": 0}
    lost = OrphanedCommit("u", 1_700_000_000_999, [entry(name, sizes[name]) for name in added])
    names = UsedNames(table_of_five(tmp_path), names=set(used))
    assert lost.text(set(on_disk), names) == text


def test_unreferenced_indexes_and_statistics_are_reported(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for name in ("index/index-0", "statistics/stats-0", "manifest/index-manifest-0", "snapshot/.snapshot-7.0.tmp"):
        (Path(context.url) / name).parent.mkdir(exist_ok=True)
        (Path(context.url) / name).write_bytes(b"xyz")
    make_old(context)
    found_files = {file.path.removeprefix(f"{context.url}/"): file for file in found(context).files}
    assert {name: (file.kind, file.size) for name, file in found_files.items()} == {
        "index/index-0": ("index", 3),
        "statistics/stats-0": ("statistics", 3),
        "manifest/index-manifest-0": ("manifest", 3),
        "snapshot/.snapshot-7.0.tmp": ("temporary", 3),
    }
    assert found(context).size == 12
    assert explained(context) == {
        "index/index-0": "an index file that no version refers to",
        "statistics/stats-0": "statistics that no version refers to",
        "manifest/index-manifest-0": "no version refers to it",
        "snapshot/.snapshot-7.0.tmp": "temporary file of an interrupted write",
    }


@pytest.mark.parametrize("directory", ["schema", "tag", "consumer", "commit-user", "lease"])
def test_records_that_were_cut_off_are_reported(tmp_path: Path, directory: str) -> None:
    context = table_of_five(tmp_path)
    folder = Path(context.url) / directory
    folder.mkdir(exist_ok=True)
    (folder / ".compaction-1.0b6f.tmp").write_bytes(b"x")
    (folder / "compaction-1").write_bytes(b"x")
    make_old(context)
    assert [file.path for file in found(context).files] == [f"{folder}/.compaction-1.0b6f.tmp"]


@pytest.mark.parametrize(
    ("name", "stamp"),
    [
        ("data-1-2-3-4-5-0.parquet", "1-2-3-4-5"),
        ("data-u-1-2-3-4-5-0.parquet", "u-1-2-3-4"),
        ("data-1-2-3-4-5", "data-1-2-3-4-5"),
        ("changelog-1-2-3-4-5-7", "1-2-3-4-5"),
        ("odd", "odd"),
    ],
)
def test_files_of_one_writer_have_a_stamp_in_common(name: str, stamp: str) -> None:
    assert stamp_of(name) == stamp


# ---- what stops it, and what is looked at again ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["tag", "snapshot", "branch"])
def test_a_version_whose_metadata_is_missing_stops_it(tmp_path: Path, version: str) -> None:
    """Only a changelog may have lost some of its lists."""
    context = table_of_five(tmp_path)
    holder = context.snapshots.get(2)
    create_tag(context, "two", 2)
    create_branch(context, "b", snapshot_id=2)
    for kept in {"tag", "snapshot", "branch"} - {version}:
        if kept == "tag":
            Path(context.layout.tag("two")).unlink()
        else:
            layout = context.layout if kept == "snapshot" else context.layout.of_branch("b")
            Path(layout.snapshot(2)).unlink()
    Path(context.layout.manifest(holder.delta_manifest_list)).unlink()
    make_old(context)
    with pytest.raises(DamagedFile):
        found(TableContext.open(context.url))


def test_a_version_that_disappears_while_it_is_read_names_nothing(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    path = Path(context.layout.snapshot(2))
    make_old(context)
    for ending, act in (("snapshot-2", path.unlink), (context.snapshots.get(3).delta_manifest_list, lambda: expired(context))):
        going = replace(TableContext.open(context.url, storage=Meddler("read_bytes", ending, act)), read_threads=1)
        assert not {file.path for file in found(going).files} & named_files(context)
    check_versions(context)


def expired(context: TableContext) -> None:
    expire_snapshots(context, KEEP_ONE)


def test_files_are_deleted_in_portions_and_all_versions_are_checked_before_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "orphan_portion_files", 2)
    context = table_of_five(tmp_path)
    bucket = Path(context.url) / "bucket-0"
    for number in range(3):
        (bucket / f"data-lost-{number}.parquet").write_bytes(b"x" * number)
    text = context.storage.read_bytes(context.layout.snapshot(5))
    lose(context, 5)
    make_old(context)
    orphans = found(context)
    names = [file.name for file in orphans.files]
    assert len(names) == 7 and [file.path for file in orphans.files] == sorted(file.path for file in orphans.files)
    portions: list[list[str]] = []

    def delete(paths: Iterable[str]) -> int:
        portions.append([path.rpartition("/")[2] for path in paths])
        if len(portions) == 2:
            Path(context.layout.snapshot(5)).write_bytes(text)
        return len(portions[-1])

    set_aside: list[str] = []
    gone = remove_orphans(context, orphans, delete, set_aside.append)
    assert portions[:2] == [names[:2], names[2:4]] and portions[2:] == [[], []]
    assert [file.name for file in gone] == names[:4] == [path.rpartition("/")[2] for path in set_aside]


def test_the_age_is_exact_and_so_is_the_day(tmp_path: Path) -> None:
    clock = SteppingClock(1_900_000_000_000)
    context = replace(table_of_five(tmp_path), clock=clock)
    path = Path(context.url) / "bucket-0" / "data-lost.parquet"
    path.write_bytes(b"x")
    os.utime(path, (1_800_000_000, 1_800_000_000))
    assert [file.name for file in find_orphans(context, 1_800_000_000_001).files] == ["data-lost.parquet"]
    assert find_orphans(context, 1_800_000_000_000).files == []
    assert find_orphans(context, clock.now_millis() - DAY_MILLIS).older_than == clock.now_millis() - DAY_MILLIS
    with pytest.raises(Refused, match="younger than a day"):
        find_orphans(context, clock.now_millis() - DAY_MILLIS + 1)


@pytest.mark.parametrize(("ahead", "tolerated"), [(1000, True), (1001, False), (90_000, False), (-5000, True)])
def test_a_clock_is_set_back_by_what_it_is_ahead(tmp_path: Path, ahead: int, tolerated: bool) -> None:
    class Ahead(LocalStorage):
        """A storage that gives files the time of another clock."""

        def list_directory(self, path: str) -> list[FileStatus]:
            return [replace(status, modified_millis=1_800_000_000_000) for status in super().list_directory(path)]

    context = replace(table_of_five(tmp_path), clock=SteppingClock(1_800_000_000_000 + ahead), storage=Ahead())
    checked = not_ahead_of_the_storage(context)
    assert (checked is context) == tolerated
    assert checked.clock.now_millis() == 1_800_000_000_000 + (ahead if tolerated else 0)


def test_buckets_and_partitions_at_their_depth_only(tmp_path: Path) -> None:
    columns = {"p": "INT NOT NULL", "q": "INT NOT NULL", "k": "INT NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["p", "q", "k"], ["p", "q"])
    write(context, [{"p": 1, "q": 1, "k": 1}])
    names = [
        *("p=1/q=1/bucket-0/data-a", "p=2/q=1/bucket-1/data-b", "p=2/q=2/bucket-postpone/data-c"),
        *("bucket-0/data-d", "p=1/bucket-0/data-e", "p=1/q=1/r=1/bucket-0/data-f", "p=1/other/bucket-0/data-g"),
        *("p=1/q=1/data-h", "p=1/q=1/bucket-0/inner/data-i"),
    ]
    for name in names:
        (Path(context.url) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(context.url) / name).write_bytes(b"x")
    (Path(context.url) / "p=3/q=1/bucket-0").mkdir(parents=True)
    (Path(context.url) / "p=4").mkdir()
    make_old(context)
    orphans = found(context)
    assert [file.path.removeprefix(f"{context.url}/") for file in orphans.files] == sorted(names[:3])
    empty = {path.removeprefix(f"{context.url}/") for path in orphans.empty_directories}
    assert {"p=3", "p=3/q=1", "p=3/q=1/bucket-0", "p=4"} <= empty
    young = find_orphans(context, 0)
    assert (young.files, young.empty_directories) == ([], [])
    remove(context, orphans)
    left = {str(path.relative_to(context.url)) for path in Path(context.url).glob("p=*/**/") if path.is_dir()}
    assert not left & {"p=3", "p=4", "p=2"} and "p=1/q=1/bucket-0/inner" in left
    assert all((Path(context.url) / name).exists() == (name not in names[:3]) for name in names)
    assert rows(context) == [{"p": 1, "q": 1, "k": 1}]


# files that manifests mention although no version has them


def killed_expiry(context: TableContext) -> set[str]:
    """Expire all snapshots but the newest, and put the data files back, as if it had been killed before it deleted them."""
    before = {path: path.read_bytes() for path in Path(context.url).glob("**/bucket-*/*")}
    expire_snapshots(context, KEEP_ONE)
    left = {path: content for path, content in before.items() if not path.exists()}
    for path, content in left.items():
        path.write_bytes(content)
    return {str(path.relative_to(context.url)) for path in left}


def compacted_table(folder: Path, options: dict[str, str] | None = None) -> TableContext:
    """Three snapshots of writes, whose files the fourth one replaces, and one more write."""
    context = make_table(folder / "t", {"k": "INT NOT NULL"}, ["k"], options={"write-only": "true", **(options or {})})
    for number in range(3):
        write(context, [{"k": number}])
    compact(context)
    write(context, [{"k": 9}])
    return context


def long_after(context: TableContext) -> TableContext:
    return replace(context, clock=SteppingClock(context.clock.now_millis() + 3 * DAY_MILLIS))


@pytest.mark.parametrize("merges", ["2", "30"])
@pytest.mark.parametrize("tag", [None, 2, 4])
@pytest.mark.in_part(2)
def test_what_a_killed_expiry_left_is_an_orphan_although_a_tag_mentions_it(tmp_path: Path, tag: int | None, merges: str) -> None:
    """Also while the manifests that add and delete such a file are still there."""
    context = compacted_table(tmp_path, {"manifest.merge-min-count": merges})
    if tag is not None:
        create_tag(context, "kept", tag)
    left = killed_expiry(context)
    assert len(left) == (1 if tag == 2 else 3)
    make_old(context)
    expected = named_files(context)
    orphans = found(long_after(context))
    assert {file.path.removeprefix(context.url + "/") for file in orphans.files} == left
    assert remove(context, orphans) == len(left)
    assert files_on_disk(context) == expected
    check_versions(context)
    assert len(rows(context)) == 4


def test_files_that_a_young_commit_has_replaced_stay(tmp_path: Path) -> None:
    """The snapshots before it have expired, but a job may still read them."""
    context = compacted_table(tmp_path)
    create_tag(context, "kept", 4)
    left = killed_expiry(context)
    make_old(context)
    assert found(context).files == []
    assert {file.path.removeprefix(context.url + "/") for file in found(long_after(context)).files} == left


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_file_is_used_if_one_version_lacks_the_manifest_that_deletes_it(tmp_path: Path, order: tuple[int, int]) -> None:
    """Whichever of the two versions is read first."""
    added = MentionedFiles(("a", "b"), {("a",): ("a",), ("b",): ("b", "b.index")}, frozenset())
    deleting = MentionedFiles(("b",), {}, frozenset({("b",)}))
    versions = [{"m1": added, "m2": deleting}, {"m1": added}]
    live = [[*added.live_beside(versions[number])] for number in order]
    assert live == ([["a"], ["b", "b.index"]] if order == (0, 1) else [["a", "b", "b.index"], []])


def test_what_a_manifest_deletes_is_remembered_when_it_deletes_more() -> None:
    """Both manifests delete `t`, which at first counts for `y`; only `x` deletes `s`."""
    added = MentionedFiles(("s", "t"), {("s",): ("s",), ("t",): ("t",)}, frozenset())
    x, y = (MentionedFiles((), {}, frozenset((name,) for name in names)) for names in ("st", "t"))
    versions = [{"y": y, "x": x}, {"x": x}, {}]
    assert [sorted(added.live_beside(others)) for others in versions] == [[], [], ["s", "t"]]


def test_the_live_files_of_all_versions_are_used_in_whatever_order_they_are_read() -> None:
    """Each name once. `m2` to `m4` each delete some of what `m1` adds, `m3` also adds and deletes a file of its own."""
    content = {"m1": ("abcd", ""), "m2": ("", "b"), "m3": ("ef", "cf"), "m4": ("g", "bde")}
    versions = [["m1", "m2"], ["m1", "m2", "m3"], ["m1", "m3", "m4"], ["m3", "m4", "m1", "m2"]]
    for some in (order for count in range(1, 5) for order in permutations(versions, count)):
        mentioned = {
            name: MentionedFiles(
                (*added, *deleted), {(each,): (each, f"{each}.index") for each in added}, frozenset(zip(deleted))
            )
            for name, (added, deleted) in content.items()
        }
        found = [
            name
            for version in some
            for each in version
            for name in mentioned[each].live_beside({m: mentioned[m] for m in version})
        ]
        live: set[str] = set()
        for version in some:
            gone = {name for each in version for name in content[each][1]}
            live |= {name for each in version for name in content[each][0]} - gone
        assert sorted(found) == sorted([*live, *(f"{name}.index" for name in live)]), some


def test_a_tag_that_was_moved_between_two_refreshes_is_read_again(tmp_path: Path) -> None:
    """A file of the same name is another version: `remove_orphans` reads the versions anew before each portion."""
    context = table_of_five(tmp_path)
    create_tag(context, "moved", 1)
    create_tag(context, "three", 3)
    expire_snapshots(context, KEEP_ONE)
    content = context.storage.read_bytes(context.layout.tag("three"))
    (added,) = {entry.file.file_name for entry in context.manifests.delta_entries(context.tags.get("three").snapshot)}
    context.storage.delete(context.layout.tag("three"))
    used = UsedNames(context)
    assert used.refresh() == 2 and added not in used.names
    moved = Path(context.layout.tag("moved"))
    moved.write_bytes(content)
    os.utime(moved, (10, 10))
    assert used.refresh() == 2 and added in used.names


def test_what_a_commit_deleted_is_used_by_young_jobs_and_by_changelogs_to_come(tmp_path: Path) -> None:
    """Without a producer the expiry of the changelog of snapshot 4 will delete them; the snapshots before it have expired."""
    context = table_of_five(tmp_path)
    compaction = context.snapshots.get(4)
    deleted = {entry.file.file_name for entry in context.manifests.delta_entries(compaction) if entry.kind == EntryKind.DELETE}
    lose(context, 1, 2, 3)
    outlive, producer = {"changelog.num-retained.max": "99", "changelog.num-retained.min": "99"}, {"changelog-producer": "input"}

    def used(options: dict[str, str], younger_by: int | None) -> bool:
        names = UsedNames(context.with_options(options), None if younger_by is None else compaction.time_millis - younger_by)
        assert names.refresh() == 2 and deleted & names.names in (set(), deleted)
        return deleted <= names.names

    assert [used(options, None) for options in ({}, outlive, outlive | producer, producer)] == [False, True, False, False]
    assert [used(producer | outlive, younger_by) for younger_by in (-1, 0, 1)] == [False, True, True]


def test_used_names_are_read_as_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry becomes an object: `health` has made those of the live files already, and needs only names here."""
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    for number in range(3):
        write(context, [{"id": number}])
    compact(context)
    expected = {file.file_name for bucket in bucket_files(context, context.snapshots.latest()).values() for file in bucket.files}

    def decoded(*_: object) -> None:
        raise AssertionError("an entry was decoded")

    monkeypatch.setattr(PIECES, "min_column_blocks", 1)  # or small manifests are decoded as objects, which is faster
    for name in ("entry_of", "entries_of", "decode_manifest"):
        monkeypatch.setattr(manifest_table, name, decoded)
    monkeypatch.setattr(ManifestReader, "manifest", decoded)
    used = UsedNames(TableContext.open(context.url))
    assert used.refresh() == 4 and expected < used.names


def test_locked_orphans_do_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In no portion: no run would ever get past them."""
    monkeypatch.setattr(PIECES, "orphan_portion_files", 3)
    context = table_of_five(tmp_path)
    bucket = next(Path(context.url).glob("bucket-*"))
    for number in range(10):
        (bucket / f"data-{number}.parquet").write_bytes(b"x")
    make_old(context)

    class Locked(LocalStorage):
        def delete(self, path: str) -> None:
            if path.endswith(("data-1.parquet", "data-5.parquet")):
                raise RequestRefused(f"the store refused {path}", "locked", path=path)
            super().delete(path)

    orphans = found(context)
    assert len(orphans.files) == 10
    with pytest.raises(FilesLeft, match=r"^8 files deleted, 2 refused: .*data-1\.parquet \(locked\)") as left:
        remove(TableContext.open(context.url, storage=Locked()), orphans)
    assert f"paimon-cli orphans rm {context.url} --apply" in left.value.hint
    assert [file.name for file in found(context).files] == ["data-1.parquet", "data-5.parquet"]
    assert remove(context, found(context)) == 2
