"""Changelogs that outlive their snapshots, until they expire, too."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.errors import DamagedFile, NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.maintain.expire_changelogs import expire_changelogs, files_removed_with_changelogs, plan_changelogs
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.orphans import find_orphans
from paimon_cli.maintain.retention import (
    Consumer,
    Retention,
    consumers,
    expire_consumers,
    oldest_consumed,
    remove_consumer,
    reset_consumer,
)
from paimon_cli.maintain.tags import create_tag, plan_removal, remove_tags
from tests.commit.commit_tables import SteppingClock
from tests.goldens import GOLDENS, golden_table
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.maintain.versions import check_versions, files_on_disk
from tests.rivals import Meddler
from tests.tables import compact, make_table, write

FOREVER = 1 << 60


def outlived(folder: Path) -> TableContext:
    """Changelogs 1 to 5 of a table with one snapshot left."""
    options = {"changelog.time-retained": "2 h"}
    context = make_table(folder / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options)
    for number in (1, 2, 3):
        write(context, [{"k": number, "v": "a"}])
    compact(context)
    write(context, [{"k": 1, "v": "b"}])
    compact(context)
    expire_snapshots(context, KEEP_ONE)
    return context


def ids(context: TableContext) -> list[int]:
    return ChangelogHistory(context.storage, context.layout).ids()


def test_they_go_when_they_may(tmp_path: Path) -> None:
    context = outlived(tmp_path)
    assert ids(context) == [1, 2, 3, 4, 5] and not find_orphans(context, FOREVER, force=True).files
    for keep in (5, 4, 3, 2):
        plan = plan_changelogs(context, Retention(keep, keep, 0, None))
        assert plan is not None and plan.kept is not None and plan.kept.id == 7 - keep
        planned = {file.path for file in files_removed_with_changelogs(context, plan)}
        assert expire_changelogs(context, plan, delete_files(context)) == len(planned)
        assert not any(Path(path).exists() for path in planned)
        assert Path(context.layout.earliest_changelog_hint).read_text() == str(7 - keep)
        check_versions(context)
    assert ids(context) == [5] and plan_changelogs(context, KEEP_ONE) is None, "the newest stays"
    assert not find_orphans(context, FOREVER, force=True).files


def test_consumers_hold_changelogs_and_are_set_back_and_forgotten(tmp_path: Path) -> None:
    context = outlived(tmp_path)
    reset_consumer(context, "slow", 3)
    plan = plan_changelogs(context, KEEP_ONE)
    assert plan is not None and [changelog.id for changelog in plan.expiring] == [1, 2]
    assert (oldest_consumed(context), [c.name for c in consumers(context)]) == (3, ["slow"])
    assert expire_consumers(context) == [] and len(expire_consumers(context, older_than=FOREVER)) == 1
    newest = context.snapshots.latest_id() or 0
    reset_consumer(context, "again", newest + 1)
    for nowhere in (newest + 2, 2**64):
        with pytest.raises(NotFound):
            reset_consumer(context, "lost", nowhere)
    remove_consumer(context, "again")
    assert oldest_consumed(context) is None


def test_each_bound_keeps_what_the_others_would_expire(tmp_path: Path) -> None:
    """Beside a rule that decides for one changelog at a time, oldest first."""
    context = outlived(tmp_path)
    changelogs, latest = ChangelogHistory(context.storage, context.layout).all(), context.snapshots.latest_id() or 0
    now = changelogs[-1].time_millis + 10_000
    context = replace(context, clock=SteppingClock(now))
    ages = [now - changelogs[2].time_millis, 0, 1 << 40]
    expected = set()
    for consumed in (None, 2, 4, latest):
        if consumed is not None:
            reset_consumer(context, "c", consumed)
        for at_least, more, millis, limit in itertools.product((1, 3, 5), (0, 2, 9), ages, (None, 1, 3)):
            gone: list[int] = []
            for changelog in changelogs[:-1]:
                number, is_young = latest - changelog.id + 1, now - changelog.time_millis <= millis
                must_stay = number <= at_least or (consumed is not None and changelog.id >= consumed) or len(gone) == limit
                if must_stay or (number <= at_least + more and is_young):
                    break
                gone.append(changelog.id)
            plan = plan_changelogs(context, Retention(at_least, at_least + more, millis, limit))
            assert ([changelog.id for changelog in plan.expiring] if plan else []) == gone, (
                at_least,
                more,
                millis,
                limit,
                consumed,
            )
            expected.add(len(gone))
    assert expected == {0, 1, 2, 3, 4}


def test_changelogs_need_the_files_of_a_tag_that_goes(tmp_path: Path) -> None:
    options = {"changelog.time-retained": "2 h", "write-only": "true"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options)
    for number in range(5):
        write(context, [{"k": number % 2, "v": f"{number}"}])
        create_tag(context, f"tag-{number}")
    compact(context, strategy="full")
    expire_snapshots(context, KEEP_ONE)
    before = files_on_disk(context)
    remove_tags(context, plan_removal(context, [f"tag-{number}" for number in range(5)]), delete_files(context))
    gone = {path for path in before - files_on_disk(context) if "/tag" not in path}
    assert ids(context) == [1, 2, 3, 4, 5] and not [path for path in gone if "data-" in path], gone
    check_versions(context)


def test_tables_of_java_with_changelog_files(tmp_path: Path) -> None:
    """Expiry deletes the changelog files of a snapshot, or leaves them to its changelog."""
    found = [golden for golden in GOLDENS if golden.options.get("changelog-producer") == "full-compaction"]
    url = str(golden_table(found[0].writer, found[0].name, tmp_path))
    names = {path.name for path in Path(url).glob("**/changelog-*") if path.is_file()}
    keep = {"changelog.num-retained.min": "1000"}
    expire_snapshots(TableContext.open(url, keep), KEEP_ONE)
    context = TableContext.open(url)
    assert ids(context) and names <= {path.name for path in Path(url).glob("**/changelog-*")}
    assert not find_orphans(context, FOREVER, force=True).files
    plan = plan_changelogs(context, KEEP_ONE)
    assert plan is not None
    expire_changelogs(context, plan, delete_files(context))
    assert ids(context) == [] and not find_orphans(context, FOREVER, force=True).files
    check_versions(context)


def test_a_consumer_goes_on_from_any_snapshot_that_is_there_or_comes_next(tmp_path: Path) -> None:
    context = replace(table_of_five(tmp_path), clock=SteppingClock(1_700_000_000_000))
    expire_snapshots(context, Retention(3, 3, 0, None))
    assert context.snapshots.ids() == [3, 4, 5]
    for number in (3, 5, 6):
        assert reset_consumer(context, "c", number) == Consumer("c", number, 1_700_000_000_000)
        assert Path(context.layout.consumer("c")).read_bytes() == b'{\n  "nextSnapshot" : %d\n}' % number
        assert oldest_consumed(context) == number
    for nowhere in (2, 7):
        with pytest.raises(NotFound, match=f"no snapshot {nowhere}"):
            reset_consumer(context, "c", nowhere)
    Path(context.layout.changelog_directory).mkdir()
    Path(context.layout.changelog(2)).write_bytes(Path(context.layout.snapshot(3)).read_bytes())
    assert reset_consumer(context, "c", 2).next_snapshot == 2
    for name in ("a/b", "", ".."):
        with pytest.raises(UsageError, match="cannot be the name of a consumer"):
            reset_consumer(context, name, 3)


def test_a_missing_consumer_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    with pytest.raises(NotFound, match=r"no consumer 'x' of .*: it has no consumers"):
        remove_consumer(context, "x")
    for name in ("b", "a"):
        reset_consumer(context, name, 3)
    with pytest.raises(NotFound, match="its consumers are a, b") as missing:
        remove_consumer(context, "x")
    assert missing.value.details["consumer"] == "x" and missing.value.hint.startswith("paimon-cli consumers ls ")
    with pytest.raises(NotFound):
        remove_consumer(context, "../snapshot/snapshot-1")
    assert [consumer.name for consumer in consumers(context)] == ["a", "b"] and context.snapshots.ids()[0] == 1


def test_a_consumer_that_goes_on_while_others_expire_stays(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for name in ("a", "b", "c"):
        reset_consumer(context, name, 3)
        os.utime(context.layout.consumer(name), (1_000, 1_000))
    limit = context.clock.now_millis() - 3_600_000
    rival = Meddler("delete", "consumer-a", lambda: reset_consumer(context, "b", 4))
    gone = expire_consumers(replace(context, storage=rival), older_than=limit)
    assert [consumer.name for consumer in gone] == ["a", "c"]
    assert [(consumer.name, consumer.next_snapshot) for consumer in consumers(context)] == [("b", 4)]


@pytest.mark.parametrize("content", ["", "x", "[]", "{}", '{"nextSnapshot": null}', '{"nextSnapshot": "a"}'])
def test_a_consumer_that_cannot_be_read_stops_every_expiry(tmp_path: Path, content: str) -> None:
    context = table_of_five(tmp_path)
    reset_consumer(context, "good", 5)
    Path(context.layout.consumer("bad")).write_text(content)
    with pytest.raises(DamagedFile, match=r"cannot read consumer file .*consumer-bad") as damaged:
        expire_snapshots(context, KEEP_ONE)
    assert damaged.value.details["path"] == context.layout.consumer("bad") and context.snapshots.ids() == [1, 2, 3, 4, 5]


def test_index_manifests_that_expired_with_their_snapshots_stop_no_search_for_orphans(tmp_path: Path) -> None:
    """A long-lived changelog still names the index manifest of its snapshot, which nothing reads any more."""
    options = {"changelog.time-retained": "2 h", "changelog-producer": "input", "deletion-vectors.enabled": "true"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options)
    write(context, [{"k": 1, "v": "a"}, {"k": 2, "v": "a"}])
    for value in "bcd":
        write(context, [{"k": 1, "v": value}])
    expire_snapshots(context, KEEP_ONE)
    changelogs = ChangelogHistory(context.storage, context.layout).all()
    named = {context.layout.manifest(changelog.index_manifest) for changelog in changelogs if changelog.index_manifest}
    assert any(not context.storage.exists(path) for path in named)
    assert not find_orphans(context, FOREVER, force=True).files
