"""A table's own history, or a made-up workload, under several compaction options: what each would have cost."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import bucket_files
from paimon_cli.lsm.compaction_simulation import (
    Figures,
    OnCommit,
    RunModel,
    SimulatedCommit,
    SimulatedWorkload,
    SimulationResult,
    WorkloadShape,
    merged_run,
    simulate,
)
from paimon_cli.lsm.sorted_runs import SortedRun, sorted_runs
from paimon_cli.metadata.data_file import ADD, DELETE, DataFileMeta
from paimon_cli.metadata.snapshot import COMPACT
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.clock_and_names import local_hour
from paimon_cli.table.option_values import refuse_unknown

AS_IS = "as is"
COMPARED: Sequence[tuple[str, str]] = (
    ("num-sorted-run.compaction-trigger", "3"),
    ("num-sorted-run.compaction-trigger", "10"),
    ("compaction.size-ratio", "50"),
    ("compaction.max-size-amplification-percent", "50"),
    ("compaction.max-size-amplification-percent", "800"),
)
"""Variants of a comparison, each on its own."""


@dataclass(frozen=True)
class ScenarioRow:
    """One set of options and what came of it; the figures are those of `SimulationResult`."""

    scenario: str
    options: Mapping[str, str]
    commits: int
    compactions: int
    full_compactions: int
    flushed_bytes: int
    compacted_bytes: int
    write_amplification: float
    read_amplification: float
    most_runs: int
    space_amplification: float
    space_amplification_at_end: float
    stalls: int
    reasons: Mapping[str, int]


def scenarios(
    workload: SimulatedWorkload[Any],
    options: TableOptions,
    changed: Mapping[str, str],
    compare: bool,
    rounds_every: int,
    on_scenario: Callable[[int, int], OnCommit] | None = None,
) -> list[ScenarioRow]:
    """The options as they are, with what is `changed`, and with each of `COMPARED` on top; each set of options once.

    `on_scenario`: told the number of each and how many there are, gives what is to be told of its commits.
    """
    refuse_unknown(changed)
    sets: list[dict[str, str]] = [{}, dict(changed)]
    if compare:
        sets += [{**changed, key: value} for key, value in COMPARED]
    different = [each for number, each in enumerate(sets) if each not in sets[:number]]
    rows = []
    for number, each in enumerate(different, start=1):
        on_commit = None if on_scenario is None else on_scenario(number, len(different))
        rows.append(_row(workload, options, each, rounds_every, on_commit))
    return rows


def _row(
    workload: SimulatedWorkload[Figures],
    options: TableOptions,
    changed: Mapping[str, str],
    rounds_every: int,
    on_commit: OnCommit | None,
) -> ScenarioRow:
    result = simulate(workload, options.with_overrides(changed), local_hour, rounds_every, on_commit)
    name = ", ".join(f"{key}={value}" for key, value in changed.items()) or AS_IS
    figures = {field.name: getattr(result, field.name) for field in fields(SimulationResult)}
    return ScenarioRow(scenario=name, options=dict(changed), **figures)


def history_workload(context: TableContext) -> SimulatedWorkload[RunModel]:
    """The commits left in the table's history, its compactions left out: level 0 of each, onto the oldest snapshot's files."""
    if not context.schema.primary_keys:
        raise UsageError(
            "the table has no primary key", "its files do not form an LSM tree", "describe a workload instead: --workload"
        )
    snapshots = [context.snapshots.get(number) for number in context.snapshots.ids()]
    if not snapshots:
        raise UsageError("the table has no snapshots", "there is no history to replay", "describe a workload instead: --workload")
    states = bucket_files(context, snapshots[0])
    totals = [state.total_buckets for state in states.values()]
    begin: dict[Hashable, list[tuple[int, RunModel]]] = {
        bucket_id: [(run.level, run_model(context, run.files)) for run in sorted_runs(state.files, context.key_of)]
        for bucket_id, state in states.items()
    }
    commits = []
    for snapshot in snapshots[1:]:
        if snapshot.commit_kind == COMPACT:
            continue
        entries = context.manifests.delta_entries(snapshot)
        flushed: dict[Hashable, list[DataFileMeta]] = {}
        for entry in entries:
            if entry.kind == ADD:
                flushed.setdefault(entry.bucket_id, []).append(entry.file)
                totals.append(entry.total_buckets)
        emptied = frozenset(entry.bucket_id for entry in entries if entry.kind == DELETE)
        runs = {bucket_id: _runs_of(context, files) for bucket_id, files in flushed.items()}
        commits.append(SimulatedCommit[RunModel](snapshot.time_millis, runs, emptied))
    return SimulatedWorkload(commits, functools.partial(_merged, buckets=max(totals, default=1)), begin)


def _runs_of(context: TableContext, files: Sequence[DataFileMeta]) -> list[RunModel]:
    """Oldest first: so they were flushed."""
    return [run_model(context, run.files) for run in reversed(sorted_runs(files, context.key_of))]


def run_model(context: TableContext, files: Sequence[DataFileMeta]) -> RunModel:
    """A sorted run by its files, in key order."""
    run = SortedRun(0, tuple(files))
    return RunModel(run.row_count, run.size, context.key_of(files[0].min_key), context.key_of(files[-1].max_key))


def _merged(runs: Sequence[RunModel], buckets: int) -> RunModel:
    return merged_run(runs, buckets)


def workload_shape(document: Mapping[str, Any]) -> WorkloadShape:
    """The shape that a JSON object describes; `UsageError` for unknown names and values out of range."""
    known = {field.name: type(field.default) for field in fields(WorkloadShape)}
    for name, value in document.items():
        if name not in known:
            raise UsageError(f"a workload has no '{name}'", f"it has {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or (known[name] is int and not isinstance(value, int)):
            raise UsageError(f"{name} of a workload cannot be {value!r}", f"it is a {known[name].__name__}")
    shape = WorkloadShape(**document)
    if min(shape.commits, shape.rows, shape.row_bytes, shape.buckets) < 1 or shape.skew < 0 or not 0 <= shape.update_ratio <= 1:
        why = "commits, rows, row_bytes and buckets are at least 1, skew is at least 0, update_ratio from 0 to 1"
        raise UsageError("this is not a workload", why)
    if shape.commits * shape.rows > 10**8:
        raise UsageError("the workload is too big to be simulated", "commits * rows is at most 100 million")
    return shape
