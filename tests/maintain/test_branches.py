"""Branches share files with main: neither may delete what the other needs, and main can be fast-forwarded to a branch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.api.table import Table
from paimon_cli.errors import Conflict, NotFound, UsageError
from paimon_cli.history import snapshot_history
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import BranchList
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.metadata_jobs import find_target
from paimon_cli.maintain.branches import (
    create_branch,
    fast_forward,
    files_removed_by_fast_forward,
    plan_fast_forward,
    remove_branch,
    rename_branch,
)
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.retention import Retention, consumers, place_of, write_consumer
from paimon_cli.maintain.rollback import plan_rollback, roll_back
from paimon_cli.maintain.tags import create_tag, plan_removal, remove_tags
from paimon_cli.metadata.table_layout import BACKUP_CONSUMER
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus, PutOutcome
from tests.maintain.plain_files import kind_of
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.maintain.versions import check_versions, files_on_disk, named_files
from tests.rivals import Meddler
from tests.tables import compact, rows, write


def branched(folder: Path, snapshot_id: int = 3) -> tuple[TableContext, TableContext]:
    main = table_of_five(folder)
    create_branch(main, "b", snapshot_id=snapshot_id)
    return main, main.at_branch("b")


def forward(main: TableContext) -> int:
    return fast_forward(main, plan_fast_forward(main, "b"), delete_files(main))


def test_a_branch_begins_at_a_snapshot_a_tag_or_nothing(tmp_path: Path) -> None:
    main = table_of_five(tmp_path)
    create_tag(main, "t", 2, 10**9)
    assert create_branch(main, "of-tag", tag="t") == 2 and create_branch(main, "empty") is None
    create_branch(main, "of-snapshot", snapshot_id=4)
    assert BranchList(main.storage, main.layout).names() == ["empty", "of-snapshot", "of-tag"]
    assert rows(main.at_branch("of-tag")) == rows(main, snapshot_id=2) and main.at_branch("of-tag").tags.names() == ["t"]
    assert main.at_branch("empty").snapshots.latest() is None
    write(main.at_branch("empty"), [{"k": 1, "v": "own"}])
    assert rows(main.at_branch("empty")) == [{"k": 1, "v": "own"}]
    with pytest.raises(UsageError, match="exists"):
        create_branch(main, "empty")
    for name in ("main", "7", "a/b", "a$b"):
        with pytest.raises(UsageError):
            create_branch(main, name)


@pytest.mark.parametrize("newer", [0, 2])
def test_expiry_passes_the_gap_that_a_branch_with_expired_snapshots_left(tmp_path: Path, newer: int) -> None:
    """After a fast-forward to a branch that kept only its newest snapshot, ids are missing within the history of main."""
    main, branch = branched(tmp_path, 2)
    for number in range(6):
        write(branch, [{"k": 1, "v": f"{number}"}])
    expire_snapshots(branch, KEEP_ONE)
    forward(main)
    assert main.snapshots.ids() == [1, 2, 3, 4, 5, 8]
    for number in range(newer):
        write(main, [{"k": 2, "v": f"{number}"}])
    assert expire_snapshots(main, Retention(3 + newer, 3 + newer, 0, None)).snapshots == (1, 2, 3, 4, 5)
    assert main.snapshots.ids() == [*range(8, 9 + newer)] and main.snapshots.earliest_hint() == 8
    assert named_files(main) <= files_on_disk(main)


def outlived(folder: Path, writes: int, kept: int = 1, *, is_tagged: bool = False) -> tuple[TableContext, TableContext]:
    """Main has become a branch that began at 2 and has lost its oldest snapshots; another branch has the first of these, 3."""
    main, branch = branched(folder, 2)
    write(branch, [{"k": 7, "v": "in the gap"}])
    create_branch(branch, "c", snapshot_id=3)
    if is_tagged:
        create_tag(branch, "strange", 3)
        create_tag(main, "own", 5)
    for number in range(writes):
        write(branch, [{"k": 10 + number, "v": "in the gap or behind it"}])
    expire_snapshots(branch, Retention(kept, kept, 0, None))
    forward(main)
    remove_branch(main, "b")
    return main, main.at_branch("c")


BEHIND_A_GAP = [(3, 1, [1, 2, 3, 4, 6]), (4, 1, [1, 2, 3, 4, 5, 7]), (3, 3, [1, 2, 4, 5, 6])]
"""Writes of the branch, how many of its snapshots stay, and the history of main, in which no false neighbours are left."""


@pytest.mark.parametrize(("writes", "kept", "ids"), BEHIND_A_GAP)
def test_expiry_of_one_spares_what_the_other_needs_behind_a_gap(tmp_path: Path, writes: int, kept: int, ids: list[int]) -> None:
    """Files that only snapshots in the gap have added are live in the one behind it."""
    main, other = outlived(tmp_path, writes, kept)
    assert main.snapshots.ids() == ids
    before = rows(main)
    compact(other)
    expire_snapshots(other, KEEP_ONE)
    assert named_files(main) <= files_on_disk(main) and rows(main) == before
    assert {violation.code for violation in check_table(main, rows=True)} == {"PV001"}, "nothing but the gap"


@pytest.mark.parametrize("writes", [3, 4])
def test_tags_of_two_histories_keep_their_files(tmp_path: Path, writes: int) -> None:
    """The nearest tag is of what main was before, and tells nothing about what the other one needs."""
    main, _ = outlived(tmp_path, writes, is_tagged=True)
    remove_branch(main, "c")
    compact(main)
    expire_snapshots(main, KEEP_ONE)
    assert {name: tag.snapshot.id for name, tag in main.tags.all().items()} == {"own": 5, "strange": 3}
    assert named_files(main) <= files_on_disk(main)


def test_a_branch_follows_the_snapshot_on_which_it_was_built(tmp_path: Path) -> None:
    """Also if main has lost the one at which the branch began."""
    main, branch = branched(tmp_path)
    write(branch, [{"k": 1, "v": "branch"}])
    roll_back(main, plan_rollback(main, find_target(main, "2")), delete_files(main))
    forward(main)
    assert main.snapshots.ids() == [1, 2, 3, 4]
    check_versions(main)


def test_expiry_of_one_spares_what_the_other_needs(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    write(branch, [{"k": 1, "v": "branch"}])
    before = rows(main), rows(branch)
    expire_snapshots(main, KEEP_ONE)
    check_versions(main)
    compact(branch)
    expire_snapshots(branch, KEEP_ONE)
    check_versions(main)
    assert (rows(main), rows(branch)) == before
    create_tag(main, "t", 5)
    write(main, [{"k": 1, "v": "new"}])
    compact(main)
    create_branch(main, "c", tag="t")
    expire_snapshots(main, KEEP_ONE)
    remove_tags(main, plan_removal(main, ["t"]), delete_files(main))
    check_versions(main)
    assert rows(main.at_branch("c")) == before[0]


@pytest.mark.parametrize("hidden", [{3}, {3, 4}, {4}, {5}, {4, 5}, {6}, {5, 6}, {3, 4, 5, 6}], ids=str)
@pytest.mark.in_part(2)
def test_expiry_spares_what_snapshots_need_that_a_listing_of_the_branch_hides(tmp_path: Path, hidden: set[int]) -> None:
    main, branch = branched(tmp_path)
    write(branch, [{"k": 1, "v": "branch"}])
    compact(branch)
    write(branch, [{"k": 2, "v": "branch"}])
    before, names = [rows(branch, snapshot_id=number) for number in (3, 4, 5, 6)], {f"snapshot-{number}" for number in hidden}

    class StaleListings(LocalStorage):
        def list_directory(self, path: str) -> list[FileStatus]:
            found = super().list_directory(path)
            return [status for status in found if path != branch.layout.snapshot_directory or status.name not in names]

    stale = TableContext.open(main.url, storage=StaleListings())
    assert expire_snapshots(stale, KEEP_ONE).snapshots == (1, 2, 3, 4)
    check_versions(main)
    assert [rows(branch, snapshot_id=number) for number in (3, 4, 5, 6)] == before


def test_renamed_and_deleted(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    write(branch, [{"k": 1, "v": "branch"}])
    before = rows(branch)
    rename_branch(main, "b", "c")
    assert rows(main.at_branch("c")) == before and not BranchList(main.storage, main.layout).exists("b")
    remove_branch(main, "c")
    assert not (Path(main.url) / "branch" / "branch-c").exists()
    with pytest.raises(NotFound, match="no branch 'c'"):
        remove_branch(main, "c")
    check_versions(main)


def test_a_branch_that_changes_while_it_is_renamed_keeps_its_name_and_its_changes(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    create_tag(branch, "early", 3)
    changes: dict[str, Callable[[], object]] = {
        "schema/schema-0": lambda: create_tag(branch, "late", 3),
        "snapshot/snapshot-3": lambda: write(branch, [{"k": 7, "v": "late"}]),
    }
    for ending, change in changes.items():
        rival = Meddler("overwrite", f"branch-c/{ending}", change)
        with pytest.raises(Conflict, match="was not renamed"):
            rename_branch(replace(main, storage=rival), "b", "c")
        assert rival.count and main.branches.names() == ["b"] == main.branches.directories()
        check_versions(main)
    assert branch.tags.names() == ["early", "late"] and {"k": 7, "v": "late"} in rows(branch)


def test_a_renamed_branch_has_all_else_before_it_has_snapshots(tmp_path: Path) -> None:
    """Who sees the new branch expires by its tags, and reads with its schemas."""
    main, branch = branched(tmp_path)
    create_tag(branch, "t", 3)
    write(branch, [{"k": 1, "v": "branch"}], commit_user="me", commit_id=1)
    seen = list[set[str]]()
    new = Path(main.layout.of_branch("c").version_root)

    def look() -> None:
        seen.append({path.name for path in new.rglob("*") if path.is_file()})

    rename_branch(replace(main, storage=Meddler("overwrite", "branch-c/snapshot/snapshot-3", look)), "b", "c")
    (found,) = seen
    everything, hints = {path.name for path in new.rglob("*") if path.is_file()}, {"LATEST", "EARLIEST"}
    assert {"schema-0", "tag-t"} <= found and found - hints == {name for name in everything if "snapshot-" not in name} - hints


def as_by_another_tool(context: TableContext) -> TableContext:
    """The table as if its newest snapshot had no record of users: only the records beside the snapshots tell what was made."""
    path = Path(context.layout.snapshot(context.snapshots.latest_id() or 0))
    content = json.loads(path.read_text())
    del content["properties"]
    path.write_text(json.dumps(content))
    return TableContext.open(context.url)


def test_a_branch_knows_what_was_committed_before_it_began(tmp_path: Path) -> None:
    """A job that repeats a commit must not write its rows twice; the branch does not have its snapshot."""
    main = table_of_five(tmp_path)
    write(main, [{"k": 10, "v": "once"}], commit_user="job", commit_id=1)
    write(main, [{"k": 10, "v": "newer"}])
    main = as_by_another_tool(main)
    create_branch(main, "b", snapshot_id=7)
    branch = main.at_branch("b")
    write(branch, [{"k": 10, "v": "once"}], commit_user="job", commit_id=1)
    assert branch.snapshots.ids() == [7] and {"k": 10, "v": "newer"} in rows(branch)


def test_what_a_fast_forward_discards_can_be_committed_again(tmp_path: Path) -> None:
    """Even when the snapshots have expired that took the place of the discarded ones."""
    main, branch = branched(tmp_path, 5)
    for number in (1, 2, 3):
        write(main, [{"k": 20 + number, "v": "main"}], commit_user="job", commit_id=number)
    for number in (1, 2, 3, 4):
        write(branch, [{"k": 10 + number, "v": "branch"}], commit_user="other", commit_id=number)
    forward(main)
    assert rows(main) == rows(branch)
    expire_snapshots(main, KEEP_ONE)
    main = as_by_another_tool(main)
    for number in (1, 2, 3):
        write(main, [{"k": 20 + number, "v": "again"}], commit_user="job", commit_id=number, assume_new=True)
        main = as_by_another_tool(main)
        assert {"k": 20 + number, "v": "again"} in rows(main)
    write(main, [{"k": 11, "v": "again"}], commit_user="other", commit_id=1)
    assert {"k": 11, "v": "branch"} in rows(main), "main has these commits of the branch"


def test_unchanged_main_is_forwarded(tmp_path: Path) -> None:
    main, branch = branched(tmp_path, 5)
    write(branch, [{"k": 1, "v": "branch"}])
    compact(branch)
    create_tag(branch, "done")
    assert forward(main) == 0
    assert main.snapshots.ids() == [1, 2, 3, 4, 5, 6, 7] and main.tags.names() == ["done"]
    assert rows(main) == rows(branch) and plan_fast_forward(main, "b").is_needless
    check_versions(main)
    write(main, [{"k": 1, "v": "main"}])
    assert main.snapshots.latest_id() == 8 and rows(main) != rows(branch)


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_what_main_did_alone_is_lost(tmp_path: Path, commits: int) -> None:
    """The branch ends before, at and after main's newest number."""
    main, branch = branched(tmp_path)
    for tag, number in (("early", 2), ("shared", 3), ("lost", 4)):
        create_tag(main, tag, number)
    for number in range(commits):
        write(branch, [{"k": 1, "v": f"branch-{number}"}])
    plan = plan_fast_forward(main, "b")
    assert (plan.common, plan.discarded_ids, plan.dropped_tags) == (3, (4, 5), ("lost",))
    files = files_removed_by_fast_forward(main, plan)
    assert [file.kind for file in files] == [kind_of(file.path) for file in files]
    assert [Path(file.path).name for file in files[:3]] == ["snapshot-4", "snapshot-5", "tag-lost"]
    assert forward(main) > 0
    assert main.tags.names() == ["early", "shared"]
    assert rows(main) == rows(branch) and main.snapshots.ids() == [1, 2, 3, *range(4, 4 + commits)]
    assert Path(main.layout.latest_hint).read_text() == str(3 + commits)
    check_versions(main)
    assert files_on_disk(main) == named_files(main)


