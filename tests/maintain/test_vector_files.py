"""Files of deletion vectors when versions expire, are restored or are kept."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from paimon_cli.api.table import Table
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.metadata.snapshot import COMPACT
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.time_travel import travel
from tests.rivals import files_of
from tests.tables import compact, make_table, scan_to_arrow, write

OPTIONS = {"deletion-vectors.enabled": "true", "target-file-row-num": "10", "compaction.small-file-ratio": "0"}


def table(folder: Path) -> TableContext:
    context = make_table(folder / "t", {"p": "INT NOT NULL", "k": "INT NOT NULL", "n": "INT"}, ["p", "k"], ["p"], options=OPTIONS)
    for generation in range(8):
        chance = random.Random(generation)
        keys = range(60) if generation == 0 else chance.sample(range(60), 7)
        write(context, [{"p": key % 2, "k": key, "n": generation} for key in keys])
        if generation == 4:
            compact(context)
    return context


def state(context: TableContext, **at: int | str) -> list[dict[str, int]]:
    seen, snapshot = travel(context, **at)  # type: ignore[arg-type]
    found = scan_to_arrow(seen, plan_scan(seen, snapshot).splits, ["p", "k", "n"])
    return sorted(found.to_pylist(), key=lambda row: row["k"])


def states(context: TableContext) -> dict[int, list[dict[str, int]]]:
    return {number: state(context, snapshot_id=number) for number in context.snapshots.ids()}


def index_files(context: TableContext) -> set[str]:
    return {name.removeprefix("index/") for name in files_of(context) if name.startswith("index/")}


def named(context: TableContext) -> set[str]:
    versions = [context.snapshots.get(number) for number in context.snapshots.ids()]
    versions += [tag.snapshot for tag in context.tags.all().values()]
    return {entry.index_file.file_name for version in versions for entry in context.manifests.index_entries(version)}


def reopened(context: TableContext) -> TableContext:
    return TableContext.open(context.url)


def test_an_expiry_takes_the_vectors_that_only_old_versions_need(tmp_path: Path) -> None:
    context = table(tmp_path)
    Table.open(context.url).tags.create("kept", snapshot=6)
    before, kept = states(context), state(context, tag="kept")
    assert index_files(context) == named(context)
    expire_snapshots(context, Retention(2, 2, 0, 100))
    context = reopened(context)
    after = states(context)
    assert len(after) == 2 and after == {number: before[number] for number in after}
    assert state(context, tag="kept") == kept
    assert index_files(context) == named(context) and not list(check_table(context, rows=True))
    Table.open(context.url).tags.plan_rm("kept").run()
    assert index_files(context) == named(reopened(context))


@pytest.mark.parametrize("as_new", [False, True])
def test_a_rollback_brings_the_vectors_of_its_version_back(tmp_path: Path, as_new: bool) -> None:
    context = table(tmp_path)
    before = states(context)
    target = [number for number in before if context.snapshots.get(number).commit_kind == COMPACT][5]
    Table.open(context.url).rollback(target, as_new=as_new)
    context = reopened(context)
    assert state(context) == before[target]
    assert index_files(context) == named(context)
    write(context, [{"p": 0, "k": 0, "n": 99}])
    compact(context)
    assert {row["k"]: row["n"] for row in state(context)} == {**{row["k"]: row["n"] for row in before[target]}, 0: 99}
    assert not list(check_table(context, rows=True))


def test_a_dropped_partition_and_an_overwrite_leave_no_vector(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [{"p": 1, "k": 1, "n": 50}, {"p": 1, "k": 61, "n": 50}], overwrite=True)
    shown = {row["k"]: row["n"] for row in state(context)}
    assert {key: n for key, n in shown.items() if key % 2} == {1: 50, 61: 50} and len(shown) == 32
    assert not list(check_table(context, rows=True))
    Table.open(context.url).plan_truncate(partition=[{"p": "0"}]).run()
    latest = context.snapshots.latest()
    assert latest is not None and context.manifests.index_entries(latest) == []
    assert [row["k"] for row in state(context)] == [1, 61] and not list(check_table(context, rows=True))


def test_orphans_are_index_files_that_no_version_names(tmp_path: Path) -> None:
    context = table(tmp_path)
    lost = Path(context.url) / "index" / "index-00000000-0000-0000-0000-000000000000-0"
    lost.write_bytes(b"\1")
    os.utime(lost, (1e9, 1e9))
    before = named(context)
    Table.open(context.url).remove_orphans(older_than="0 s", force=True)
    assert not lost.exists() and index_files(context) == before == named(reopened(context))
