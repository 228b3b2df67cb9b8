"""Orphans are found, told apart and deleted; what any version, or a running writer, may need never is."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.errors import DamagedFile, Refused, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.orphans_job import clean_orphans, orphan_rows
from paimon_cli.jobs.progress import NoProgress
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.orphans import DAY_MILLIS, Orphans, find_orphans, not_ahead_of_the_storage, remove_orphans
from paimon_cli.maintain.side_by_side import delete_files
from paimon_cli.maintain.tags import create_tag
from paimon_cli.storage.clock_and_names import BelatedClock, SystemClock
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.maintain.versions import check_versions, files_on_disk, named_files
from tests.tables import make_table, rows, write


def make_old(context: TableContext, days: float = 3) -> None:
    """As if the last thing that happened to any file had been days ago."""
    then = context.clock.now_millis() / 1000 - days * 86_400
    for path in (Path(context.url), *Path(context.url).glob("**/*")):
        os.utime(path, (then, then))


def found(context: TableContext, force: bool = False) -> Orphans:
    return find_orphans(context, context.clock.now_millis() + (1000 if force else -DAY_MILLIS - 1000), force)


def explained(context: TableContext) -> dict[str, str | None]:
    return {row.path: row.origin for row in orphan_rows(context, found(context), explain=True)}


def remove(context: TableContext, orphans: Orphans) -> int:
    return len(remove_orphans(context, orphans, delete_files(context)))


def test_a_whole_table_has_none(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "two", 2)
    create_branch(context, "b", snapshot_id=3)
    write(context.at_branch("b"), [{"k": 5, "v": "b"}])
    expire_snapshots(context, KEEP_ONE)
    make_old(context)
    assert not found(context).files and not found(context.at_branch("b")).files
    check_versions(context)


def test_a_lost_commit_is_told_and_taken(tmp_path: Path) -> None:
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


def test_what_dead_writers_and_jobs_left_is_told_apart(tmp_path: Path) -> None:
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
    with pytest.raises(Refused, match="a day old"):
        find_orphans(context, context.clock.now_millis())
    assert [file.name for file in found(context, force=True).files] == ["data-young.parquet"]


class AheadClock:
    """This machine's clock is two days ahead."""

    def now_millis(self) -> int:
        return SystemClock().now_millis() + 2 * DAY_MILLIS

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits")


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
    with pytest.raises(Refused, match="at least a day old"):
        find_orphans(checked, a_day_ago)


def test_a_clock_that_agrees_or_is_behind_is_kept(tmp_path: Path) -> None:
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
    """An old file that a commit, a tag or a branch takes into use at the last moment."""
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
