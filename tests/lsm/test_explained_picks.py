"""The reasons of a pick, to the last figure, and why nothing was picked."""

from __future__ import annotations

import pytest

from paimon_cli.lsm.compaction_picker import NEVER_PICKED, CompactionPicker, PickState, full_pick
from paimon_cli.lsm.sorted_runs import SortedRun, highest_level, sorted_runs, total_size
from paimon_cli.lsm.universal_compaction import CompactionPick, RunSize, UniversalCompaction, run_sizes
from paimon_cli.options.table_options import TableOptions
from tests.lsm.test_key_intervals import file, int_key


def runs_of(*levels_and_sizes: tuple[int, int]) -> list[RunSize]:
    return [RunSize(*one) for one in levels_and_sizes]


@pytest.mark.parametrize(
    ("runs", "options", "now", "last_full", "arithmetic"),
    [
        ([(0, 1), (5, 9)], {"optimization_interval": 7}, 100, None, "no full compaction known, interval 7 ms"),
        ([(0, 1), (5, 9)], {"optimization_interval": 7}, 100, 92, "8 ms since the last full one, interval 7 ms"),
        ([(0, 1), (5, 9)], {"optimization_interval": 7}, 100, 93, None),
        ([(0, 1), (5, 8)], {"total_size_threshold": 10}, 0, None, "9 < 10 bytes in all"),
        ([(0, 1), (5, 9)], {"total_size_threshold": 10}, 0, None, None),
        ([(0, 6), (4, 5), (5, 80)], {"incremental_size_threshold": 10}, 0, None, "11 > 10 bytes above the top level"),
        ([(0, 6), (4, 4), (5, 80)], {"incremental_size_threshold": 10}, 0, None, None),
        ([(0, 21), (5, 10)], {"run_trigger": 2}, 0, None, "21 * 100 > 200 * 10"),
        ([(0, 20), (5, 21)], {"run_trigger": 2}, 0, None, None),
        ([(0, 100), (0, 102), (4, 900)], {"run_trigger": 2, "size_ratio": 2}, 0, None, None),
        ([(0, 1), (2, 10), (3, 100), (5, 10**6)], {"run_trigger": 3}, 0, None, "4 runs > trigger 3"),
    ],
)
def test_arithmetic(
    runs: list[tuple[int, int]], options: dict[str, int], now: int, last_full: int | None, arithmetic: str | None
) -> None:
    picked = UniversalCompaction(5, **options).pick(runs_of(*runs), now, last_full)
    if arithmetic is None:
        assert picked is None or picked.reason == "size-ratio"
    else:
        assert picked is not None and picked.arithmetic == arithmetic


@pytest.mark.parametrize(
    ("runs", "ratio", "expected"),
    [
        (
            [(0, 100), (0, 101), (0, 10000), (4, 40000), (5, 200000)],
            1,
            CompactionPick(3, 3, "size-ratio", "100 * 101% >= 101; stops before run 4: 10201 * 101% < 40000"),
        ),
        ([(0, 100), (0, 101), (5, 100)], 1, CompactionPick(5, 3, "size-ratio", "100 * 101% >= 101")),
        ([(0, 100), (0, 102), (5, 900)], 1, None),
        (
            [(0, 100), (3, 110), (4, 231), (5, 9000)],
            10,
            CompactionPick(4, 3, "size-ratio", "100 * 110% >= 110; stops before run 4: 441 * 110% < 9000"),
        ),
        (
            [(0, 100), (3, 110), (4, 232), (5, 9000)],
            10,
            CompactionPick(3, 2, "size-ratio", "100 * 110% >= 110; stops before run 3: 210 * 110% < 232"),
        ),
    ],
)
def test_walks(runs: list[tuple[int, int]], ratio: int, expected: CompactionPick | None) -> None:
    assert UniversalCompaction(5, 3, 10**6, ratio).pick(runs_of(*runs)) == expected


def test_forced_picks_count_the_runs_that_wait() -> None:
    runs = runs_of((0, 1), (0, 1), (5, 10**9))
    assert UniversalCompaction(5).pick_forcing_level_0(runs) == CompactionPick(4, 2, "force-up-level-0", "2 level-0 runs wait")
    assert UniversalCompaction(5).pick_forcing_level_0(runs[2:]) is None
    due = UniversalCompaction(5, optimization_interval=5)
    assert due.pick_forcing_level_0(runs, 20, 14) == CompactionPick(
        5, 3, "optimization-interval", "6 ms since the last full one, interval 5 ms"
    )
    forced = due.pick_forcing_level_0(runs, 20, 15)
    assert forced is not None and forced.reason == "force-up-level-0"


