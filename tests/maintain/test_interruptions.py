"""Interference while tags and branches are created, rolled back or fast-forwarded, and storages without clear answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from unittest import mock

import pytest

from paimon_cli.commit import snapshot_publish
from paimon_cli.errors import CommitUnknown, Conflict, DamagedFile, DataConflict, NotFound, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch, fast_forward, plan_fast_forward, remove_branch, rename_branch
from paimon_cli.maintain.expire_partitions import expire_partitions, plan_partitions
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.needed_files import NeededFiles
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import RollbackTarget, plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag, rename_tag, replace_tag
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus, PutOutcome
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.maintain.versions import check_versions, files_on_disk, named_files
from tests.rivals import Meddler, files_of, raising
from tests.tables import make_table, rows, write

SILENT = StorageUnavailable("the storage does not answer", "a cable")


def met(context: TableContext, meddler: Meddler) -> TableContext:
    return replace(context, storage=meddler, read_threads=1)


def tags_of(context: TableContext) -> dict[str, int]:
    return {name: tag.snapshot.id for name, tag in context.tags.all().items()}


# ---- tags ---------------------------------------------------------------------------------------------------------------


def test_of_two_jobs_that_create_a_tag_the_second_fails(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    rival = Meddler("put_if_absent", "tag-a", lambda: create_tag(context, "a", 2) and None)
    with pytest.raises(UsageError, match="tag 'a' exists: another process"):
        create_tag(met(context, rival), "a", 3)
    assert tags_of(context) == {"a": 2}


def test_two_jobs_that_create_the_same_tag_both_succeed(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    rival = Meddler("put_if_absent", "tag-a", lambda: create_tag(context, "a", 3) and None)
    assert create_tag(met(context, rival), "a", 3).snapshot.id == 3 and tags_of(context) == {"a": 3}


def test_a_tag_that_the_storage_does_not_confirm_is_looked_up(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)

    def lost() -> PutOutcome:
        return PutOutcome.UNKNOWN

    def made() -> PutOutcome:
        create_tag(context, "made", 3)
        return PutOutcome.UNKNOWN

    assert create_tag(met(context, Meddler("put_if_absent", "tag-made", made)), "made", 3).snapshot.id == 3
    with pytest.raises(CommitUnknown, match="'lost' may or may not") as unknown:
        create_tag(met(context, Meddler("put_if_absent", "tag-lost", lost)), "lost", 3)
    assert unknown.value.details["path"] == context.layout.tag("lost") and tags_of(context) == {"made": 3}


def test_a_tag_stays_when_it_is_unknown_whether_its_snapshot_exists(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    with pytest.raises(CommitUnknown, match="possibly too late") as unknown:
        create_tag(met(context, Meddler("exists", "snapshot-3", raising(SILENT))), "a", 3)
    assert unknown.value.details["path"] == context.layout.tag("a") and tags_of(context) == {"a": 3}


def test_a_tag_moved_to_a_snapshot_that_expires_meanwhile_stays_where_it_was(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "a", 5, 10**9)
    before = context.tags.content("a")
    rival = Meddler("overwrite", "tag-a", lambda: expire_snapshots(context, KEEP_ONE))
    with pytest.raises(NotFound, match="deleted meanwhile"):
        replace_tag(met(context, rival), "a", 2)
    assert context.tags.content("a") == before and files_on_disk(context) == named_files(context)


@pytest.mark.parametrize("name", ["", "12", "a/b"])
def test_a_tag_is_not_renamed_to_what_no_tag_can_be_called(tmp_path: Path, name: str) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "a", 2)
    with pytest.raises(UsageError, match="cannot be the name"):
        rename_tag(context, "a", name)
    assert tags_of(context) == {"a": 2}


def test_a_renamed_tag_gives_way_to_one_made_meanwhile(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "a", 2)
    rival = Meddler("put_if_absent", "tag-b", lambda: create_tag(context, "b", 3) and None)
    with pytest.raises(Conflict, match="'a' was not renamed"):
        rename_tag(met(context, rival), "a", "b")
    assert tags_of(context) == {"a": 2, "b": 3}
    with pytest.raises(NotFound, match="no tag 'c'"):
        rename_tag(context, "c", "d")


def test_a_renaming_that_the_storage_does_not_confirm_is_looked_up(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "a", 2)

    def made() -> PutOutcome:
        Path(context.layout.tag("b")).write_bytes(Path(context.layout.tag("a")).read_bytes())
        return PutOutcome.UNKNOWN

    rename_tag(met(context, Meddler("put_if_absent", "tag-b", made)), "a", "b")
    assert tags_of(context) == {"b": 2}
    with pytest.raises(Conflict, match="'b' was not renamed"):
        rename_tag(met(context, Meddler("put_if_absent", "tag-c", lambda: PutOutcome.UNKNOWN)), "b", "c")
    assert tags_of(context) == {"b": 2}


def test_a_tag_deleted_while_it_is_renamed_leaves_none(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "a", 2)
    gone = Meddler("read_bytes", "tag-a", lambda: Path(context.layout.tag("a")).unlink(), 2)
    with pytest.raises(UsageError, match="'a' was deleted meanwhile"):
        rename_tag(met(context, gone), "a", "b")
    assert tags_of(context) == {}


# ---- branches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["snapshot", "tag"])
def test_a_branch_whose_start_goes_meanwhile_is_taken_back(tmp_path: Path, start: str) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "three", 3)
    holder = Path(context.layout.tag("three") if start == "tag" else context.layout.snapshot(2))
    rival = met(context, Meddler("exists", holder.name, lambda: holder.unlink()))
    with pytest.raises(NotFound, match=r"start of branch 'b' was deleted meanwhile: .*" + holder.name):
        create_branch(rival, "b", **({"tag": "three"} if start == "tag" else {"snapshot_id": 2}))
    assert context.branches.directories() == [] and not Path(context.layout.of_branch("b").version_root).exists()


def test_a_tag_deleted_while_a_branch_is_created_from_it_is_reported(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "three", 3)
    gone = Meddler("read_bytes", "tag-three", lambda: Path(context.layout.tag("three")).unlink(), 2)
    with pytest.raises(NotFound, match="'three' was deleted meanwhile"):
        create_branch(met(context, gone), "b", tag="three")
    assert context.branches.directories() == []


def test_a_branch_whose_creator_died_is_distinguished_from_a_complete_one(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_branch(context, "whole", snapshot_id=2)
    (Path(context.layout.of_branch("begun").version_root) / "snapshot").mkdir(parents=True)
    with pytest.raises(UsageError, match="'begun' exists in part") as begun:
        create_branch(context, "begun", snapshot_id=3)
    assert begun.value.hint.endswith("branches rm " + context.layout.argument + " begun")
    with pytest.raises(UsageError, match="'whole' exists") as whole:
        create_branch(context, "whole", snapshot_id=3)
    assert whole.value.hint == "choose another name"
    assert context.branches.directories() == ["begun", "whole"] and context.branches.names() == ["whole"]
    remove_branch(context, "begun")
    assert context.branches.directories() == ["whole"]


def test_a_branch_is_renamed_only_to_what_is_free_and_can_be_a_name(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_branch(context, "a", snapshot_id=2)
    create_branch(context, "b", snapshot_id=3)
    before = files_of(context)
    with pytest.raises(UsageError, match="branch 'b' exists"):
        rename_branch(context, "a", "b")
    with pytest.raises(UsageError, match="cannot be the name"):
        rename_branch(context, "a", "main")
    with pytest.raises(NotFound, match="no branch 'c'"):
        rename_branch(context, "c", "d")
    assert files_of(context) == before


def test_a_commit_to_a_branch_that_is_renamed_is_kept_under_the_old_name(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_branch(context, "a", snapshot_id=3)
    branch = context.at_branch("a")
    last = "branch-b/snapshot/LATEST"
    write(branch, [{"k": 1, "v": "first"}])
    rival = Meddler("overwrite", last, lambda: write(branch, [{"k": 1, "v": "rival"}]))
    with pytest.raises(Conflict, match="'a' was not renamed: another job committed"):
        rename_branch(met(context, rival), "a", "b")
    assert context.branches.directories() == ["a"]
    assert {"k": 1, "v": "rival"} in rows(context.at_branch("a"))
    rename_branch(context, "a", "b")
    assert {"k": 1, "v": "rival"} in rows(context.at_branch("b")) and context.branches.directories() == ["b"]


def test_a_renaming_that_cannot_be_undone_is_still_a_conflict(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_branch(context, "a", snapshot_id=3)
    branch = context.at_branch("a")

    class Stuck(Meddler):
        def delete_directory(self, path: str) -> None:
            raise SILENT

    rival = Stuck("overwrite", "branch-b/snapshot/snapshot-3", lambda: write(branch, [{"k": 1, "v": "rival"}]))
    with pytest.raises(Conflict, match="'a' was not renamed") as conflict:
        rename_branch(met(context, rival), "a", "b")
    assert "a cable" in conflict.value.details["clean_up_failed"]


# ---- going back and on --------------------------------------------------------------------------------------------------


def back(context: TableContext, target: RollbackTarget) -> int:
    return roll_back(context, plan_rollback(context, target), delete_files(context))


@pytest.mark.parametrize("answer", [PutOutcome.UNKNOWN, PutOutcome.EXISTS])
def test_a_snapshot_that_cannot_be_brought_back_stops_the_way_back(tmp_path: Path, answer: PutOutcome) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "two", 2)
    expire_snapshots(context, KEEP_ONE)
    before = files_of(context)
    stubborn = met(context, Meddler("put_if_absent", "snapshot-2", lambda: answer))
    with mock.patch.object(snapshot_publish, "_TRIES", 1), pytest.raises(CommitUnknown, match=r"snapshot 2 of .* in place again"):
        back(stubborn, rollback_target(stubborn, tag="two"))
    assert files_of(context) == before


def test_a_snapshot_that_another_job_restored_is_a_valid_target(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "two", 2)
    expected = rows(context, snapshot_id=2)
    expire_snapshots(context, KEEP_ONE)
    path = Path(context.layout.snapshot(2))

    def rival() -> PutOutcome:
        path.write_bytes(context.tags.content("two") or b"")
        return PutOutcome.EXISTS

    beside = met(context, Meddler("put_if_absent", "snapshot-2", rival))
    back(beside, rollback_target(beside, tag="two"))
    assert context.snapshots.ids() == [2] and rows(context) == expected


def test_without_a_snapshot_or_tag_there_is_no_target_to_roll_back_to(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    with pytest.raises(NotFound, match="neither a snapshot nor a tag was given"):
        rollback_target(context)
    with pytest.raises(NotFound, match="no snapshot 9"):
        rollback_target(context, 9)
    create_tag(context, "two", 2)
    assert rollback_target(context, 2).tag is None and rollback_target(context, tag="two").tag is None
    expire_snapshots(context, KEEP_ONE)
    assert rollback_target(context, 2).tag == "two" == rollback_target(context, tag="two").tag
    with pytest.raises(NotFound, match="no snapshot 3"):
        rollback_target(context, 3)


def test_a_snapshot_that_disappears_does_not_stop_a_rollback(tmp_path: Path) -> None:
    """Two jobs roll back to the same snapshot: the later one finds less to remove."""
    context = table_of_five(tmp_path)
    expected = rows(context, snapshot_id=2)
    path = Path(context.layout.snapshot(4))
    beside = met(context, Meddler("delete", "snapshot-5", path.unlink))
    assert back(beside, rollback_target(beside, 2)) > 0
    assert context.snapshots.ids() == [1, 2] and rows(context) == expected
    assert files_on_disk(context) == named_files(context)


@pytest.mark.parametrize("stale", [False, True], ids=["a listing shows it", "a stale listing hides it"])
def test_a_commit_after_the_newest_snapshot_to_remove_restores_everything(tmp_path: Path, stale: bool) -> None:
    context = table_of_five(tmp_path)
    before = {number: context.storage.read_bytes(context.layout.snapshot(number)) for number in context.snapshots.ids()}

    class Rival(Meddler):
        def list_directory(self, path: str) -> list[FileStatus]:
            found = super().list_directory(path)
            return [status for status in found if not (stale and status.name == "snapshot-6")]

    rival = met(context, Rival("delete", "snapshot-5", lambda: write(context, [{"k": 77, "v": "rival"}])))
    with pytest.raises(Conflict, match="snapshot 6 was committed meanwhile") as conflict:
        back(rival, rollback_target(rival, 2))
    assert conflict.value.details["snapshot_id"] == 6 and context.snapshots.ids() == [1, 2, 3, 4, 5, 6]
    assert {number: context.storage.read_bytes(context.layout.snapshot(number)) for number in before} == before
    check_versions(context)


@pytest.mark.parametrize("stale", [False, True], ids=["a listing shows it", "a stale listing hides it"])
def test_a_commit_right_after_the_target_restores_everything(tmp_path: Path, stale: bool) -> None:
    """Its writer saw the target as the newest snapshot, after the later ones had been removed."""
    context = table_of_five(tmp_path)

    class Rival(LocalStorage):
        committed = False

        def delete(self, path: str) -> None:
            super().delete(path)
            if path.endswith("snapshot-3"):
                self.committed = True
                write(context, [{"k": 77, "v": "rival"}])

        def list_directory(self, path: str) -> list[FileStatus]:
            hidden = stale and self.committed
            return [status for status in super().list_directory(path) if not (hidden and status.name == "snapshot-3")]

    rival = replace(context, storage=Rival())
    with pytest.raises(Conflict, match="snapshot 3 was committed meanwhile"):
        back(rival, rollback_target(rival, 2))
    assert {"k": 77, "v": "rival"} in rows(context, snapshot_id=3)


def branched(folder: Path) -> tuple[TableContext, TableContext]:
    main = table_of_five(folder)
    create_branch(main, "b", snapshot_id=5)
    branch = main.at_branch("b")
    write(branch, [{"k": 1, "v": "branch"}])
    write(branch, [{"k": 2, "v": "branch"}])
    return main, branch


def forward(main: TableContext) -> int:
    return fast_forward(main, plan_fast_forward(main, "b"), delete_files(main))


def test_a_commit_to_main_stops_its_way_forward(tmp_path: Path) -> None:
    main, _ = branched(tmp_path)
    rival = met(main, Meddler("put_if_absent", "/t/snapshot/snapshot-7", lambda: write(main, [{"k": 77, "v": "rival"}])))
    with pytest.raises(Conflict, match="beyond snapshot 6: another job committed snapshot 7") as conflict:
        forward(rival)
    assert conflict.value.details["snapshot_id"] == 7 and {"k": 77, "v": "rival"} in rows(main)
    check_versions(main)


def test_two_concurrent_fast_forwards_both_succeed(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    rival = met(main, Meddler("put_if_absent", "/t/snapshot/snapshot-7", lambda: forward(main) and None))
    assert forward(rival) == 0
    assert main.snapshots.ids() == [1, 2, 3, 4, 5, 6, 7] and rows(main) == rows(branch)


def test_a_step_forward_that_the_storage_does_not_confirm_and_did_not_make_stops(tmp_path: Path) -> None:
    main, _ = branched(tmp_path)
    silent = met(main, Meddler("put_if_absent", "/t/snapshot/snapshot-6", lambda: PutOutcome.UNKNOWN))
    with mock.patch.object(snapshot_publish, "_TRIES", 1), pytest.raises(CommitUnknown, match="snapshot 6 of"):
        forward(silent)
    assert main.snapshots.ids() == [1, 2, 3, 4, 5] and Path(main.layout.latest_hint).read_text() == "5"


def test_a_tag_of_the_branch_that_cannot_be_read_is_named_by_its_path(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    create_tag(branch, "t", 6)
    plan = plan_fast_forward(main, "b")
    Path(branch.layout.tag("t")).write_text("{")
    with pytest.raises(DamagedFile) as damaged:
        fast_forward(main, plan, delete_files(main))
    assert damaged.value.details["path"] == branch.layout.tag("t") and main.tags.names() == []


def test_both_changed_the_schema_so_neither_can_follow_the_other(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    schema = replace(main.schema, id=1)
    main.schemas.commit(replace(schema, options={**schema.options, "a": "1"}))
    branch.schemas.commit(replace(schema, options={**schema.options, "a": "2"}))
    with pytest.raises(Conflict, match="both have a schema 1, and the two differ"):
        plan_fast_forward(TableContext.open(main.url), "b")


def test_schemas_come_from_the_branch_and_those_of_main_alone_go(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    branch.schemas.commit(replace(main.schema, id=1, comment="theirs"))
    plan = plan_fast_forward(main, "b")
    assert (plan.schemas, plan.dropped_schemas, plan.discards) == ((1,), (), False)
    forward(main)
    assert main.schemas.ids() == [0, 1] and main.schemas.get(1).comment == "theirs"
    main.schemas.commit(replace(main.schema, id=2, comment="ours"))
    plan = plan_fast_forward(TableContext.open(main.url), "b")
    assert (plan.schemas, plan.dropped_schemas, plan.is_needless, plan.discards) == ((), (2,), False, True)
    forward(TableContext.open(main.url))
    assert main.schemas.ids() == [0, 1]


# ---- what others need, and what is dropped ------------------------------------------------------------------------------


def test_a_history_that_an_expiry_shortens_meanwhile_is_read_again(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    snapshot = context.snapshots.get(1)
    list_of_one = Path(context.layout.manifest(snapshot.delta_manifest_list))
    beside = met(context, Meddler("read_bytes", list_of_one.name, lambda: expire_snapshots(context, KEEP_ONE)))
    needed = NeededFiles()
    needed.need_history(beside)
    expected = NeededFiles()
    expected.need_history(context)
    assert expected.data <= needed.data and expected.metadata <= needed.metadata


def test_snapshots_that_keep_vanishing_are_given_up(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    Path(context.layout.manifest(context.snapshots.get(1).delta_manifest_list)).unlink()
    flickering = Meddler("exists", "snapshot-1", lambda: False, *range(1, 99))
    with pytest.raises(NotFound, match="disappear while they are read"):
        NeededFiles().need_history(met(context, flickering))
    assert flickering.count >= 5, "it has tried several times"


def partitioned(folder: Path) -> TableContext:
    context = make_table(folder / "t", {"dt": "STRING NOT NULL", "k": "INT NOT NULL"}, ["dt", "k"], ["dt"])
    for day in ("2024-01-01", "2024-01-02", "2030-01-01"):
        write(context, [{"dt": day, "k": 1}])
    return context


def acts_on_overwrite(context: TableContext, times: int) -> tuple[TableContext, Callable[[], int]]:
    """Another writer adds to the oldest partition before each of our first publications."""
    meddler = Meddler("put_if_absent", "", lambda: write(context, [{"dt": "2024-01-01", "k": 7}]) and None, *range(1, times + 1))
    return met(context, meddler), lambda: meddler.count


def test_partitions_expire_in_the_second_attempt_after_a_concurrent_write(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    beside, count = acts_on_overwrite(context, 1)
    plan, result = expire_partitions(beside, 1_800_000_000_000)
    assert len(plan.expired) == 2 and result.snapshots and count() >= 2
    assert rows(context) == [{"dt": "2030-01-01", "k": 1}]
    plan, result = expire_partitions(context, 1_800_000_000_000)
    assert plan.expired == () and not result.snapshots


def test_partitions_that_are_written_to_again_and_again_stay(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    beside, count = acts_on_overwrite(context, 99)
    with pytest.raises(DataConflict):
        expire_partitions(beside, 1_800_000_000_000)
    assert count() == 5 and {"dt": "2024-01-01", "k": 7} in rows(context) and len(rows(context)) == 4


# ---- the order of steps, which decides what a crash leaves --------------------------------------------------------------


class Journal(LocalStorage):
    """Records the changes to the versions of main, in order, and the content of hints."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def _note(self, step: str, path: str) -> None:
        directory, _, name = path.rpartition("/")
        kind = directory.rpartition("/")[2]
        if "/branch/" not in path and kind in ("snapshot", "tag", "schema", "changelog"):
            self.steps.append(f"{step} {name}")

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._note("put", path)
        return super().put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        is_hint = path.endswith(("LATEST", "EARLIEST"))
        self._note(f"{data.decode()} into" if is_hint else "overwrite", path)
        super().overwrite(path, data)

    def delete(self, path: str) -> None:
        self._note("delete", path)
        super().delete(path)

    def sync_directory(self, path: str) -> None:
        self.steps.append(f"sync {path.rpartition('/')[2]}")
        super().sync_directory(path)


