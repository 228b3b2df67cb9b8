"""Which compaction options fit a table: replays its own commits with many settings, and judges the best on commits not seen.

Trigger, size ratio and amplification depend on each other, so they are varied together. The setting is chosen on the first two
thirds of the history. Otherwise the luckiest of many would win; on the last third luck does not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paimon_cli.inspect.compaction_scenarios import ScenarioRow, scenario_row
from paimon_cli.lsm.compaction_simulation import OnCommit, SimulatedCommit, SimulatedWorkload
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES

TRIGGER, RATIO, AMPLIFICATION = (
    "num-sorted-run.compaction-trigger",
    "compaction.size-ratio",
    "compaction.max-size-amplification-percent",
)
VARIED: Mapping[str, Sequence[str]] = {
    TRIGGER: ("2", "3", "5", "7", "10"),
    RATIO: ("1", "25", "100"),
    AMPLIFICATION: ("50", "200", "1000"),
}
"""The values of each option that are tried beside its own; every combination is a setting."""
SEEN = 2 / 3
"""The part of the commits on which a setting is chosen; it is judged on the others."""
CAREFUL = 0.6
"""What a choice may cost is this part of what the judgement allows: one at the edge of it would often fall over it later."""
WORTH_IT = 0.8
"""A setting is better only if it saves at least a fifth of the bytes written or of the runs read."""


@dataclass(frozen=True)
class JudgedSettings:
    """The options as they are, and the best other setting, both judged on the commits that the choice has not seen.

    `better`: None if no setting was clearly better, on the first commits and then on the last. `tried`: how many there were.
    `buckets`, `all_buckets`: how many buckets were replayed, those with the most bytes written, and how many there are.
    """

    as_is: ScenarioRow
    better: ScenarioRow | None
    tried: int
    buckets: int
    all_buckets: int


def judged_settings(
    workload: SimulatedWorkload[Any],
    options: TableOptions,
    fixed: Collection[str] = (),
    on_scenario: Callable[[int, int], OnCommit] | None = None,
) -> JudgedSettings:
    """Choose among all settings of `VARIED` by the first commits, and judge the choice by the last.

    `fixed`: options that stay as they are. `on_scenario`: called with the number of each replay and
    their total; returns the callback for its commits. Each replay compacts every bucket after each commit, so of very large
    tables only the buckets with the most written bytes are replayed (`PIECES.replayed_rounds`).
    """
    replayed, all_buckets = _largest(workload)
    seen = int(len(replayed.commits) * SEEN)
    first = replace(replayed, commits=replayed.commits[:seen])
    settings: list[Mapping[str, str]] = [{}, *_settings(options, fixed)]
    total = len(settings) + 2

    def progress(number: int) -> OnCommit | None:
        return None if on_scenario is None else on_scenario(number, total)

    rows = [scenario_row(first, options, changed, on_commit=progress(number)) for number, changed in enumerate(settings, start=1)]
    chosen = _best(rows[0], rows[1:])
    as_is = scenario_row(replayed, options, {}, on_commit=progress(total - 1), counted_from=seen)
    better = None
    if chosen is not None:
        better = scenario_row(replayed, options, chosen.options, on_commit=progress(total), counted_from=seen)
        better = better if _is_better(as_is, better) else None
    return JudgedSettings(as_is, better, len(settings) - 1, len(_buckets(replayed)), all_buckets)


def _settings(options: TableOptions, fixed: Collection[str]) -> list[dict[str, str]]:
    """All combinations, each without what is so already; the one that changes nothing is left out."""
    today = {
        TRIGGER: str(options.compaction_trigger),
        RATIO: str(options.size_ratio),
        AMPLIFICATION: str(options.max_size_amplification_percent),
    }
    values = [(today[key],) if key in fixed else tuple(dict.fromkeys((today[key], *VARIED[key]))) for key in VARIED]
    combinations = (dict(zip(VARIED, chosen, strict=True)) for chosen in itertools.product(*values))
    changes = ({key: value for key, value in chosen.items() if value != today[key]} for chosen in combinations)
    return [change for change in changes if change]


def _buckets(workload: SimulatedWorkload[Any]) -> frozenset[Hashable]:
    return frozenset(workload.begin).union(*(commit.flushed for commit in workload.commits))


def _largest(workload: SimulatedWorkload[Any]) -> tuple[SimulatedWorkload[Any], int]:
    """The workload of the buckets to which most was written, as many as can be replayed, and how many buckets there are.

    What happens in one bucket does not depend on others, so theirs is exact.
    """
    written = dict.fromkeys(_buckets(workload), 0)
    for commit in workload.commits:
        for bucket_id, runs in commit.flushed.items():
            written[bucket_id] += sum(run.size for run in runs)
    most = max(1, PIECES.replayed_rounds // max(1, len(workload.commits)))
    if len(written) <= most:
        return workload, len(written)
    kept = frozenset(sorted(written, key=lambda bucket_id: (-written[bucket_id], repr(bucket_id)))[:most])
    commits = [
        SimulatedCommit[Any](commit.millis, _of(commit.flushed, kept), commit.emptied & kept) for commit in workload.commits
    ]
    return SimulatedWorkload(commits, workload.merge, _of(workload.begin, kept)), len(written)


def _of(values: Mapping[Hashable, Any], kept: frozenset[Hashable]) -> dict[Hashable, Any]:
    return {bucket_id: value for bucket_id, value in values.items() if bucket_id in kept}


def _is_better(as_is: ScenarioRow, row: ScenarioRow, allowed: float = 1.0) -> bool:
    """Whether it clearly saves writes or reads, at little cost for the other, for space and for writers that wait.

    `allowed`: the part of these costs that is accepted.
    """
    is_harmless = row.stalls <= as_is.stalls and row.space_amplification <= max(1.5, as_is.space_amplification * 1.2)
    writes_less = row.write_amplification < WORTH_IT * as_is.write_amplification
    reads_as_well = row.read_amplification <= as_is.read_amplification * (1 + allowed * 0.25) + allowed * 0.75
    reads_less = row.read_amplification < WORTH_IT * as_is.read_amplification
    writes_as_well = row.write_amplification <= as_is.write_amplification * (1 + allowed * 0.1)
    return is_harmless and ((writes_less and reads_as_well) or (reads_less and writes_as_well))


def _best(as_is: ScenarioRow, others: Sequence[ScenarioRow]) -> ScenarioRow | None:
    """The better setting with the least product of writes and reads; of equal ones the one that changes fewest options."""
    better = [row for row in others if _is_better(as_is, row, CAREFUL)]
    return min(better, key=lambda row: (row.write_amplification * row.read_amplification, len(row.options)), default=None)