@pytest.mark.parametrize(
    ("runs", "every", "waits", "reason"),
    [
        ([], 3, 1, "no files"),
        ([(5, 9)], None, 0, "1 run < trigger 2"),
        ([(5, 9)], 3, 1, "1 run < trigger 2"),
        ([(0, 9)], 3, 2, "1 run < trigger 2; level 0 waits, attempt 2 of 3"),
        ([(0, 10), (5, 90)], None, 0, "2 runs, 10 * 100 <= 200 * 90, 10 * 101% < 90"),
        ([(0, 10), (4, 20), (5, 90)], 4, 1, "3 runs, 30 * 100 <= 200 * 90, 10 * 101% < 20; level 0 waits, attempt 1 of 4"),
    ],
)
def test_why_not(runs: list[tuple[int, int]], every: int | None, waits: int, reason: str) -> None:
    picker = CompactionPicker(UniversalCompaction(5, 2), every)
    assert picker.why_not(runs_of(*runs), PickState(None, waits)) == reason
    if len(runs) == 1:
        assert CompactionPicker(UniversalCompaction(5, 1)).why_not(runs_of(*runs), NEVER_PICKED) == "one run"


def test_what_is_remembered_of_a_pick() -> None:
    runs = runs_of((0, 1), (5, 10**9))
    waiting = CompactionPicker(UniversalCompaction(5), 2)
    picked, state = waiting.pick(runs, 70, PickState(5, 0))
    assert (picked, state) == (None, PickState(5, 1))
    picked, state = waiting.pick(runs, 71, state)
    assert picked is not None and picked.run_count == 1
    assert state == PickState(5, 0), "a run was left out: that was no full compaction"
    picked, state = waiting.pick(runs[:1], 72, PickState(5, 1))
    assert picked is not None and (picked.run_count, picked.output_level) == (1, 5)
    assert state == PickState(72, 0)
    picked, state = CompactionPicker(UniversalCompaction(5, 1), 9).pick(runs_of((0, 5), (5, 1)), 80, PickState(None, 4))
    assert picked is not None and picked.reason == "size-amplification"
    assert state == PickState(80, 4), "nothing had to be forced"
    assert PickState(None, 0) == NEVER_PICKED


def test_options_reach_the_strategy() -> None:
    texts = {
        "num-sorted-run.compaction-trigger": "7",
        "compaction.max-size-amplification-percent": "150",
        "compaction.size-ratio": "3",
        "compaction.optimization-interval": "11 ms",
        "compaction.total-size-threshold": "12 b",
        "compaction.incremental-size-threshold": "13 b",
    }
    assert CompactionPicker.of(TableOptions(texts), 4, 0) == CompactionPicker(UniversalCompaction(4, 7, 150, 3, 11, 12, 13))
    assert CompactionPicker.of(TableOptions({"force-lookup": "true"}), 4, 0).forced_every == 1
    assert CompactionPicker.of(TableOptions({}), 5, 0) == CompactionPicker(UniversalCompaction(5, 5, 200, 1))
    assert UniversalCompaction(3) == UniversalCompaction(3, 5, 200, 1, None, None, None)


def test_full_picks() -> None:
    lone, top = SortedRun(0, (file("a", 1, 2),)), SortedRun(5, (file("b", 1, 2, level=5),))
    whole = CompactionPick(5, 1, "full", "all runs, as asked")
    assert full_pick([], 5, rewrite_all=True) is None
    assert full_pick([top], 5, rewrite_all=False) is None
    assert full_pick([top], 5, rewrite_all=True) == full_pick([lone], 5, rewrite_all=False) == whole
    assert full_pick([top], 6, rewrite_all=False) == CompactionPick(6, 1, "full", "all runs, as asked")
    assert full_pick([lone, top], 5, rewrite_all=False) == CompactionPick(5, 2, "full", "all runs, as asked")


def test_runs_of_a_bucket() -> None:
    files = [
        file("late", 5, 6, level=2, size=7),
        file("early", 1, 2, level=2, size=9),
        file("older", 1, 9, size=1, seq=3),
        file("newer", 1, 9, size=2, seq=4),
        file("deep", 1, 9, level=5, size=100),
    ]
    runs = sorted_runs(files, int_key)
    assert [(run.level, [f.file_name for f in run.files]) for run in runs] == [
        (0, ["newer"]),
        (0, ["older"]),
        (2, ["early", "late"]),
        (5, ["deep"]),
    ]
    assert run_sizes(runs) == runs_of((0, 2), (0, 1), (2, 16), (5, 100))
    assert (total_size(runs), runs[2].row_count, highest_level(files), highest_level([])) == (119, 2, 5, 0)
