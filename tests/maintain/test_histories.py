"""Main with versions of two histories: what one of them has removed, the other may need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.erasure.erasure_record import ErasureRecord
from paimon_cli.jobs.metadata_jobs import find_target
from paimon_cli.maintain.branches import create_branch, fast_forward, plan_fast_forward, remove_branch
from paimon_cli.maintain.expire_changelogs import expire_changelogs, plan_changelogs
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.histories import false_neighbour
from paimon_cli.maintain.retention import Retention, tagged_snapshots
from paimon_cli.maintain.rollback import plan_rollback, roll_back
from paimon_cli.maintain.tags import create_tag, plan_removal, remove_tags
from tests.maintain.test_tags import COLUMNS, KEEP_ONE
from tests.maintain.versions import check_versions, files_on_disk, named_files
from tests.tables import compact, make_table, rows, write


def two_histories(
    folder: Path, *, is_tagged: bool = False, compacts: bool = True, options: Mapping[str, str] | None = None
) -> TableContext:
    """Main has become a branch that began at 2 and has lost its oldest snapshots. Main's own compaction at 3 has removed files
    that the branch's newest snapshot needs, or, if it `compacts`, its tag of its snapshot 3.
    """
    main = make_table(folder, COLUMNS, ["k"], options={"write-only": "true", **(options or {})})
    for number in (1, 2):
        write(main, [{"k": number, "v": str(number)}])
    create_branch(main, "b", snapshot_id=2)
    branch = main.at_branch("b")
    compact(main, strategy="full")
    create_tag(main, "own", 3)
    for number in (4, 5):
        write(main, [{"k": number, "v": "of main"}])
    for number in range(3, 8):
        write(branch, [{"k": 10 * number, "v": "of the branch"}])
        if is_tagged and number == 3:
            create_tag(branch, "strange", 3)
            if compacts:
                compact(branch, strategy="full")
    expire_snapshots(branch, KEEP_ONE)
    fast_forward(main, plan_fast_forward(main, "b"), delete_files(main))
    remove_branch(main, "b")
    return main


def expire(context: TableContext, kept: int) -> None:
    expire_snapshots(context, Retention(kept, kept, 0, None))


@pytest.mark.parametrize("kept", [1, 4])
@pytest.mark.parametrize("is_tagged", [False, True])
def test_expiry_spares_what_the_other_history_needs(tmp_path: Path, kept: int, is_tagged: bool) -> None:
    """Whether or not snapshots of both stay, and if two tags have the same number."""
    main = two_histories(tmp_path, is_tagged=is_tagged)
    ids, before = main.snapshots.ids(), rows(main)
    assert ids == [1, 2, 3, 4, 5, 8 if is_tagged else 7]
    expire(main, kept)
    assert main.snapshots.ids() == (ids[-1:] if kept == 1 else [n for n in ids if n > ids[-1] - 4])
    assert [tag.id for tag in tagged_snapshots(main)] == ([3, 3] if is_tagged else [3])
    assert named_files(main) <= files_on_disk(main) and rows(main) == before


def test_expiry_spares_what_a_newer_tag_of_the_other_history_needs(tmp_path: Path) -> None:
    """The tag has the number of a later snapshot than the one that stays: main's own 6, which has expired before."""
    main = make_table(tmp_path, COLUMNS, ["k"], options={"write-only": "true"})
    for number in (1, 2):
        write(main, [{"k": number, "v": str(number)}])
    create_branch(main, "b", snapshot_id=2)
    branch = main.at_branch("b")
    for number in range(3, 10):
        write(main, [{"k": number, "v": "of main"}])
    create_tag(main, "own", 6)
    expire(main, 2)
    compact(branch, strategy="full")
    for number in range(4, 8):
        write(branch, [{"k": 10 * number, "v": "of the branch"}])
    fast_forward(main, plan_fast_forward(main, "b"), delete_files(main))
    remove_branch(main, "b")
    assert main.snapshots.ids() == [2, 3, 4, 5, 6, 7] and main.tags.names() == ["own"]
    expire(main, 3)
    assert main.snapshots.ids() == [5, 6, 7]
    assert named_files(main) <= files_on_disk(main)


