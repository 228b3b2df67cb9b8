"""`history check`: each planted anomaly is found under its rule, and right histories show none."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.anomalies import ANOMALY_RULES, LIKELY, UNTOLD, Anomaly
from paimon_cli.invariants.retained_past import outlived_commits
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.history_check_job import run_history_check
from paimon_cli.metadata.data_file import DataFileMeta, EntryKind
from paimon_cli.metadata.snapshot import COMPACT, OVERWRITE
from paimon_cli.requests.integrity import HistoryCheckOptions
from tests.commit.commit_tables import data_file, make_table
from tests.goldens import GOLDENS, Golden, golden_table
from tests.invariants.damaged_tables import SOUND, Bench
from tests.invariants.damages import DAMAGES
from tests.invariants.forged_tables import entry, forge
from tests.maintain.test_expire_changelogs import outlived
from tests.maintain.test_tags import table_of_five

A = replace(data_file("a", low=0, high=9), max_sequence_number=9)
RULE_OF_CODE = {code: rule.name for rule in ANOMALY_RULES for code in rule.codes}


def anomalies(context: TableContext, **options: Any) -> list[Anomaly]:
    return run_history_check(context, HistoryCheckOptions(**options), None, LocalEngine(), NoProgress())


def rules(context: TableContext, **options: Any) -> set[str]:
    """The kinds of anomalies of a table. The files of forged tables do not exist: `meta` does not look for them."""
    return {anomaly.rule for anomaly in anomalies(context, **options) if anomaly.certainty != UNTOLD}


def test_commits_from_one_version(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    other = replace(data_file("b", low=9, high=12), min_sequence_number=5, max_sequence_number=14)
    forge(context, 1, [], [entry(A)])
    forge(context, 2, [entry(A)], [entry(other)])
    found = {anomaly.rule: anomaly for anomaly in anomalies(context)}
    lost = found["lost-update"]
    assert lost.certainty == LIKELY and lost.snapshots == (1, 2) and lost.users == ("user-1", "user-2")
    assert lost.key == "k = 9" and lost.files == ("a", "b") and "writers-beside-each-other" in found


def test_commits_after_each_other(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    after = replace(data_file("b", low=0, high=9), min_sequence_number=10, max_sequence_number=19)
    forge(context, 1, [], [entry(A)])
    forge(context, 2, [entry(A)], [entry(after)])
    assert rules(context) == set()


@pytest.mark.parametrize("kind", [COMPACT, OVERWRITE])
def test_numbers_that_begin_anew(tmp_path: Path, kind: str) -> None:
    """In a bucket that was emptied the next writer begins at 0, which is no sign of a commit beside it."""
    context = make_table(tmp_path / "t")
    forge(context, 1, [], [entry(A)])
    forge(context, 2, [entry(A)], [entry(A, EntryKind.DELETE)], commit_kind=kind)
    forge(context, 3, [], [entry(replace(A, file_name="c"))])
    assert rules(context) == set()


def test_an_overwrite_begins_anew(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    new = replace(data_file("n", low=0, high=9), max_sequence_number=2)
    after = replace(data_file("c", low=0, high=9), min_sequence_number=3, max_sequence_number=12)
    forge(context, 1, [], [entry(A)])
    forge(context, 2, [entry(A)], [entry(A, EntryKind.DELETE), entry(new)], commit_kind=OVERWRITE)
    forge(context, 3, [entry(new)], [entry(after)])
    assert rules(context) == set()


def test_a_file_that_an_overwrite_restored(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    merged, moved = replace(A, file_name="m", level=5), replace(A, level=5)
    forge(context, 1, [], [entry(A)])
    forge(context, 2, [entry(A)], [entry(A, EntryKind.DELETE), entry(merged)], commit_kind=COMPACT)
    forge(context, 3, [entry(merged)], [entry(merged, EntryKind.DELETE), entry(A)], commit_kind=OVERWRITE)
    forge(context, 4, [entry(A)], [entry(A, EntryKind.DELETE), entry(moved)], commit_kind=COMPACT)
    assert rules(context, level="meta") == set()


def numbered(name: str, least: int, greatest: int) -> DataFileMeta:
    return replace(data_file(name, low=0, high=9), min_sequence_number=least, max_sequence_number=greatest)


def test_commits_beyond_an_overwrite_or_a_gap_are_not_compared(tmp_path: Path) -> None:
    """What was written before it is not there any more, or nobody knows what became of it."""
    new, after = numbered("n", 0, 8), numbered("c", 1, 12)
    for name, between in (("overwrite", [2]), ("gap", [])):
        context = make_table(tmp_path / name)
        forge(context, 1, [], [entry(A)])
        for number in between:
            forge(context, number, [entry(A)], [entry(A, EntryKind.DELETE), entry(new)], commit_kind=OVERWRITE)
        if not between:
            forge(context, 3, [], [entry(new)])
        forge(context, 4 - len(between), [entry(new)], [entry(after)])
        told = [each for each in anomalies(context) if each.certainty != UNTOLD and each.rule == "writers-beside-each-other"]
        assert all(1 not in each.snapshots for each in told), name
        assert bool(told) == (name == "gap"), "beside the commit after the gap"


def test_a_file_that_moves_from_level_to_level_was_never_gone(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    levels = [replace(A, level=level) for level in (0, 3, 4, 5)]
    forge(context, 1, [], [entry(A)])
    for number, (old, new) in enumerate(pairwise(levels), 2):
        forge(context, number, [entry(old)], [entry(old, EntryKind.DELETE), entry(new)], commit_kind=COMPACT)
    assert rules(context, level="meta") == set()


def test_a_newer_row_with_the_same_number_is_in_disorder(tmp_path: Path) -> None:
    for least, expected in ((9, True), (10, False)):
        context = make_table(tmp_path / f"{least}")
        forge(context, 1, [], [entry(A)])
        forge(context, 2, [entry(A)], [entry(numbered("b", least, 19))])
        assert ("merge-disorder" in rules(context)) == expected


def test_a_damaged_changelog_hides_none_of_the_others(tmp_path: Path) -> None:
    context = outlived(tmp_path)
    Path(context.layout.changelog(2)).write_text("{")
    oldest = context.snapshots.ids()[0]
    assert [snapshot.id for snapshot in outlived_commits(context, oldest)] == [1, 3, 4, 5]


def test_a_commit_that_may_be_under_way_is_not_lost(tmp_path: Path) -> None:
    """Its files are younger than the newest snapshot, and no hint says that it was published."""
    context = table_of_five(tmp_path)
    lost = context.layout.manifest(context.snapshots.get(5).delta_manifest_list)
    Path(context.layout.snapshot(5)).unlink()
    Path(context.layout.latest_hint).write_text("4")
    os.utime(context.layout.snapshot(4), (2_000_000_000, 2_000_000_000))
    for written, expected in ((2_000_000_001, set()), (1_999_999_999, {"snapshot-overwritten"})):
        os.utime(lost, (written, written))
        assert rules(TableContext.open(context.url)) == expected


def test_a_repeated_commit(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    after = replace(data_file("b", low=0, high=9), min_sequence_number=10, max_sequence_number=19)
    forge(context, 1, [], [entry(A)], commit_user="job", commit_identifier=7)
    forge(context, 2, [entry(A)], [entry(after)], commit_user="job", commit_identifier=7)
    assert rules(context) == {"repeated-commit"}


@pytest.mark.in_part(4)
@pytest.mark.parametrize("golden", GOLDENS, ids=str)
def test_right_tables_of_other_writers(tmp_path: Path, golden: Golden) -> None:
    assert rules(TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))) == set()


@pytest.mark.parametrize("damage", [one for one in DAMAGES if one.code in RULE_OF_CODE], ids=str)
def test_damages_of_the_past(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    root = SOUND[damage.table](tmp_path)
    assert rules(TableContext.open(str(root))) == set()
    bench = Bench(shutil.copytree(root, tmp_path / "damaged"))
    damage.plant(bench)
    assert RULE_OF_CODE[damage.code] in rules(TableContext.open(str(bench.root)))
