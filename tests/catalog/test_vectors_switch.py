"""Switching deletion vectors on and off: what readers see never changes by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.catalog.alter_table import AlteredTable, alter_table
from paimon_cli.catalog.column_changes import SetOption, UnsetOption
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.errors import FilesConflict, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.invariants.check import check_table
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.time_travel import travel
from paimon_cli.storage.storage_for_url import storage_for_url
from tests.tables import compact, make_table, rows, scan_to_arrow, write

ENABLED, MODIFIABLE = "deletion-vectors.enabled", "deletion-vectors.modifiable"
ON = {ENABLED: "true", MODIFIABLE: "true"}


def table(folder: Path, **options: str) -> TableContext:
    return make_table(folder / "t", {"k": "INT NOT NULL", "n": "INT"}, ["k"], options=options)


def switch(context: TableContext, on: bool) -> AlteredTable:
    storage, root = storage_for_url(context.url)
    opened = TableContext(TablePlace(root, "t"), storage)
    return alter_table(opened, [SetOption(MODIFIABLE, "true"), SetOption(ENABLED, "true")] if on else [UnsetOption(ENABLED)])


def reopened(context: TableContext) -> TableContext:
    return TableContext.open(context.url)


def numbers(*keys: int, n: int = 0) -> list[dict[str, int]]:
    return [{"k": key, "n": n} for key in keys]


def test_vectors_are_switched_on_for_a_table_of_one_run_only(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, numbers(1, 2, 3), compact="none")
    with pytest.raises(UsageError, match="cannot be switched on yet: bucket-0 has files at level 0") as refused:
        switch(context, True)
    assert f"paimon-cli compact {context.url} --strategy full" in refused.value.hint
    compact(context, strategy="full")
    assert switch(context, True).changed
    marking = reopened(context)
    write(marking, numbers(2, n=1))
    assert rows(marking) == [{"k": 1, "n": 0}, {"k": 2, "n": 1}, {"k": 3, "n": 0}]
    assert not list(check_table(marking, rows=True))


def test_several_runs_have_to_be_merged_first(tmp_path: Path) -> None:
    context = table(tmp_path, **{"compaction.force-up-level-0": "true"})
    write(context, numbers(*range(50)))
    write(context, numbers(1, 2))
    assert len({path.name for path in (tmp_path / "t" / "bucket-0").iterdir()}) > 1
    with pytest.raises(UsageError, match="has 2 sorted runs, which readers would no longer merge"):
        switch(context, True)


@pytest.mark.parametrize("deleted", [0, 9])
def test_deletes_above_level_0_are_found_whichever_file_has_them(tmp_path: Path, deleted: int) -> None:
    """Other writers move files to a level as they are, as far as it is not the last one."""
    context = table(tmp_path)
    write(context, numbers(1, 2), compact="none")
    write(context, [{"k": deleted, "_op": "-D"}], compact="none")
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    moved = FileChanges(removed=bucket.files, added=tuple(file.upgraded(4) for file in bucket.files))
    message = CommitMessage(*bucket.bucket_id, bucket.total_buckets, compact=moved)
    Committer(context).commit([message], fresh_identity(context))
    with pytest.raises(UsageError, match="has deletes above level 0, which readers would no longer apply"):
        switch(context, True)


def test_vectors_are_switched_off_once_there_are_none(tmp_path: Path) -> None:
    context = table(tmp_path, **ON)
    write(context, numbers(1, 2, 3))
    write(context, numbers(2, n=1))
    with pytest.raises(UsageError, match="cannot be switched off yet: bucket-0 has deletion vectors, which"):
        switch(context, False)
    compact(context, strategy="full")
    write(context, numbers(3, n=2), compact="none")
    assert switch(context, False).changed
    merging = reopened(context)
    assert rows(merging) == [{"k": 1, "n": 0}, {"k": 2, "n": 1}, {"k": 3, "n": 2}]
    assert not list(check_table(merging, rows=True))


def test_older_snapshots_are_read_as_they_were_written(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, numbers(1, 2), compact="none")
    write(context, numbers(2, n=1), compact="none")
    compact(context, strategy="full")
    switch(context, True)
    marking = reopened(context)
    write(marking, numbers(1, n=5))
    compact(marking, strategy="full")
    switch(marking, False)
    merging = reopened(marking)
    write(merging, numbers(9), compact="none")
    shown = {}
    for number in merging.snapshots.ids():
        seen, snapshot = travel(merging, snapshot_id=number)
        found = scan_to_arrow(seen, plan_scan(seen, snapshot).splits, ["k", "n"])
        shown[number] = found.sort_by("k").to_pylist()
    first, second, last = numbers(1, 2), numbers(1) + numbers(2, n=1), numbers(1, n=5) + numbers(2, n=1)
    assert list(shown.values()) == [first, second, second, second, last, last, last + numbers(9)]


def test_a_compaction_that_was_planned_before_the_switch_is_refused(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, numbers(1, 2, 3))
    compact(context, strategy="full")
    stale = context.with_options({"compaction.force-up-level-0": "true"})
    switch(context, True)
    write(reopened(context), numbers(2, n=1), compact="none")
    with pytest.raises(FilesConflict, match="was changed: this compaction was planned before that"):
        compact(stale, strategy="minor", on_conflict="fail")
    compact(reopened(context), strategy="minor")
    assert rows(reopened(context)) == [{"k": 1, "n": 0}, {"k": 2, "n": 1}, {"k": 3, "n": 0}]


def test_a_compaction_that_would_mark_rows_after_the_switch_is_refused(tmp_path: Path) -> None:
    """It leaves out the delete, for a vector that readers would ignore by then."""
    stale = table(tmp_path, **ON)
    write(stale, numbers(1, 2, 3))
    compact(stale, strategy="full")
    write(stale, [{"k": 2, "_op": "-D"}], compact="none")
    switch(stale, False)
    with pytest.raises(FilesConflict, match="was changed: this compaction was planned before that"):
        compact(stale, strategy="minor", on_conflict="fail")
    compact(reopened(stale), strategy="full")
    assert rows(reopened(stale)) == numbers(1, 3)


def test_without_modifiable_nothing_is_switched(tmp_path: Path) -> None:
    context = table(tmp_path, **{ENABLED: "true"})
    write(context, numbers(1))
    with pytest.raises(UsageError, match="cannot change once the table has data"):
        switch(context, False)