@pytest.mark.parametrize("hours", [-14, 12])
def test_files_of_writers_with_other_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """A file names the time on the wall where it was written: it may seem to be younger than a tag that needs it."""
    main = two_histories(tmp_path, is_tagged=True, compacts=False)
    create_tag(main, "nearest", 5)
    monkeypatch.setattr("paimon_cli.maintain.expire_snapshots.moment_of_wall_clock", lambda millis: millis - hours * 3_600_000)
    expire(main, 1)
    compact(main, strategy="full")
    expire(main, 1)
    assert named_files(main) <= files_on_disk(main)


def test_expired_changelogs_leave_what_is_behind_a_gap(tmp_path: Path) -> None:
    """The changelog of main's compaction names files that the snapshot of the other history has."""
    outlive = {"changelog.num-retained.min": "20", "changelog.num-retained.max": "20"}
    main = two_histories(tmp_path, options=outlive)
    before = rows(main)
    expire(main, 4)
    assert main.snapshots.ids() == [4, 5, 7]
    plan = plan_changelogs(main, Retention(1, 1, 0, None))
    assert plan is not None and [changelog.id for changelog in plan.expiring] == [1, 2]
    expire(main, 3)
    plan = plan_changelogs(main, Retention(1, 1, 0, None))
    assert plan is not None and 3 in [changelog.id for changelog in plan.expiring]
    expire_changelogs(main, plan, delete_files(main))
    assert named_files(main) <= files_on_disk(main) and rows(main) == before


def test_the_removal_of_a_tag_in_a_gap_leaves_what_snapshots_before_it_have(tmp_path: Path) -> None:
    """Main's own 5 has gone with the fast-forward, and only its tag needs it. The oldest snapshot has none of its newer files."""
    main = make_table(tmp_path, COLUMNS, ["k"], options={"write-only": "true"})
    for number in range(1, 6):
        write(main, [{"k": number, "v": str(number)}])
    create_tag(main, "own", 5)
    create_branch(main, "b", snapshot_id=2)
    branch = main.at_branch("b")
    for number in range(3, 7):
        write(branch, [{"k": 10 * number, "v": "of the branch"}])
    create_tag(branch, "strange", 4)
    expire_snapshots(branch, KEEP_ONE)
    fast_forward(main, plan_fast_forward(main, "b"), delete_files(main))
    remove_branch(main, "b")
    assert main.snapshots.ids() == [1, 2, 3, 4, 6]
    for name in ("own", "strange"):
        remove_tags(main, plan_removal(main, [name]), delete_files(main))
        assert named_files(main) <= files_on_disk(main)
    assert main.tags.names() == []


def test_the_removal_of_a_tag_leaves_what_is_behind_a_gap(tmp_path: Path) -> None:
    main = make_table(tmp_path, COLUMNS, ["k"], options={"write-only": "true"})
    for number in range(1, 6):
        write(main, [{"k": number, "v": str(number)}])
    create_branch(main, "b", snapshot_id=2)
    branch = main.at_branch("b")
    for number in range(3, 8):
        write(branch, [{"k": 10 * number, "v": "of the branch"}])
    create_tag(branch, "strange", 3)
    expire_snapshots(branch, KEEP_ONE)
    fast_forward(main, plan_fast_forward(main, "b"), delete_files(main))
    remove_branch(main, "b")
    expire(main, 4)
    assert main.snapshots.ids() == [4, 5, 7]
    remove_tags(main, plan_removal(main, ["strange"]), delete_files(main))
    assert named_files(main) <= files_on_disk(main)


def test_a_changelog_does_not_begin_at_a_tag_of_the_other_history(tmp_path: Path) -> None:
    """The tag has the number before that of the oldest snapshot, and the files of another history."""
    main = make_table(tmp_path, COLUMNS, ["k"], options={"changelog-producer": "lookup"})
    for number in range(1, 5):
        write(main, [{"k": number, "v": str(number)}])
    create_branch(main, "b", snapshot_id=2)
    branch = main.at_branch("b")
    for number in range(3, 8):
        write(branch, [{"k": 10 * number, "v": "of the branch"}])
    create_tag(branch, "strange", 4)
    expire_snapshots(branch, KEEP_ONE)
    fast_forward(main, plan_fast_forward(main, "b"), delete_files(main))
    remove_branch(main, "b")
    expire(main, 8)
    assert main.snapshots.ids() == [5, 6, 7, 8, 12]
    assert {violation.code for violation in check_table(main, rows=True)} == {"PV001"}, "nothing but the gap"