def test_tags_of_both_become_those_of_the_branch(tmp_path: Path) -> None:
    """Also one whose name main has for a snapshot that goes, and one that the branch has moved."""
    main, branch = branched(tmp_path)
    for tag, number in (("both", 4), ("moved", 3)):
        create_tag(main, tag, number)
    write(branch, [{"k": 1, "v": "branch"}])
    for tag in ("both", "moved"):
        create_tag(branch, tag)
    forward(main)
    assert {name: tag.snapshot for name, tag in main.tags.all().items()} == {
        name: tag.snapshot for name, tag in branch.tags.all().items()
    }
    assert sorted(main.tags.names()) == ["both", "moved"]
    check_versions(main)


@pytest.mark.parametrize("altered", ["branch", "main"])
def test_the_schemas_of_main_become_those_of_the_branch(tmp_path: Path, altered: str) -> None:
    main, branch = branched(tmp_path)
    suffix = "$branch_b" if altered == "branch" else ""
    Table.open(f"{main.url}{suffix}").alter.add_column("more INT")
    main = TableContext.open(main.url)
    branch = main.at_branch("b")
    if altered == "branch":
        write(branch, [{"k": 1, "v": "branch", "more": 5}])
    else:
        write(main, [{"k": 1, "v": "main", "more": 6}])
        write(branch, [{"k": 1, "v": "branch"}])
    expected = rows(branch)
    forward(main)
    again = TableContext.open(main.url)
    assert rows(again) == expected and again.schema.field_names == branch.schema.field_names
    assert again.schemas.ids() == branch.schemas.ids()
    check_versions(again)


