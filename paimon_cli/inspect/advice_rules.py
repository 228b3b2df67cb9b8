"""The rules of `advise`: advice on buckets, small files, options and compaction, derived from the table's own history.

Every topic gets an answer with figures; without a problem it is `ok`. The findings of `doctor` on these topics are included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import median

from paimon_cli.inspect.bucket_report import BIGGEST_BUCKET, SMALLEST_BUCKET, good_bucket_count
from paimon_cli.inspect.compaction_scenarios import ScenarioRow, history_workload, scenarios
from paimon_cli.inspect.doctor_rules import (
    Diagnosis,
    ExaminedTable,
    compactions_run,
    files_are_not_small,
    only_one_compacts,
    options_agree,
    runs_are_few,
    snapshots_are_few,
)
from paimon_cli.lsm.compaction_simulation import OnCommit
from paimon_cli.maintain.retention import Retention, expiring_range
from paimon_cli.metadata.data_file import ADD
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.options.option_text import human_size

BUCKETS, SMALL_FILES, OPTIONS, COMPACTION = "buckets", "small-files", "options", "compaction"
TOPICS = (BUCKETS, SMALL_FILES, OPTIONS, COMPACTION)
OK, ADVICE = "ok", "advice"
MIN_COMMITS = 10
"""The fewest commits from which compaction is simulated."""
WORTH_IT = 0.8
"""A setting is suggested only if it saves at least a fifth of what it affects."""
DAY_MILLIS = 86_400_000
MIN_RHYTHM_MILLIS = 3_600_000
"""The shortest history from which a number of files per day is derived."""
Figure = int | float | str


@dataclass(frozen=True)
class Advice:
    """One piece of advice. `figures`: the evidence; `command`: the command to run, empty if there is none."""

    topic: str
    severity: str
    subject: str
    message: str
    command: str = ""
    code: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)


class Case(ExaminedTable):
    """The table that the rules examine, each part read once; `on_scenario` receives the progress of the simulation."""

    on_scenario: Callable[[int, int], OnCommit] | None = None

    @cached_property
    def writes(self) -> list[Snapshot]:
        """The recent commits that wrote rows, newest first."""
        return [snapshot for snapshot in self.recent if snapshot.commit_kind in (APPEND, OVERWRITE)]

    @cached_property
    def partition_sizes(self) -> dict[bytes, int]:
        sizes: dict[bytes, int] = {}
        for bucket in self.buckets:
            sizes[bucket.partition] = sizes.get(bucket.partition, 0) + sum(file.file_size for file in bucket.files)
        return sizes


def bucket_size(case: Case) -> Iterator[Advice]:
    """PA001, PA002: compare bytes per bucket with Paimon's recommendation.

    The largest partition decides, because all partitions have the same bucket count.
    """
    total = case.context.options.bucket
    if total < 1:
        modes = {-2: "postponed: compaction chooses their number", -1: "dynamic or absent: their number follows the rows"}
        yield Advice(BUCKETS, OK, "bucket size", f"the buckets are {modes[total]}", figures={"bucket": total})
        return
    sizes = sorted(case.partition_sizes.values())
    if not sizes:
        yield Advice(BUCKETS, OK, "bucket size", "the table is empty", figures={"buckets": total})
        return
    max_bucket_size = sizes[-1] // total
    good = good_bucket_count(sizes)
    figures: dict[str, Figure] = {
        "buckets": total,
        "partitions": len(sizes),
        "bucket_bytes_of_biggest_partition": max_bucket_size,
        "bucket_bytes_of_median_partition": int(median(sizes)) // total,
        "smallest_good_bytes": SMALLEST_BUCKET,
        "biggest_good_bytes": BIGGEST_BUCKET,
        "suggested_buckets": good,
    }
    held = (
        f"{human_size(max_bucket_size)} per bucket in the largest of {len(sizes)} partitions"
        if len(sizes) > 1
        else f"{human_size(max_bucket_size)} per bucket"
    )
    good_sizes = f"{human_size(SMALLEST_BUCKET)} to {human_size(BIGGEST_BUCKET)} is recommended"
    guidance = f"{held}, {total} bucket{'' if total == 1 else 's'}; {good_sizes}"
    command = f"paimon-cli rescale {case.argument} --buckets {good}"
    if max_bucket_size > BIGGEST_BUCKET:
        why = "each bucket is compacted by a single task and read by only a few"
        yield Advice(BUCKETS, ADVICE, "bucket size", f"{guidance}: {why}", command, "PA001", figures)
    elif max_bucket_size < SMALLEST_BUCKET and good < total:
        why = "more buckets than needed make small files, and help only if that many tasks write at the same time"
        yield Advice(BUCKETS, ADVICE, "bucket size", f"{guidance}: {why}", command, "PA002", figures)
    else:
        yield Advice(BUCKETS, OK, "bucket size", guidance, figures=figures)


def small_files(case: Case) -> Iterator[Advice]:
    """How many files a commit writes, to how many buckets, and how many files that makes per day."""
    files = [file for bucket in case.buckets for file in bucket.files]
    target = case.context.mode.target_file_size
    small = [file for file in files if file.file_size < target // 10]
    figures: dict[str, Figure] = {
        "files": len(files),
        "small_files": len(small),
        "average_bytes": sum(file.file_size for file in files) // max(1, len(files)),
        "target_bytes": target,
        **_rhythm(case),
    }
    finding = f"{len(small)} of {len(files)} files are smaller than a tenth of {human_size(target)}"
    if "files_per_commit" in figures:
        finding += (
            f"; a commit adds {figures['files_per_commit']} files to {figures['buckets_per_commit']} buckets of "
            f"{figures['partitions_per_commit']} partitions"
        )
    if "files_per_day" in figures:
        finding += f", one every {figures['commit_interval_seconds']} s: {figures['files_per_day']:,} files a day"
    elif "seconds_looked_at" in figures:
        finding += (
            f"; {figures['commits_looked_at']} commits within {figures['seconds_looked_at']} s are too few for a daily rate"
        )
    for found in files_are_not_small(case):
        causes = "fewer buckets and longer commit intervals make fewer files"
        yield Advice(SMALL_FILES, ADVICE, "small files", f"{finding}; {causes}", found.command, found.code, figures)
        return
    yield Advice(SMALL_FILES, OK, "small files", finding, figures=figures)


def _rhythm(case: Case) -> dict[str, Figure]:
    """Average files, buckets and partitions per commit, and the median time between commits.

    A short history gives no daily rate, because it may be a burst of commits.
    """
    added = [[e for e in case.context.manifests.delta_entries(s) if e.kind == ADD] for s in case.writes]
    if not added:
        return {}
    commits = len(added)
    files = sum(map(len, added)) / commits
    figures: dict[str, Figure] = {
        "commits_looked_at": commits,
        "files_per_commit": round(files, 1),
        "buckets_per_commit": round(sum(len({e.bucket_id for e in entries}) for entries in added) / commits, 1),
        "partitions_per_commit": round(sum(len({e.partition for e in entries}) for entries in added) / commits, 1),
    }
    times = [snapshot.time_millis for snapshot in case.writes]
    if len(times) > 1:
        interval = median(newer - older for newer, older in pairwise(times))
        figures["commit_interval_seconds"] = round(interval / 1000, 1)
        figures["seconds_looked_at"] = round((times[0] - times[-1]) / 1000, 1)
        if times[0] - times[-1] >= MIN_RHYTHM_MILLIS and interval > 0:
            figures["files_per_day"] = round(files * DAY_MILLIS / interval)
    return figures


def retention(case: Case) -> Iterator[Advice]:
    """PA003: snapshots that the options allow to expire, but that still exist."""
    latest = case.recent[0] if case.recent else None
    if latest is None:
        yield Advice(OPTIONS, OK, "retention", "the table has no snapshots", figures={"snapshots": 0})
        return
    options = case.context.options
    limits = Retention.of(options)
    backlog = len(expiring_range(case.context, Retention(limits.at_least, limits.at_most, limits.millis, None)))
    oldest = case.context.snapshots.get(case.ids[0])
    hours = max(0, case.context.clock.now_millis() - oldest.time_millis) / 3_600_000
    figures: dict[str, Figure] = {
        "snapshots": len(case.ids),
        "snapshots_that_may_go": backlog,
        "oldest_hours": round(hours, 1),
        "num_retained_min": options.snapshot_num_retained_min,
        "time_retained_hours": round(options.snapshot_time_retained / 3_600_000, 2),
    }
    finding = f"{len(case.ids)} snapshots, the oldest {hours:.1f} h old; {backlog} are past the limits of the table's options"
    if backlog > options.snapshot_num_retained_min:
        command = f"paimon-cli expire {case.argument}"
        yield Advice(OPTIONS, ADVICE, "retention", f"{finding}, and no job expires them", command, "PA003", figures)
    else:
        yield Advice(OPTIONS, OK, "retention", finding, figures=figures)


def manifests(case: Case) -> Iterator[Advice]:
    """PA004: many small manifests, which slow down every plan."""
    if not case.recent:
        return
    metas = case.context.manifests.manifests_of(case.recent[0])
    least = case.context.options.manifest_merge_min_count
    size = sum(meta.file_size for meta in metas)
    figures: dict[str, Figure] = {"manifests": len(metas), "manifest_bytes": size, "merge_min_count": least}
    finding = f"{len(metas)} manifests of {human_size(size)}; {least} small ones are merged at a time"
    if len(metas) > 2 * max(least, 30) and size < len(metas) * case.context.options.manifest_target_file_size // 10:
        command = f"paimon-cli alter {case.argument} set manifest.merge-min-count=30"
        yield Advice(OPTIONS, ADVICE, "manifests", f"{finding}: every plan reads all of them", command, "PA004", figures)
    else:
        yield Advice(OPTIONS, OK, "manifests", finding, figures=figures)


def triggers(case: Case) -> Iterator[Advice]:
    """PA005: replay the table's commits with other compaction options, one at a time."""
    if not case.context.schema.primary_keys:
        yield Advice(COMPACTION, OK, "triggers", "a table without a primary key has no sorted runs to compact")
        return
    if len(case.ids) < MIN_COMMITS:
        finding = f"{len(case.ids)} snapshots are too few to simulate other triggers (at least {MIN_COMMITS})"
        yield Advice(COMPACTION, OK, "triggers", finding, figures={"snapshots": len(case.ids)})
        return
    as_is, *others = scenarios(history_workload(case.context), case.context.options, {}, True, 1, case.on_scenario)
    finding = (
        f"replaying {as_is.commits} commits: write amplification {as_is.write_amplification}, "
        f"{as_is.read_amplification} runs to read, space amplification {as_is.space_amplification}, {as_is.stalls} stalls"
    )
    better = _better(as_is, others)
    if better is None:
        message = f"{finding}; none of the {len(others)} other settings is clearly better"
        yield Advice(COMPACTION, OK, "triggers", message, figures=_figures("", as_is))
        return
    command = f"paimon-cli alter {case.argument} set {better.scenario}"
    message = (
        f"{finding}; with {better.scenario}: {better.write_amplification}, {better.read_amplification} runs, "
        f"space {better.space_amplification}, {better.stalls} stalls"
    )
    figures = {**_figures("", as_is), **_figures("suggested_", better)}
    yield Advice(COMPACTION, ADVICE, "triggers", message, command, "PA005", figures)


