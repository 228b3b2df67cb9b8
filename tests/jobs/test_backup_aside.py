"""What the copy has and the table has otherwise is set aside, also by runs that die, and where a name is taken."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import AddColumn
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.backup_aside import ROLLED_BACK
from paimon_cli.jobs.metadata_jobs import find_target
from paimon_cli.maintain.branches import create_branch, remove_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import plan_rollback, roll_back
from paimon_cli.maintain.tags import create_tag
from paimon_cli.storage.confined_storage import ConfinedStorage
from tests.jobs.backups import WRITES, Dying, Killed, Recording, backup, check_same, check_whole, opened
from tests.tables import make_table, rows, write


def filled(tmp_path: Path, commits: int) -> TableContext:
    table = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], bucket=1, options={"write-only": "true"})
    fill(table, commits, 0)
    return table


def fill(table: TableContext, commits: int, first: int) -> None:
    for number in range(first, first + commits):
        write(table, [{"k": number, "v": f"{number}"}])


def go_back(table: TableContext, to: int) -> None:
    roll_back(table, plan_rollback(table, find_target(table, str(to))), delete_files(table))


def altered(table: TableContext, branch: str, name: str) -> TableContext:
    context = TableContext.open(table.layout.root).at_branch(branch)
    alter_table(context, [AddColumn((name,), parse_sql_type("STRING"))], context.clock)
    return TableContext.open(table.layout.root).at_branch(branch)


@pytest.mark.parametrize("start", [2, None])
def test_a_branch_that_was_made_again_with_other_schemas(tmp_path: Path, start: int | None) -> None:
    """Its snapshots are those of the old one, or none, so that only the schemas tell."""
    table, copy = filled(tmp_path, 2), tmp_path / "copy"
    create_branch(table, "b", None, start)
    altered(table, "b", "x")
    backup(table, copy)
    remove_branch(table, "b")
    create_branch(table, "b", None, start)
    write(altered(table, "b", "y"), [{"k": 1, "v": "new", "y": "z"}])
    table = opened(tmp_path / "t")
    done = backup(table, copy)
    check_same(table, opened(copy), is_whole=False)
    assert done.set_aside == (f"{ROLLED_BACK}2-b",) and "schema 1 of the copy is not that of branch b of" in done.causes[0]
    aside = opened(copy).at_branch(done.set_aside[0])
    assert aside.schema.field_names == ("k", "v", "x") and aside.snapshots.ids() == ([] if start is None else [2])
    assert backup(table, copy).set_aside == ()


def test_a_branch_that_was_made_again_leaves_its_old_tags_readable(tmp_path: Path) -> None:
    """Both begin with the same tag, so that a snapshot is the same. A tag is read by the schema that has its number."""
    table, copy = filled(tmp_path, 2), tmp_path / "copy"
    create_branch(table, "b", None, 2)
    write(altered(table, "b", "x"), [{"k": 1, "v": "old", "x": "of x"}])
    create_tag(table.at_branch("b"), "first", 2)
    create_tag(table.at_branch("b"), "second", 3)
    old = rows(table.at_branch("b"))
    backup(table, copy)
    remove_branch(table, "b")
    create_branch(table, "b", None, 2)
    write(altered(table, "b", "y"), [{"k": 1, "v": "new", "y": "z"}])
    create_tag(table.at_branch("b"), "second", 3)
    table = opened(tmp_path / "t")
    done = backup(table, copy)
    check_same(table, opened(copy), is_whole=False)
    aside, copied = opened(copy).at_branch(done.set_aside[0]), opened(copy).at_branch("b")
    was, now = aside.tags.find("second"), copied.tags.find("second")
    assert was is not None and rows(aside, snapshot_id=was.snapshot.id) == rows(aside) == old
    assert copied.tags.names() == ["first", "second"] and now is not None and now.snapshot == copied.snapshots.latest()
    assert rows(copied) == rows(table.at_branch("b"))
    check_whole(aside)
    check_whole(copied)


def test_a_branch_that_was_made_again_and_whose_first_snapshots_have_expired(tmp_path: Path) -> None:
    """All of the old one are below those of the new one, as if expired. With its schemas they would be read otherwise."""
    table, copy = filled(tmp_path, 2), tmp_path / "copy"
    create_branch(table, "b", None, 2)
    write(altered(table, "b", "x"), [{"k": 1, "v": "old", "x": "of x"}])
    old = rows(table.at_branch("b"))
    backup(table, copy)
    remove_branch(table, "b")
    create_branch(table, "b", None, 2)
    branch = altered(table, "b", "y")
    for number in range(4):
        write(branch, [{"k": number, "v": "new", "y": "of y"}])
    expire_snapshots(branch, Retention(1, 1, 0, None))
    table = opened(tmp_path / "t")
    assert table.at_branch("b").snapshots.ids() == [6]
    done = backup(table, copy)
    check_same(table, opened(copy), is_whole=False)
    aside, copied = opened(copy).at_branch(done.set_aside[0]), opened(copy).at_branch("b")
    assert aside.snapshots.ids() == [2, 3] and rows(aside) == old
    assert copied.snapshots.ids() == [6] and rows(copied) == rows(table.at_branch("b"))
    check_whole(copied)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_branch_of_the_table_has_the_name(tmp_path: Path, is_deleted: bool) -> None:
    """Also one that the table had when it was copied: deleted branches stay in the copy."""
    table, copy = filled(tmp_path, 5), tmp_path / "copy"
    name = f"{ROLLED_BACK}2"
    create_branch(table, name, None, 3)
    write(table.at_branch(name), [{"k": 1, "v": "mine"}])
    backup(table, copy)
    mine, lost = rows(table.at_branch(name)), rows(table)
    if is_deleted:
        remove_branch(table, name)
    go_back(table, 2)
    fill(table, 3, 50)
    done = backup(table, copy)
    assert done.set_aside == (f"{name}-2",)
    assert rows(opened(copy).at_branch(name)) == mine and rows(opened(copy).at_branch(f"{name}-2")) == lost
    check_same(table, opened(copy), is_whole=False)
    assert backup(table, copy).set_aside == ()


def test_a_run_that_died_while_it_set_aside_is_continued_after_another_rollback(tmp_path: Path) -> None:
    """The next run has the same number, and other snapshots to set aside than the one that died had moved already."""
    table, copy = filled(tmp_path, 5), tmp_path / "copy"
    backup(table, copy)
    lost = {number: rows(table, snapshot_id=number) for number in table.snapshots.ids()}
    go_back(table, 2)
    fill(table, 3, 50)
    shutil.copytree(copy, tmp_path / "whole")
    total = Recording(ConfinedStorage(str(tmp_path / "whole")))
    backup(table, tmp_path / "whole", total)
    killed = []
    changes = sum(count for (call, _), count in total.calls.items() if call in WRITES)
    for point in (changes // 4, *range(changes - 6, changes - 2)):
        killed.append(tmp_path / f"copy-{point}")
        shutil.copytree(copy, killed[-1])
        with pytest.raises(Killed):
            backup(table, killed[-1], Dying(ConfinedStorage(str(killed[-1])), point))
        shutil.rmtree(killed[-1] / "lease", ignore_errors=True)
    middle = {number: rows(table, snapshot_id=number) for number in (4, 5)}
    go_back(table, 3)
    fill(table, 1, 80)
    seen = set[str]()
    for each in killed:
        had = opened(each)
        copied = [n for n in (4, 5) if n in had.snapshots.ids() and rows(had, snapshot_id=n) == middle[n]]
        done = backup(replace(table, cache=table.cache.renewed()), each)
        check_same(table, opened(each), is_whole=False)
        branches = [opened(each).at_branch(name) for name in opened(each).branches.names()]
        held = [rows(branch, snapshot_id=n) for branch in branches for n in branch.snapshots.ids()]
        assert all(lost[n] in held for n in lost), "what the backup had is there"
        assert all(middle[n] in held for n in copied), "what the killed run had copied, too"
        for branch in branches:
            check_whole(branch)
        seen.update(done.set_aside)
    assert seen >= {f"{ROLLED_BACK}2", f"{ROLLED_BACK}2-2"}
