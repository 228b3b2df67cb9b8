"""How picks are carried out, against Java's compact tasks (`compact_task` vectors of the main branch)."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

from paimon_cli.lsm.compaction_picker import Rewrite, Step, Upgrade, compaction_steps, may_drop_deletes
from paimon_cli.lsm.sorted_runs import highest_level, key_sections, sorted_runs
from paimon_cli.lsm.universal_compaction import CompactionPick, UniversalCompaction, run_sizes
from paimon_cli.metadata.data_file import DataFileMeta
from tests.lsm.slow_picks import SlowStrategy
from tests.lsm.test_key_intervals import file, int_key
from tests.vectors import load


def decided(line: dict[str, Any], files: list[DataFileMeta]) -> tuple[CompactionPick | None, list[Step], int]:
    runs = sorted_runs(files, int_key)
    max_level = max(line["num_levels"] - 1, highest_level(files))
    strategy = UniversalCompaction(max_level, line["run_trigger"], line["max_size_amp"], line["size_ratio"])
    if line["full"]:
        top_only = len(runs) == 1 and runs[0].level == max_level
        pick = None if not runs or top_only else CompactionPick(max_level, len(runs), "full", "")
    else:
        pick = (strategy.pick_forcing_level_0 if line["force_up_level0"] else strategy.pick)(run_sizes(runs))
    if pick is None:
        return None, [], max_level
    picked = [f for run in runs[: pick.run_count] for f in run.files]
    if len(picked) == 1 and picked[0].level == pick.output_level:
        return None, [], max_level
    return pick, compaction_steps(key_sections(picked, int_key), pick.output_level, max_level, line["min_file_size"]), max_level


def described(step: Step) -> tuple[str, Any]:
    if isinstance(step, Upgrade):
        return "upgrade", step.file.file_name
    return "rewrite", [[[f.file_name for f in run.files] for run in section] for section in step.sections]


def check(line: dict[str, Any]) -> None:
    asked, expected = line["in"], line["out"]
    files = [
        file(f["name"], f["min"], f["max"], level=f["level"], size=f["size"], seq=f["max_seq"], deletes=f["deletes"])
        for f in asked["files"]
    ]
    assert [[r.level, [f.file_name for f in r.files]] for r in sorted_runs(files, int_key)] == expected["runs"], "runs"
    pick, steps, _ = decided(asked, files)
    calls = expected["calls"] or []
    assert [described(step) for step in steps] == [
        ("upgrade", c["upgrade"]) if "upgrade" in c else ("rewrite", c["rewrite"]) for c in calls
    ], "calls"
    assert expected["stop_writing"] == (len(expected["runs"]) > asked["run_trigger"] + 3)
    drops = {c["drop_delete"] for c in calls if "rewrite" in c}
    if pick is not None and drops:
        assert drops == {may_drop_deletes(pick.output_level, highest_level(files))}


def test_steps_of_the_main_branch() -> None:
    lines = load("compact_task_head")
    for line in lines:
        check(line)
    assert len(lines) == 45


def why_0_9_differs(line: dict[str, Any]) -> str:
    files, options = line["in"]["files"], line["in"]
    runs = line["out"]["runs"]
    by_name = {f["name"]: f for f in files}
    if any(
        by_name[a[1][0]]["max_seq"] == by_name[b[1][0]]["max_seq"] for a, b in itertools.pairwise([r for r in runs if r[0] == 0])
    ):
        return "ties of level 0 by name"
    sizes = [(level, sum(by_name[name]["size"] for name in names)) for level, names in runs]
    top = max(options["num_levels"] - 1, *(level for level, _ in runs))
    both = [SlowStrategy({**options, "num_levels": top + 1}, main=main).pick(sizes, 0) for main in (False, True)]
    if not options["full"] and both[0] != both[1]:
        return "the walk passes level 0 and 1"
    if any(f["level"] == top and f["deletes"] != 0 for f in files):
        return "a file with deletes at the top level is rewritten"
    return "?"


def test_steps_of_0_9_but_those_that_its_own_rules_explain() -> None:
    reasons = Counter[str]()
    for line in load("compact_task"):
        try:
            check(line)
            reasons["as main"] += 1
        except AssertionError:
            reasons[why_0_9_differs(line)] += 1
    assert reasons == {
        "as main": 125,
        "the walk passes level 0 and 1": 3,
        "a file with deletes at the top level is rewritten": 6,
        "ties of level 0 by name": 2,
    }


def test_deletes_stay_while_older_rows_may_exist_below() -> None:
    assert not may_drop_deletes(0, 0)
    assert not may_drop_deletes(3, 5)
    assert may_drop_deletes(5, 5)
    assert may_drop_deletes(4, 3)


def test_a_big_lone_file_with_deletes_is_rewritten_at_the_top_only() -> None:
    sections = key_sections([file("a", 1, 2, size=1000, deletes=1)], int_key)
    assert isinstance(compaction_steps(sections, 5, 5, 10)[0], Rewrite)
    assert isinstance(compaction_steps(sections, 4, 5, 10)[0], Upgrade)


def test_newer_files_of_level_0_come_first() -> None:
    """By the number of the newest row, then of the oldest one, then by the time and the name; no time is the earliest one."""
    facts = [("g", 9, 0, 5), ("f", 8, 3, 5), ("e", 8, 4, 2), ("d", 8, 4, 3), ("c", 7, 1, None), ("b", 7, 1, 0), ("a", 7, 1, 1)]
    files = [
        replace(file(name, 0, 9, seq=newest), min_sequence_number=oldest, creation_time_millis=millis)
        for name, newest, oldest, millis in facts
    ]
    found = [run.files[0].file_name for run in sorted_runs(reversed(files), int_key)]
    assert found == ["g", "f", "e", "d", "b", "c", "a"]