def test_a_rollback_to_a_tag_takes_no_other_snapshot_of_its_number(tmp_path: Path) -> None:
    main = two_histories(tmp_path, is_tagged=True)
    with pytest.raises(UsageError, match="cannot be rolled back to tag 'strange'") as refusal:
        plan_rollback(main, find_target(main, "strange"))
    assert "--as-new" in str(refusal.value.hint)
    roll_back(main, plan_rollback(main, find_target(main, "own")), delete_files(main))
    assert main.snapshots.ids() == [1, 2, 3]
    check_versions(main)


def test_a_rollback_into_a_gap_leaves_no_false_neighbour(tmp_path: Path) -> None:
    """The tag is of the branch's snapshot 6, and main still has its own 5."""
    main = make_table(tmp_path, COLUMNS, ["k"], options={"write-only": "true"})
    for number in range(1, 6):
        write(main, [{"k": number, "v": str(number)}])
    create_branch(main, "b", snapshot_id=2)
    branch = main.at_branch("b")
    for number in range(3, 9):
        write(branch, [{"k": 10 * number, "v": "of the branch"}])
    create_tag(branch, "strange", 6)
    expected = rows(branch, snapshot_id=6)
    expire_snapshots(branch, KEEP_ONE)
    fast_forward(main, plan_fast_forward(main, "b"), delete_files(main))
    remove_branch(main, "b")
    assert main.snapshots.ids() == [1, 2, 3, 4, 5, 8]
    roll_back(main, plan_rollback(main, find_target(main, "strange")), delete_files(main))
    assert main.snapshots.ids() == [1, 2, 3, 4, 6] and main.snapshots.earliest_hint() == 1
    assert rows(main) == expected and named_files(main) <= files_on_disk(main)


def test_a_branch_that_begins_with_a_snapshot_of_main_leaves_what_it_was_built_on(tmp_path: Path) -> None:
    """Also in tables whose manifests hold file indexes, which versions are compared without."""
    options = {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": "20"}
    main = make_table(tmp_path, COLUMNS, ["k"], options={"write-only": "true", **options})
    for number in (1, 2, 3):
        write(main, [{"k": number, "v": str(number)}])
    create_branch(main, "b", snapshot_id=3)
    write(main.at_branch("b"), [{"k": 9, "v": "of the branch"}])
    plan = plan_fast_forward(main, "b")
    assert (plan.common, plan.removed_ids) == (3, ())
    fast_forward(main, plan, delete_files(main))
    assert main.snapshots.ids() == [1, 2, 3, 4]


def test_no_snapshot_goes_because_of_an_erasure_that_has_not_ended(tmp_path: Path) -> None:
    """It replaces the files of one version after the other, so that they seem to be built on others."""
    main = two_histories(tmp_path)
    ErasureRecord.new(main, ()).write(main)
    first = main.snapshots.get(7)
    main.storage.write_new(main.layout.snapshot(6), replace(main.snapshots.get(5), id=6).to_json().encode())
    assert false_neighbour(main, first) is None
    for status in main.storage.list_directory(main.layout.removal_directory):
        main.storage.delete(status.path)
    assert false_neighbour(main, first) == 6


def test_a_tag_of_a_writer_that_knows_no_uuid_is_that_of_its_snapshot(tmp_path: Path) -> None:
    main = make_table(tmp_path, COLUMNS, ["k"], options={"write-only": "true"})
    for number in (1, 2, 3):
        write(main, [{"k": number, "v": str(number)}])
    create_tag(main, "old", 2)
    content = json.loads(main.storage.read_bytes(main.layout.tag("old")))
    assert content.pop("uuid", None)
    main.storage.overwrite(main.layout.tag("old"), json.dumps(content).encode())
    plan = plan_rollback(main, find_target(main, "old"))
    assert (plan.tag, plan.snapshots) == (None, (3,))
