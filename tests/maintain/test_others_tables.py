"""Clean-ups of other writers' tables with indexes, deletion vectors and changelogs: exactly the unneeded files are deleted."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_snapshots import carry_out, expire_snapshots, files_to_delete_now, plan_expiry
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.named_files import FileToDelete
from paimon_cli.maintain.orphans import find_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import files_removed_by_rollback, plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag, files_removed_with_tags, plan_removal, remove_tags
from tests.goldens import GOLDENS, Golden, golden_table
from tests.maintain.plain_files import kind_of, needed, on_disk

FEATURES = ("changelog", "deletion", "dv_", "dynamic", "index", "bloom", "branch", "tags", "append_b", "manifest_small", "stats")
TABLES = [golden for golden in GOLDENS if golden.name.startswith(FEATURES)]


def went(root: Path, before: set[str], needed_before: set[str]) -> set[str]:
    """The deleted files, which were needed before and no longer are."""
    gone = before - on_disk(root)
    assert gone == needed_before - needed(root)
    return gone


def check_kinds(files: list[FileToDelete]) -> None:
    assert [file.kind for file in files] == [kind_of(file.path) for file in files]
    assert all(file.size in (None, Path(file.path).stat().st_size) for file in files)


@pytest.mark.in_part(4)
@pytest.mark.parametrize("golden", TABLES, ids=str)
def test_expiry_step_by_step_with_a_tag_in_between(golden: Golden, tmp_path: Path) -> None:
    root = golden_table(golden.writer, golden.name, tmp_path)
    context = TableContext.open(str(root))
    ids = context.snapshots.ids()
    dice = random.Random(str(golden))
    if len(ids) > 2:
        create_tag(context, "kept", dice.choice(ids[:-1]))
    for keep in sorted({1, *dice.sample(range(1, len(ids) + 1), min(2, len(ids)))}, reverse=True):
        before, needed_before = on_disk(root), needed(root)
        plan = plan_expiry(context, Retention(keep, keep, 0, None))
        if plan is None:
            continue
        files = files_to_delete_now(context, plan)
        check_kinds(files)
        carry_out(context, plan, delete_files(context))
        gone = went(root, before, needed_before)
        assert gone <= {str(Path(file.path).relative_to(root)) for file in files}
    if "kept" in context.tags.names():
        before, needed_before = on_disk(root), needed(root)
        removal = plan_removal(context, ["kept"])
        check_kinds(files_removed_with_tags(context, removal))
        remove_tags(context, removal, delete_files(context))
        assert "tag/tag-kept" in went(root, before, needed_before)


@pytest.mark.in_part(4)
@pytest.mark.parametrize("golden", TABLES, ids=str)
def test_roll_back(golden: Golden, tmp_path: Path) -> None:
    root = golden_table(golden.writer, golden.name, tmp_path)
    ids = TableContext.open(str(root)).snapshots.ids()
    for target in random.Random(str(golden)).sample(ids, min(2, len(ids))):
        copy = tmp_path / str(target)
        shutil.copytree(root, copy)
        context = TableContext.open(str(copy))
        before, needed_before = on_disk(copy), needed(copy)
        plan = plan_rollback(context, rollback_target(context, target))
        check_kinds(files_removed_by_rollback(context, plan))
        roll_back(context, plan, delete_files(context))
        went(copy, before, needed_before)
        assert context.snapshots.ids()[-1] == target


@pytest.mark.in_part(2)
@pytest.mark.parametrize("golden", TABLES, ids=str)
def test_orphans_are_the_files_that_no_version_names(golden: Golden, tmp_path: Path) -> None:
    root = golden_table(golden.writer, golden.name, tmp_path)
    context = TableContext.open(str(root))
    if len(context.snapshots.ids()) > 2:
        create_tag(context, "first", context.snapshots.ids()[0])
        expire_snapshots(context, Retention(1, 1, 0, None))
    expected = on_disk(root) - needed(root)
    found = {str(Path(file.path).relative_to(root)) for file in find_orphans(context, 1 << 60, force=True).files}
    assert found == expected
    newest = context.snapshots.latest()
    assert newest is not None
    Path(context.layout.snapshot(newest.id)).unlink()
    if not context.snapshots.ids() and not context.tags.names():
        return
    expected = on_disk(root) - needed(root)
    orphans = find_orphans(TableContext.open(str(root)), 1 << 60, force=True)
    assert {str(Path(file.path).relative_to(root)) for file in orphans.files} == expected != set()
