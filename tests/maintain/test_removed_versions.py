"""A rollback, fast-forward, `tags rm` or expiry of changelogs that was killed at any step is finished by the same command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.errors import Conflict, NotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.reclaim_job import plan_expire
from paimon_cli.maintain.branches import create_branch, fast_forward, plan_fast_forward, remove_branch
from paimon_cli.maintain.drop_table import drop_table
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import DeleteFiles, delete_files
from paimon_cli.maintain.named_files import changelog_entries, file_paths, measured
from paimon_cli.maintain.orphans import DAY_MILLIS, find_orphans
from paimon_cli.maintain.removed_versions import CHANGELOGS, FAST_FORWARD, ROLLBACK, TAGS, unfinished_removals
from paimon_cli.maintain.rollback import files_removed_by_rollback, plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag, files_removed_with_tags, plan_removal, remove_tags
from paimon_cli.requests.maintenance import ExpireOptions
from paimon_cli.storage.injected import SystemClock
from paimon_cli.storage.local_storage import LocalStorage
from tests.commit.commit_tables import Crash
from tests.maintain.test_expire_changelogs import FOREVER, outlived
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.maintain.versions import check_versions, files_on_disk, named_files
from tests.nightly import first
from tests.rivals import Meddler
from tests.simulation.conftest import _quick_metadata as _quick_metadata
from tests.tables import make_table, rows, write


class Dying(LocalStorage):
    """Dies instead of the call `last` + 1 that changes something."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self._left = last

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Crash

    def write_new(self, path: str, data: bytes) -> None:
        self._spend()
        super().write_new(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._spend()
        super().overwrite(path, data)

    def delete(self, path: str) -> None:
        self._spend()
        super().delete(path)

    def delete_directory(self, path: str) -> None:
        self._spend()
        super().delete_directory(path)


def dying(context: TableContext, last: int) -> TableContext:
    return replace(context, storage=Dying(last), read_threads=1)


def killed_at_each_step(
    folder: Path, make: Callable[[Path], TableContext], act: Callable[[TableContext], object]
) -> Iterator[TableContext]:
    """A copy of the table for each step at which `act` is killed, until it is not killed any more."""
    made = Path(make(folder / "made").url)
    for step in range(200):
        copy = folder / str(step) / made.relative_to(folder / "made")
        shutil.copytree(made, copy)
        context = TableContext.open(str(copy))
        try:
            act(dying(context, step))
        except Crash:
            yield TableContext.open(context.url)
        else:
            assert step > 3
            return
    raise AssertionError("it never ends")


def back(context: TableContext, to: int = 2) -> int:
    return roll_back(context, plan_rollback(context, rollback_target(context, to)), delete_files(context))


def untag(context: TableContext, *names: str) -> int:
    return remove_tags(context, plan_removal(context, names), delete_files(context))


def named(context: TableContext) -> set[str]:
    """Every file that a version names, with changelogs."""
    snapshots = context.snapshots.newest_first()
    changelogs = [path for s in snapshots for entry in changelog_entries(context, s) for path in file_paths(context, entry)]
    return named_files(context) | set(changelogs)


def check_clean(context: TableContext) -> None:
    assert files_on_disk(context) == named(context)
    assert not Path(context.layout.removal_directory).exists()
    check_versions(context)


def vectors_and_tags(folder: Path) -> TableContext:
    """Snapshots with deletion vectors, changelogs and a tag of a snapshot that has expired."""
    folder.mkdir()
    options = {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"}
    context = make_table(folder, {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options)
    for number in range(1, 4):
        write(context, [{"k": 1, "v": str(number)}, {"k": number, "v": "x"}])
    create_tag(context, "four", 4)
    return TableContext.open(context.url)


def five(folder: Path) -> TableContext:
    context = table_of_five(folder)
    create_tag(context, "four", 4)
    return context


@pytest.mark.parametrize("make", first(1, [vectors_and_tags, five]))
def test_a_rollback_that_was_killed_is_finished_by_repeating_it(tmp_path: Path, make: Callable[[Path], TableContext]) -> None:
    left_behind = 0
    for context in killed_at_each_step(tmp_path, make, back):
        expected = rows(context, snapshot_id=2)
        left_behind += context.snapshots.latest_id() == 2 and files_on_disk(context) != named(context)
        here = files_on_disk(context)
        plan = plan_rollback(context, rollback_target(context, 2))
        planned = {file.path for file in measured(context, files_removed_by_rollback(context, plan))}
        roll_back(context, plan, delete_files(context))
        assert here - files_on_disk(context) == planned & here
        assert context.snapshots.ids() == [1, 2] and rows(context) == expected and not context.tags.names()
        check_clean(context)
        assert plan_rollback(context, rollback_target(context, 2)).is_needless
    assert left_behind > 3, "the kills left files behind that no version names"


def test_the_way_back_to_a_tag_is_finished_as_well(tmp_path: Path) -> None:
    def make(folder: Path) -> TableContext:
        context = table_of_five(folder)
        create_tag(context, "two", 2)
        expire_snapshots(context, KEEP_ONE)
        return context

    for context in killed_at_each_step(tmp_path, make, back):
        back(context)
        assert context.snapshots.ids() == [2]
        check_clean(context)


def test_a_rollback_further_back_finishes_the_one_before(tmp_path: Path) -> None:
    for context in killed_at_each_step(tmp_path, five, lambda seen: back(seen, 3)):
        back(context, 1)
        assert context.snapshots.ids() == [1]
        check_clean(context)


def test_what_was_committed_after_a_rollback_was_killed_is_kept(tmp_path: Path) -> None:
    for context in killed_at_each_step(tmp_path, five, back):
        write(context, [{"k": 77, "v": "later"}])
        newest = context.snapshots.latest_id() or 0
        expected = rows(context)
        back(context, newest)
        assert rows(context) == expected and {"k": 77, "v": "later"} in expected
        check_versions(context)
        assert not Path(context.layout.removal_directory).exists()


def test_tags_whose_deletion_was_killed_are_deleted_by_name_again(tmp_path: Path) -> None:
    def make(folder: Path) -> TableContext:
        context = table_of_five(folder)
        for name, number in (("two", 2), ("three", 3)):
            create_tag(context, name, number)
        expire_snapshots(context, KEEP_ONE)
        return context

    missing = 0
    for context in killed_at_each_step(tmp_path, make, lambda seen: untag(seen, "three", "two")):
        missing += context.tags.find("three") is None
        untag(context, "three", "two")
        assert not context.tags.names()
        check_clean(context)
        with pytest.raises(NotFound, match="no tag 'two'"):
            untag(context, "two")
    assert missing > 3


@pytest.mark.parametrize("names", [("three",), ("two",), ("three", "two"), ("one",)])
def test_several_deletions_of_tags_that_were_killed_are_finished_together(tmp_path: Path, names: tuple[str, ...]) -> None:
    context = table_of_five(tmp_path)
    for number, name in enumerate(("one", "two", "three"), 1):
        create_tag(context, name, number)
    expire_snapshots(context, KEEP_ONE)
    for name in ("two", "three"):
        with pytest.raises(Crash):
            untag(dying(context, 2), name)
    assert {record.tags for record in unfinished_removals(context, TAGS)} == {("two",), ("three",)}
    removal = plan_removal(context, names)
    assert {*removal.affected} == {"two", "three", *names}
    planned = {file.path for file in files_removed_with_tags(context, removal)}
    here = files_on_disk(context)
    remove_tags(context, removal, delete_files(context))
    assert here - files_on_disk(context) == planned & here
    check_clean(context)


def test_an_expiry_of_tags_finishes_one_that_was_killed(tmp_path: Path) -> None:
    def make(folder: Path) -> TableContext:
        context = table_of_five(folder)
        create_tag(context, "two", 2, 1)
        expire_snapshots(context, KEEP_ONE)
        return context

    def expire(context: TableContext, delete: DeleteFiles | None = None) -> tuple[str, ...]:
        planned = plan_expire(context, ExpireOptions("tags"), NoProgress())
        return planned.run(delete or delete_files(context)).removed

    for context in killed_at_each_step(tmp_path, make, expire):
        assert expire(context) == ("two",) and not context.tags.names() and expire(context) == ()
        check_clean(context)


def test_a_tag_that_was_made_again_keeps_its_files(tmp_path: Path) -> None:
    """The record of the killed deletion names the same snapshot, and the same name."""
    context = table_of_five(tmp_path)
    create_tag(context, "two", 2)
    create_tag(context, "also", 2)
    expire_snapshots(context, KEEP_ONE)
    untag(context, "two")
    with pytest.raises(Crash):
        untag(dying(context, 2), "also")
    assert [record.tags for record in unfinished_removals(context, TAGS)] == [("also",)] and not context.tags.names()
    record = json.loads(Path(unfinished_removals(context, TAGS)[0].path).read_text())
    Path(context.layout.tag("kept")).write_text(json.dumps(record["states"][0]))
    create_tag(context, "other", 5)
    untag(context, "other")
    assert context.tags.get("kept").snapshot.id == 2
    check_clean(context)


def forward(main: TableContext) -> object:
    plan = plan_fast_forward(main, "b")
    return None if plan.is_needless else fast_forward(main, plan, delete_files(main))


def test_a_fast_forward_that_was_killed_is_finished_by_repeating_it(tmp_path: Path) -> None:
    def make(folder: Path) -> TableContext:
        main = table_of_five(folder)
        create_branch(main, "b", snapshot_id=2)
        write(main.at_branch("b"), [{"k": 1, "v": "branch"}])
        return main

    for main in killed_at_each_step(tmp_path, make, forward):
        forward(main)
        assert rows(main) == rows(main.at_branch("b")) and main.snapshots.ids() == [1, 2, 3]
        check_clean(main)


def test_a_fast_forward_that_was_killed_leaves_no_false_neighbours(tmp_path: Path) -> None:
    """Main's snapshot 5 would look like what the branch's snapshot 6 was built on."""

    def make(folder: Path) -> TableContext:
        main = table_of_five(folder)
        create_branch(main, "b", snapshot_id=2)
        for number in range(4):
            write(main.at_branch("b"), [{"k": number, "v": "branch"}])
        expire_snapshots(main.at_branch("b"), KEEP_ONE)
        return main

    for context in killed_at_each_step(tmp_path, make, forward):
        forward(context)
        assert context.snapshots.ids() == [1, 2, 3, 4, 6] and plan_fast_forward(context, "b").is_needless
        assert named_files(context) <= files_on_disk(context)


def test_a_branch_whose_deletion_was_killed_is_deleted_by_name_again(tmp_path: Path) -> None:
    def make(folder: Path) -> TableContext:
        main = table_of_five(folder)
        create_branch(main, "b", snapshot_id=2)
        write(main.at_branch("b"), [{"k": 1, "v": "branch"}])
        return main

    for main in killed_at_each_step(tmp_path, make, lambda seen: remove_branch(seen, "b")):
        Table.open(main.url).branches.rm("b")
        assert main.branches.directories() == [] and not Path(main.layout.of_branch("b").version_root).exists()
        check_versions(main)


def changelogs_by_time(folder: Path) -> TableContext:
    """Changelogs of an append-only past: each keeps the files that its commit added."""
    folder.mkdir()
    return outlived(folder)


def changelogs_with_files(folder: Path) -> TableContext:
    """Changelogs with files of their own."""
    folder.mkdir()
    options = {"changelog-producer": "input", "changelog.num-retained.min": "1000"}
    context = make_table(folder, {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options)
    for number in range(1, 5):
        write(context, [{"k": 1, "v": str(number)}, {"k": number, "v": "x"}])
    expire_snapshots(context, KEEP_ONE)
    return TableContext.open(context.url)


@pytest.mark.parametrize("make", first(1, [changelogs_by_time, changelogs_with_files]))
def test_an_expiry_of_changelogs_that_was_killed_is_finished(tmp_path: Path, make: Callable[[Path], TableContext]) -> None:
    request = ExpireOptions("changelogs", retain_max=2, retain_min=2, older_than="1970-01-01T00:00:00Z")

    def expire(context: TableContext) -> list[str]:
        planned = plan_expire(context, request, NoProgress())
        files = planned.files()
        expired = planned.run(delete_files(context))
        assert not any(Path(file.path).exists() for file in files)
        return list(expired.removed)

    left_behind = 0
    for context in killed_at_each_step(tmp_path, make, expire):
        changelogs = ChangelogHistory(context.storage, context.layout)
        left_behind += len(changelogs.ids()) <= 2 and bool(find_orphans(context, FOREVER, force=True).files)
        expected = rows(context)
        expire(context)
        assert len(changelogs.ids()) <= 2 and rows(context) == expected
        assert not find_orphans(context, FOREVER, force=True).files
        assert not Path(context.layout.removal_directory).exists()
        earliest = Path(context.layout.earliest_changelog_hint)
        assert int(earliest.read_text()) == changelogs.ids()[0] if changelogs.ids() else not earliest.exists()
        assert expire(context) == [], "once"
        check_versions(context)
    assert left_behind > 3, "the kills left files behind that no version names"


# ---- records ------------------------------------------------------------------------------------------------------------


def killed_after(folder: Path, calls: int) -> TableContext:
    context = table_of_five(folder)
    with pytest.raises(Crash):
        back(dying(context, calls))
    return context


@pytest.mark.parametrize(
    "text", [b"", b'{"kind": "rollback", "tags": [], "commits": [{"id"', b"[]", b"null", b"[" * 100_000, b'{"kind": 1}', b"\xff"]
)
def test_a_record_that_is_not_complete_names_nothing(tmp_path: Path, text: bytes) -> None:
    context = table_of_five(tmp_path)
    expected = rows(context)
    path = Path(context.layout.removal("x"))
    path.parent.mkdir()
    path.write_bytes(text)
    back(context, 5)
    assert rows(context) == expected
    if text != b'{"kind": 1}':
        check_clean(context)


def test_a_record_does_not_lead_out_of_the_table_nor_to_what_versions_need(tmp_path: Path) -> None:
    context = killed_after(tmp_path, 5)
    precious = tmp_path / "t" / "precious"
    precious.write_text("mine")
    record = Path(unfinished_removals(context, ROLLBACK)[0].path)
    content = json.loads(record.read_text())
    live = json.loads(Path(context.layout.snapshot(2)).read_text())
    for name in ("deltaManifestList", "baseManifestList", "indexManifest", "statistics"):
        for outside in ("../precious", "../../t/precious", str(precious)):
            content["commits"] = [{**live, name: outside}]
            record.write_text(json.dumps(content))
            back(context, 2)
            assert precious.read_text() == "mine"
            record.parent.mkdir(exist_ok=True)
    content["commits"] = content["states"] = [live]
    record.write_text(json.dumps(content))
    before = rows(context)
    back(context, 2)
    assert rows(context) == before
    check_versions(context)


@pytest.mark.parametrize("named", ["commits", "states"])
@pytest.mark.parametrize("kind", [ROLLBACK, TAGS, FAST_FORWARD, CHANGELOGS])
def test_a_forged_record_deletes_nothing_that_a_version_needs(tmp_path: Path, kind: str, named: str) -> None:
    """It names the files of the newest snapshot under an id that no snapshot has."""
    context = table_of_five(tmp_path)
    write(context, [{"k": 8, "v": "new"}])
    forged = {**json.loads(Path(context.layout.snapshot(6)).read_text()), "id": 77}
    content = {"kind": kind, "tags": [], "commits": [], "states": [], named: [forged]}
    path = Path(context.layout.removal("x"))
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    expected = {number: rows(context, snapshot_id=number) for number in context.snapshots.ids()}
    create_tag(context, "one", 1)
    create_branch(context, "b", snapshot_id=6)
    if kind == TAGS:
        untag(context, "one")
    elif kind == ROLLBACK:
        back(context, 6)
    elif kind == CHANGELOGS:
        removed = plan_expire(context, ExpireOptions("changelogs"), NoProgress()).run(delete_files(context)).removed
        assert removed == (("77",) if named == "commits" else ())
    else:
        write(context.at_branch("b"), [{"k": 9, "v": "more"}])
        fast_forward(context, plan_fast_forward(context, "b"), delete_files(context))
    assert {number: rows(context, snapshot_id=number) for number in expected} == expected
    check_versions(context)


def test_a_record_of_the_end_of_a_history_names_nothing(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    dropped = {**json.loads(Path(context.layout.snapshot(5)).read_text()), "commitKind": "DROP"}
    path = Path(context.layout.removal("x"))
    path.parent.mkdir()
    path.write_text(json.dumps({"kind": ROLLBACK, "tags": [], "commits": [dropped], "states": []}))
    back(context, 5)
    check_versions(context)


def test_other_commands_leave_a_record_alone(tmp_path: Path) -> None:
    """The job that wrote it may still be at work, and put its snapshots back."""
    context = killed_after(tmp_path, 4)
    create_tag(context, "one", 1)
    untag(context, "one")
    expire_snapshots(context, KEEP_ONE)
    assert len(unfinished_removals(context, ROLLBACK)) == 1


def test_a_conflict_that_changed_nothing_leaves_no_record(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    rival = Meddler("delete", "snapshot-5", lambda: write(context, [{"k": 77, "v": "rival"}]))
    with pytest.raises(Conflict, match="the history is unchanged"):
        back(replace(context, storage=rival, read_threads=1))
    assert not Path(context.layout.removal_directory).exists()
    check_versions(context)


def test_a_conflict_that_removed_snapshots_leaves_their_record_to_the_next_rollback(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    rival = Meddler("delete", "snapshot-4", lambda: write(context, [{"k": 77, "v": "rival"}]))
    with pytest.raises(Conflict, match="it follows snapshot 4"):
        back(replace(context, storage=rival, read_threads=1))
    assert files_on_disk(context) != named(context)
    back(context, 5)
    assert {"k": 77, "v": "rival"} in rows(context)
    check_clean(context)


def test_orphans_that_are_a_day_old_include_the_record(tmp_path: Path) -> None:
    class Tomorrow(SystemClock):
        def now_millis(self) -> int:
            return super().now_millis() + 2 * DAY_MILLIS

    context = replace(killed_after(tmp_path, 5), clock=Tomorrow())
    (record,) = unfinished_removals(context, ROLLBACK)
    found = {file.path for file in find_orphans(context, context.clock.now_millis() - DAY_MILLIS).files}
    assert found == {record.path, *(files_on_disk(context) - named(context))}


def test_a_drop_deletes_the_record(tmp_path: Path) -> None:
    context = killed_after(tmp_path, 5)
    drop_table(context.storage, context.layout, context.schema)
    assert not Path(context.url).exists()