def test_a_branch_whose_start_expires_meanwhile_is_not_created(tmp_path: Path) -> None:
    main = table_of_five(tmp_path)
    expiring = Meddler("overwrite", "/branch/branch-b/snapshot/snapshot-2", lambda: expire_snapshots(main, KEEP_ONE))
    with pytest.raises(NotFound, match="deleted meanwhile"):
        create_branch(replace(main, storage=expiring), "b", snapshot_id=2)
    assert expiring.count == 1 and not BranchList(main.storage, main.layout).directories()
    check_versions(main)


def test_main_cannot_be_forwarded_to_a_branch_without_new_snapshots(tmp_path: Path) -> None:
    main, _ = branched(tmp_path)
    with pytest.raises(UsageError, match="no snapshots that main lacks"):
        forward(main)
    assert main.snapshots.ids() == [1, 2, 3, 4, 5]


def test_a_branch_that_main_has_outlived_takes_over(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    write(branch, [{"k": 1, "v": "branch"}])
    expire_snapshots(main, KEEP_ONE)
    assert plan_fast_forward(main, "b").common is None
    forward(main)
    assert main.snapshots.ids() == [3, 4] and main.snapshots.earliest_id() == 3 and rows(main) == rows(branch)
    check_versions(main)


def test_a_take_over_without_a_common_snapshot_keeps_all_for_backups(tmp_path: Path) -> None:
    """A consumer at 0, which is no snapshot, would stop every expiry of the table."""
    main, branch = branched(tmp_path)
    write(branch, [{"k": 1, "v": "branch"}])
    expire_snapshots(main, KEEP_ONE)
    backup = f"{BACKUP_CONSUMER}one"
    write_consumer(main, backup, 5)
    forward(main)
    assert [(one.name, one.next_snapshot) for one in consumers(main)] == [(backup, 1)]
    expire_snapshots(main, KEEP_ONE)
    check_versions(main)


class Served(LocalStorage):
    """A server that manages the versions of the table, and does nothing yet."""

    def _serve(self, *given: object) -> None: ...

    create_tag = delete_tag = create_branch = delete_branch = fast_forward = roll_back = _serve


def test_a_server_that_goes_back_leaves_to_backups_what_takes_the_numbers(tmp_path: Path) -> None:
    main, branch = branched(tmp_path, 5)
    write(main, [{"k": 1, "v": "main"}])
    write(branch, [{"k": 1, "v": "branch"}])
    backup, served = f"{BACKUP_CONSUMER}one", replace(main, storage=Served())
    write_consumer(main, backup, 6)
    plan = plan_fast_forward(main, "b")
    assert plan.common == 5 and plan.discarded_ids
    fast_forward(served, plan, delete_files(main))
    assert place_of(main, backup) == 5
    roll_back(served, plan_rollback(main, find_target(main, "2")), delete_files(main))
    assert place_of(main, backup) == 2


@pytest.mark.parametrize("number", [0, -1, 2**63])
def test_a_consumer_stands_at_a_snapshot(tmp_path: Path, number: int) -> None:
    main, _ = branched(tmp_path)
    with pytest.raises(UsageError, match="cannot stand at snapshot"):
        write_consumer(main, "reader", number)
    assert consumers(main) == []


def test_a_commit_that_gets_in_between_stops_it(tmp_path: Path) -> None:
    main, branch = branched(tmp_path, 5)
    write(branch, [{"k": 1, "v": "branch"}])

    class Rival(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            write(main, [{"k": 1, "v": "rival"}])
            return super().put_if_absent(path, data)

    with pytest.raises(Conflict, match="snapshot 6"):
        forward(replace(main, storage=Rival()))
    assert {"k": 1, "v": "rival"} in rows(main)
    check_versions(main)


def test_a_take_over_that_was_killed_is_finished(tmp_path: Path) -> None:
    """Its newest snapshot comes first: those below it are then still main's own."""
    main, branch = branched(tmp_path)
    write(branch, [{"k": 1, "v": "branch"}])
    write(branch, [{"k": 2, "v": "branch"}])
    expected = rows(branch)
    assert branch.snapshots.ids() == [3, 4, 5] == main.snapshots.ids()[2:5]
    newest = branch.storage.read_bytes(branch.layout.snapshot(5))
    for number in main.snapshots.ids()[5:]:
        main.storage.delete(main.layout.snapshot(number))
    main.storage.overwrite(main.layout.snapshot(5), newest)
    plan = plan_fast_forward(main, "b")
    assert (plan.common, plan.added, plan.discarded_ids) == (3, (4, 5), (4, 5))
    forward(main)
    assert rows(main) == expected and main.snapshots.ids() == [1, 2, 3, 4, 5]
    assert main.snapshots.get(4) == branch.snapshots.get(4)
    check_versions(main)
    assert plan_fast_forward(main, "b").is_needless


@pytest.mark.parametrize("commits", [0, 2], ids=["main has a gap", "main has other commits"])
def test_what_a_killed_take_over_left_above_a_gap_or_other_commits_is_not_shared(
    tmp_path: Path, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest snapshots of both are equal, but the ones below them are not yet."""
    monkeypatch.setattr(snapshot_history, "LONGEST_GAP", 1)  # a listing would not hide two snapshots
    main, branch = branched(tmp_path)
    for number in range(3):
        write(branch, [{"k": number, "v": "branch"}])
    first = 4 if commits == 0 else 3
    for number in range(first, 6):
        main.storage.delete(main.layout.snapshot(number))
    main.storage.overwrite(main.layout.latest_hint, str(first - 1).encode())
    for number in range(commits):
        write(main, [{"k": number, "v": "main"}])
    main.storage.overwrite(main.layout.snapshot(6), branch.storage.read_bytes(branch.layout.snapshot(6)))
    main.storage.overwrite(main.layout.latest_hint, b"6")
    assert plan_fast_forward(main, "b").common == (3 if commits == 0 else None)
    forward(main)
    assert [main.snapshots.get(number) for number in (3, 4, 5, 6)] == [branch.snapshots.get(number) for number in (3, 4, 5, 6)]
    check_versions(main)
    assert plan_fast_forward(main, "b").is_needless


def test_what_main_cannot_go_forward_to(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    with pytest.raises(UsageError, match="only main"):
        plan_fast_forward(branch, "b")
    create_branch(main, "empty")
    with pytest.raises(NotFound, match="no snapshots"):
        plan_fast_forward(main, "empty")