def journal_of(context: TableContext, act: Callable[[TableContext], object]) -> list[str]:
    storage = Journal()
    act(replace(context, storage=storage, read_threads=1))
    return storage.steps


ENDING = ["sync snapshot", "sync tag"]


def test_unchanged_main_gets_one_snapshot_after_the_other_and_the_hint_after_each(tmp_path: Path) -> None:
    main, branch = branched(tmp_path)
    create_tag(branch, "t", 7)
    steps = journal_of(main, forward)
    assert steps == [
        *("put snapshot-6", "6 into LATEST", "put snapshot-7", "7 into LATEST", "overwrite tag-t"),
        *("7 into LATEST", "1 into EARLIEST", *ENDING),
    ]


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_diverged_main_is_replaced_from_the_newest_number_down(tmp_path: Path, commits: int) -> None:
    main = table_of_five(tmp_path)
    create_tag(main, "own", 4)
    create_branch(main, "b", snapshot_id=3)
    branch = main.at_branch("b")
    for number in range(commits):
        write(branch, [{"k": 1, "v": f"branch {number}"}])
    newest = 3 + commits
    steps = journal_of(main, forward)
    above = ["delete snapshot-5"] if newest == 4 else []
    taken = [f"overwrite snapshot-{number}" for number in range(newest, 3, -1)]
    taken.insert(1, f"{newest} into LATEST")
    assert steps == ["3 into LATEST", *above, *taken, "delete tag-own", f"{newest} into LATEST", "1 into EARLIEST", *ENDING]


