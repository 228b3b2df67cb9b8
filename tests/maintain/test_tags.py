"""Tags protect files from the moment that they exist, and release those that only they held."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from paimon_cli.api.table import Table
from paimon_cli.errors import NotFound, PaimonError, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import (
    create_tag,
    expired_tags,
    files_removed_with_tags,
    plan_removal,
    remove_tags,
    rename_tag,
    replace_tag,
    snapshot_and_holder,
    text_within_tag,
)
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import SteppingClock
from tests.maintain.versions import check_versions, files_on_disk, named_files
from tests.rivals import Meddler
from tests.tables import compact, make_table, rows, write

KEEP_ONE = Retention(at_least=1, at_most=1, millis=0, limit=None)
COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def table_of_five(folder: Path) -> TableContext:
    """Three writes, a compaction and another write; created once, then copied."""
    shutil.copytree(_made_of_five().name, folder / "t")
    return TableContext.open(str(folder / "t"))


@cache
def _made_of_five() -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory()
    context = make_table(Path(made.name), COLUMNS, ["k"], options={"write-only": "true"})
    for number in (1, 2, 3):
        write(context, [{"k": number, "v": str(number)}])
    compact(context)
    write(context, [{"k": 9, "v": "z"}])
    return made


def remove(context: TableContext, *names: str) -> int:
    return remove_tags(context, plan_removal(context, names), delete_files(context))


def test_a_tag_is_made_moved_renamed_and_deleted(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    assert create_tag(context, "a", 2).snapshot.id == 2 and create_tag(context, "b").snapshot.id == 5
    with pytest.raises(UsageError, match="exists"):
        create_tag(context, "a")
    assert replace_tag(context, "a", 3, 60_000).retained_millis == 60_000
    rename_tag(context, "a", "c")
    with pytest.raises(UsageError, match="exists"):
        rename_tag(context, "b", "c")
    assert {name: tag.snapshot.id for name, tag in context.tags.all().items()} == {"b": 5, "c": 3}
    assert remove(context, "b", "c") == 0 and not context.tags.names()
    with pytest.raises(NotFound, match="no tag 'b'"):
        plan_removal(context, ["b"])


@pytest.mark.parametrize("name", ["", " ", "12", "a/b", "..", "a\0"])
def test_names_that_no_tag_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        create_tag(table_of_five(tmp_path), name)


def test_files_go_with_the_last_tag_that_holds_them(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    before = {number: rows(context, snapshot_id=number) for number in (2, 3)}
    for name, number in (("two", 2), ("also-two", 2), ("three", 3)):
        create_tag(context, name, number)
    expire_snapshots(context, KEEP_ONE)
    assert remove(context, "two") == 0
    create_tag(context, "of-expired", 3)
    assert remove(context, "three") == 0
    assert remove(context, "also-two") > 0
    assert files_on_disk(context) == named_files(context)
    check_versions(context)
    Path(context.layout.snapshot(3)).write_bytes(Path(context.layout.tag("of-expired")).read_bytes())
    Path(context.layout.earliest_hint).unlink()
    assert rows(context, snapshot_id=3) == before[3]
    Path(context.layout.snapshot(3)).unlink()
    assert remove(context, "of-expired") > 0 and files_on_disk(context) == named_files(context)


def test_a_changelog_is_published_again_only_if_all_its_files_are_there(tmp_path: Path) -> None:
    """An expiry that was killed leaves some of them, and a stream that begins to read the snapshot would break."""
    options = {"changelog-producer": "input"}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=4, options=options)
    write(context, [{"k": number, "v": "a"} for number in range(20)])
    create_tag(context, "a")
    content = context.tags.content("a")
    assert content is not None
    files = sorted(Path(context.url).glob("bucket-*/changelog-*"))
    assert len(files) == 4 and Snapshot.from_json(text_within_tag(context, content)).changelog_manifest_list is not None
    for file in files:
        kept = file.read_bytes()
        file.unlink()
        again = Snapshot.from_json(text_within_tag(context, content))
        assert again.changelog_manifest_list is None and again.changelog_has_expired
        file.write_bytes(kept)


def test_an_expired_snapshot_is_tagged_by_a_tag_of_it_and_of_no_later_one(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for name, number in (("a", 3), ("b", 2), ("c", 4)):
        create_tag(context, name, number)
    before = sorted(rows(context, snapshot_id=2), key=lambda row: int(row["k"]))
    expire_snapshots(context, KEEP_ONE)
    assert create_tag(context, "again", 2).snapshot.id == 2
    assert snapshot_and_holder(context, 2)[1] in (context.layout.tag("b"), context.layout.tag("again"))
    found = Table.open(context.url).scan(tag="again").to_arrow().to_pylist()
    assert sorted(found, key=lambda row: int(row["k"])) == before


def test_a_snapshot_that_expires_meanwhile_is_not_tagged(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)

    class Expiring(LocalStorage):
        """Another job expires the table just before the tag is written."""

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            expire_snapshots(context, KEEP_ONE)
            return super().put_if_absent(path, data)

    with pytest.raises(NotFound, match="deleted meanwhile"):
        create_tag(replace(context, storage=Expiring()), "late", 2)
    assert not context.tags.names() and files_on_disk(context) == named_files(context)


def test_a_tag_stays_where_it_is_if_its_new_snapshot_expires_meanwhile(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "a", 4)
    before = rows(context, snapshot_id=4)
    expiring = Meddler("overwrite", "tag-a", lambda: expire_snapshots(context, KEEP_ONE))
    with pytest.raises(NotFound, match="deleted meanwhile"):
        replace_tag(replace(context, storage=expiring), "a", 2)
    assert context.tags.get("a").snapshot.id == 4
    check_versions(context)
    Path(context.layout.snapshot(4)).write_bytes(Path(context.layout.tag("a")).read_bytes())
    assert rows(context, snapshot_id=4) == before


@pytest.mark.parametrize("call", ["create", "rename"])
def test_a_tag_of_another_job_is_neither_replaced_nor_taken_for_ours(tmp_path: Path, call: str) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "mine", 1)
    beside = replace(context, storage=Meddler("put_if_absent", "tag-new", lambda: create_tag(context, "new", 4)))
    with pytest.raises(PaimonError):
        create_tag(beside, "new", 2) if call == "create" else rename_tag(beside, "mine", "new")
    assert {name: tag.snapshot.id for name, tag in context.tags.all().items()} == {"mine": 1, "new": 4}


@pytest.mark.parametrize("removed", [1, 2, 3, 4])
def test_each_other_version_keeps_its_files_when_a_tag_goes(tmp_path: Path, removed: int) -> None:
    """Snapshots that share files with the tag, and other tags, on both sides of it."""
    context = table_of_five(tmp_path)
    for number in (1, 2, 3, 4):
        create_tag(context, f"of-{number}", number)
    expire_snapshots(context, KEEP_ONE)
    remove(context, f"of-{removed}")
    check_versions(context)
    assert files_on_disk(context) == named_files(context)


def test_a_removal_that_was_killed_and_is_finished_leaves_snapshots_their_files(tmp_path: Path) -> None:
    """Also those that another job has put back, or built on the version of the tag, since."""
    context = table_of_five(tmp_path)
    for number in (3, 4):
        create_tag(context, f"of-{number}", number)
    expire_snapshots(context, KEEP_ONE)

    def killed(paths: Iterable[str]) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remove_tags(context, plan_removal(context, ["of-3", "of-4"]), killed)
    assert context.tags.names() == []
    write(context, [{"k": 5, "v": "goes on"}])
    before = {number: rows(context, snapshot_id=number) for number in context.snapshots.ids()}
    assert remove(context, "of-3", "of-4") > 0
    assert {number: rows(context, snapshot_id=number) for number in (5, 6)} == before
    check_versions(context)
    assert files_on_disk(context) == named_files(context)


def test_tags_have_their_time(tmp_path: Path) -> None:
    clock = SteppingClock(1_700_000_000_000)
    context = replace(table_of_five(tmp_path), clock=clock)
    create_tag(context, "short", 1, 1000)
    create_tag(context, "long", 2, 10**9)
    create_tag(context, "ever", 3)
    hourly = context.with_options({"tag.default-time-retained": "1 h"})
    assert create_tag(hourly, "hour", 4).retained_millis == 3_600_000
    remove(context, "hour")
    assert expired_tags(context) == []
    clock.sleep(2)
    assert expired_tags(context) == ["short"]
    unlimited = context.with_options({"tag.time-expire-enabled": "false"})
    assert expired_tags(unlimited) == []
    assert expired_tags(context, older_than=clock.now_millis() + 1000) == ["long", "short"]


def test_a_tag_that_is_made_while_others_are_looked_at_is_no_old_one(tmp_path: Path) -> None:
    """A tag without a time limit is as old as its file, and its file was not listed yet."""
    context = table_of_five(tmp_path)
    create_tag(context, "old", 1)
    rival = Meddler("list_directory", "/tag", lambda: create_tag(context, "new", 2), 2)
    limit = context.clock.now_millis() - 60_000
    assert expired_tags(replace(context, storage=rival), older_than=limit) == [] and context.tags.names() == ["new", "old"]


def test_expiring_tags_are_announced_and_then_removed(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for name, number in (("two", 2), ("three", 3), ("also-three", 3)):
        create_tag(context, name, number)
    expire_snapshots(context, KEEP_ONE)
    for names, some in ((["three"], False), (["two"], True), (["two", "also-three", "three"], True)):
        removal = plan_removal(context, names)
        unneeded = {file.path for file in files_removed_with_tags(context, removal)}
        assert bool(unneeded) == some and context.tags.names() == ["also-three", "three", "two"]
    removal = plan_removal(context, ["three", "also-three"])
    unneeded = {file.path for file in files_removed_with_tags(context, removal)}
    before = {str(path) for path in Path(context.url).rglob("*") if path.is_file()}
    assert unneeded and remove_tags(context, removal, delete_files(context)) == len(unneeded)
    gone = before - {str(path) for path in Path(context.url).rglob("*") if path.is_file()}
    assert gone == unneeded | {context.layout.tag("three"), context.layout.tag("also-three")}