def _better(as_is: ScenarioRow, others: Sequence[ScenarioRow]) -> ScenarioRow | None:
    """The scenario that writes least, among those that clearly save writes or reads at little cost; None if there is none."""

    def cheaper(row: ScenarioRow) -> bool:
        harmless = row.stalls <= as_is.stalls and row.space_amplification <= max(1.5, as_is.space_amplification * 1.2)
        writes_less = row.write_amplification <= WORTH_IT * as_is.write_amplification
        reads_as_well = row.read_amplification <= as_is.read_amplification * 1.25 + 0.5
        reads_less = row.read_amplification <= WORTH_IT * as_is.read_amplification
        writes_as_well = row.write_amplification <= as_is.write_amplification * 1.1
        return harmless and ((writes_less and reads_as_well) or (reads_less and writes_as_well))

    return min((row for row in others if cheaper(row)), key=lambda row: row.write_amplification, default=None)


def _figures(prefix: str, row: ScenarioRow) -> dict[str, Figure]:
    names = ("commits", "compactions", "write_amplification", "read_amplification", "space_amplification", "stalls")
    return {f"{prefix}{name}": getattr(row, name) for name in names}


def _of_doctor(topic: str, *rules: Callable[[ExaminedTable], Iterator[Diagnosis]]) -> Callable[[Case], Iterator[Advice]]:
    """A rule that reports the findings of some rules of `doctor`."""

    def run(case: Case) -> Iterator[Advice]:
        for rule in rules:
            for found in rule(case):
                figures: dict[str, Figure] = {"recent_commits": len(case.recent), "snapshots": len(case.ids)}
                if case.runs:
                    figures["most_sorted_runs"] = max(case.runs)
                yield Advice(topic, found.severity, found.subject, found.message, found.command, found.code, figures)

    return run


RULES: Mapping[str, Sequence[Callable[[Case], Iterator[Advice]]]] = {
    BUCKETS: (bucket_size,),
    SMALL_FILES: (small_files,),
    OPTIONS: (_of_doctor(OPTIONS, compactions_run, only_one_compacts, snapshots_are_few, options_agree), retention, manifests),
    COMPACTION: (_of_doctor(COMPACTION, runs_are_few), triggers),
}


def advise(case: Case, topics: Sequence[str] = TOPICS) -> list[Advice]:
    """All advice, by topic; within a topic, suggestions come first."""
    found = [advice for topic in TOPICS if topic in topics for rule in RULES[topic] for advice in rule(case)]
    return sorted(found, key=lambda advice: (TOPICS.index(advice.topic), advice.severity == OK))