def test_a_branch_that_main_has_outlived_takes_over_before_the_rest_of_main_goes(tmp_path: Path) -> None:
    main = table_of_five(tmp_path)
    create_branch(main, "b", snapshot_id=2)
    for number in range(4):
        write(main.at_branch("b"), [{"k": 1, "v": f"branch {number}"}])
    expire_snapshots(main, Retention(2, 2, 0, None))
    assert main.snapshots.ids() == [4, 5] and main.at_branch("b").snapshots.ids() == [2, 3, 4, 5, 6]
    steps = journal_of(main, forward)
    taken = [f"overwrite snapshot-{number}" for number in range(6, 1, -1)]
    taken.insert(1, "6 into LATEST")
    assert steps == ["6 into LATEST", *taken, "6 into LATEST", "2 into EARLIEST", *ENDING]
    check_versions(main)


def test_a_rollback_removes_from_the_newest_down_with_the_hint_before_and_after(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for name, number in (("two", 2), ("four", 4)):
        create_tag(context, name, number)
    steps = journal_of(context, lambda seen: back(seen, rollback_target(seen, 2)))
    assert steps == [
        *("2 into LATEST", "delete snapshot-5", "delete snapshot-4", "delete snapshot-3", "2 into LATEST", "delete tag-four"),
        *("sync snapshot", "sync tag", "sync changelog", "2 into LATEST"),
    ]


def test_the_way_back_to_an_expired_snapshot_brings_it_back_first(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "two", 2)
    expire_snapshots(context, KEEP_ONE)
    steps = journal_of(context, lambda seen: back(seen, rollback_target(seen, 2)))
    assert steps[:5] == ["put snapshot-2", "2 into EARLIEST", "2 into LATEST", "delete snapshot-5", "2 into LATEST"]


def test_a_tag_takes_its_new_name_before_it_loses_the_old_one(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "a", 2)
    assert journal_of(context, lambda seen: rename_tag(seen, "a", "b")) == ["put tag-b", "delete tag-a"]


def test_expired_snapshots_go_the_oldest_first_and_then_the_hint_moves(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    steps = journal_of(context, lambda seen: expire_snapshots(seen, Retention(2, 2, 0, None)))
    assert steps == ["delete snapshot-1", "delete snapshot-2", "delete snapshot-3", "4 into EARLIEST"]


def test_changes_outlive_their_snapshots_before_these_go(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    options = context.options.with_overrides({"changelog.num-retained.min": "100", "changelog.num-retained.max": "100"})
    steps = journal_of(context.redefined(options=options), lambda seen: expire_snapshots(seen, Retention(3, 3, 0, None)))
    assert steps == [
        *("overwrite changelog-1", "delete snapshot-1", "overwrite changelog-2", "delete snapshot-2"),
        *("2 into LATEST", "3 into EARLIEST"),
    ]


def test_directories_of_partitions_that_lost_their_last_file_go_from_the_innermost_out(tmp_path: Path) -> None:
    columns = {"p": "INT NOT NULL", "q": "INT NOT NULL", "k": "INT NOT NULL"}
    options = {"snapshot.clean-empty-directories": "true", "write-only": "true"}
    context = make_table(tmp_path / "t", columns, ["p", "q", "k"], ["p", "q"], 2, options)
    write(context, [{"p": p, "q": q, "k": k} for p in (1, 2) for q in (1, 2) for k in range(9)])
    for p, q in ((1, 1), (1, 2), (2, 1)):
        write(context, [], overwrite=True, allow_empty=True, partition={"p": str(p), "q": str(q)})
    (Path(context.url) / "p=1" / "q=2" / "notes").write_text("mine")
    expire_snapshots(context, KEEP_ONE)
    left = {str(path.relative_to(context.url)) for path in Path(context.url).glob("p=*/**/*")}
    assert {path for path in left if "bucket" not in path} == {"p=1/q=2", "p=1/q=2/notes", "p=2/q=2"}
    assert {path for path in left if path.endswith(("bucket-0", "bucket-1"))} == {"p=2/q=2/bucket-0", "p=2/q=2/bucket-1"}


def test_a_partition_expires_a_millisecond_after_its_time(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    midnight = int(datetime(2024, 1, 2).timestamp() * 1000)
    for limit, gone in ((midnight, 1), (midnight + 1, 2)):
        assert len(plan_partitions(context, limit).expired) == gone
