"""Hints and manifests prove only together that snapshots are lost, and only if commits were built on each other."""

from __future__ import annotations

from pathlib import Path

from paimon_cli import Table
from paimon_cli.history.lost_history import hint_of_lost_snapshots
from paimon_cli.history.table_context import TableContext
from tests import tables


def appended(folder: Path, commits: int) -> TableContext:
    context = tables.make_table(folder, {"n": "INT"}, [], bucket=-1)
    for number in range(commits):
        tables.write(context, [{"n": number}])
    return context


def proof(context: TableContext, hint: str) -> str | None:
    """What proves that snapshots are lost, once their files are gone and only this LATEST hint is left."""
    directory = Path(context.layout.snapshot_directory)
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    Path(context.layout.latest_hint).write_text(hint)
    found = hint_of_lost_snapshots(context.storage, context.layout)
    assert (found is None) == (context.snapshots.left_without_snapshot() is None)
    return found


def test_commits_that_were_built_on_each_other(tmp_path: Path) -> None:
    context = appended(tmp_path / "t", 2)
    assert proof(context, "2") == context.layout.latest_hint
    assert proof(context, "1") is None and proof(context, "") is None


def test_an_old_hint_beside_interrupted_first_commits(tmp_path: Path) -> None:
    """The hint is of a table that was dropped; two writers died in the first commit to the new one."""
    context, other = appended(tmp_path / "t", 1), appended(tmp_path / "other", 1)
    for path in Path(other.layout.manifest_directory).iterdir():
        path.rename(Path(context.layout.manifest_directory) / path.name)
    assert proof(context, "7") is None


def test_lists_of_a_late_commit_name_manifests_that_the_drop_deleted(tmp_path: Path) -> None:
    context = appended(tmp_path / "t", 4)
    for path in Path(context.layout.manifest_directory).iterdir():
        if not path.name.startswith("manifest-list-"):
            path.unlink()
    assert proof(context, "4") is None


def test_lists_of_a_branch_are_no_proof_for_main(tmp_path: Path) -> None:
    context = appended(tmp_path / "t", 0)
    Table.open(context.url).branches.create("side")
    for number in range(3):
        tables.write(context.at_branch("side"), [{"n": number}])
    assert proof(context, "7") is None


def test_lists_of_main_are_no_proof_for_a_branch(tmp_path: Path) -> None:
    context = appended(tmp_path / "t", 0)
    Table.open(context.url).branches.create("side")
    for number in range(3):
        tables.write(context, [{"n": number}])
    assert proof(context.at_branch("side"), "7") is None
