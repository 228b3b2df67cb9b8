"""What a goal brings against Paimon's triggers: buckets with real key sets, the shipped picker, step rule and choice of merges.

    python -m scripts.bench.goals [--only tables budget late single vectors] [--seeds 1 2 3] [--commits 300] [--small]

`tables`: 200 uneven tables, 100 to 20,000 rows, 0.03 to 10 % updates a commit, read rates by Zipf 1.2, independent of size; with
the rates known and unknown. `budget`: a service that wants more than it may take. `late`: 100 partitions, most rows late into 20
random cold ones, which are hardly read. `single`: ten workloads of one bucket. `vectors`: level 0 is hidden from readers until it
is compacted. Runs are the sorted runs that a read opens, on the average over rows and reads; bytes are those that merges read.
The rate of a goal is found so that it reads no more than what it is compared with. The exit code is 1 if a goal was missed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.shared_budgets import DividedBudget, SavedFor
from paimon_cli.jobs.service.wanted_merges import WantedMerge
from paimon_cli.lsm.compaction_picker import CompactionPicker
from paimon_cli.lsm.compaction_simulation import KeySetRun, SimulatedCommit, merged_keys
from paimon_cli.lsm.rent_or_buy import GOALS, Goal, MergeCandidates, best_merges, patience_of
from paimon_cli.lsm.replayed_merges import LEAST_COMMITS, MOST_COMMITS, ReplayedBucket, ReplayedTable, replayed_costs
from paimon_cli.lsm.simulated_bucket import Rolling, SimulatedRun
from paimon_cli.lsm.universal_compaction import UniversalCompaction
from paimon_cli.requests.upkeep import Allowance
from scripts.bench.goal_loads import SINGLE, Load, always, late_partitions, single, uneven_tables
from scripts.bench.hindsight import least_bytes

ROW_BYTES = 1000
MAX_LEVEL = 5
ROUND_MILLIS = 900_000
TARGET = 2 << 20
"""The size of files, small beside the tables, so that key ranges matter as they do for large tables."""
ROLLING = Rolling(TARGET, int(TARGET * 0.7))
BISECTIONS = 8
COARSE, STEP, NEARLY = tuple(3.5 + step / 8 for step in range(21)), 0.03, 1.1
"""How the rate of a goal is found: by bisection, or among powers of ten. Between the best of these and the highest that reads
`NEARLY` times what it may at most, all in steps of `STEP` are tried.
"""


@dataclass
class Outcome:
    """What a simulation has counted: bytes that merges read; runs and rows of a read, weighted by reads, on the average over
    rounds (`held`: all runs of the bucket that is read); the most runs of a bucket; runs of level 0 that a round leaves hidden,
    on the average over buckets.
    """

    read: float = 0.0
    runs: float = 0.0
    held: float = 0.0
    rows: float = 0.0
    most: int = 0
    hidden: float = 0.0
    by_round: list[float] = field(default_factory=list)


class Bucket(ReplayedBucket[KeySetRun]):
    """A bucket of a table whose rows have all the same size."""

    def __init__(self) -> None:
        super().__init__(merged_keys, ROLLING, MAX_LEVEL)

    @property
    def rows(self) -> int:
        return sum(file.rows for run in self.runs for file in run.files)


@dataclass(frozen=True)
class Triggers:
    """Paimon's picks. `of`: the strategy of each bucket; `forces`: level 0 is compacted in every round."""

    of: Sequence[UniversalCompaction]
    forces: bool = False

    def round(self, buckets: Sequence[Bucket], changed: Sequence[int], rates: np.ndarray, now: int) -> float:
        read = 0.0
        for number in changed:
            bucket = buckets[number]
            picker = CompactionPicker(self.of[number % len(self.of)], 1 if self.forces else None)
            read += bucket.compact_by_triggers(picker, now) or 0
        return read


def patience(bucket: Hashable) -> float:
    """That of a bucket of the simulations."""
    return patience_of("simulated", b"", int(str(bucket)))


class SimulatedClock:
    """A clock that the simulation moves."""

    millis = 0

    def now_millis(self) -> int:
        return self.millis

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits in a simulation")


@dataclass
class ByGoal:
    """Merges by reads. `is_known`: whether the reads of each bucket are known, or all count alike. `budget`: bytes a day.

    `replays`: the buckets are those of one table, which follows its triggers while a replay finds that these are better.
    """

    goal: Goal
    budget: int | None = None
    is_known: bool = True
    forces: bool = False
    replays: bool = False
    history: list[SimulatedCommit[KeySetRun]] = field(default_factory=list)
    before: list[dict[Hashable, list[SimulatedRun[KeySetRun]]]] = field(default_factory=list)
    replayed: Sequence[SimulatedCommit[KeySetRun]] = ()
    replayed_at: int = 0
    follows_triggers: bool = False
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    left: Budget = field(init=False)
    saving: SavedFor | None = None

    def __post_init__(self) -> None:
        allowance = None if self.budget is None else Allowance(size=self.budget, is_daily=True)
        self.left = Budget.of(allowance, self.clock)

    def note(self, buckets: Sequence[Bucket], commit: Mapping[int, np.ndarray], rates: np.ndarray, now: int) -> None:
        """Remember a commit and what it finds, and compare both ways when there are enough new ones."""
        if not self.replays:
            return
        self.before.append({number: list(bucket.runs) for number, bucket in enumerate(buckets)})
        self.history.append(SimulatedCommit(now, {number: [KeySetRun(keys, ROW_BYTES)] for number, keys in commit.items()}))
        if len(self.history) - self.replayed_at < max(LEAST_COMMITS, len(self.replayed)) / 2 or len(self.history) < LEAST_COMMITS:
            return
        begin, self.replayed, self.replayed_at = self.before[-MOST_COMMITS:][0], self.history[-MOST_COMMITS:], len(self.history)
        by_bucket: dict[Hashable, float] = {**dict(enumerate(rates.tolist()))}
        table = ReplayedTable(begin, self.replayed, merged_keys, by_bucket.__getitem__, MAX_LEVEL, ROLLING, patience=patience)
        picker = CompactionPicker(DEFAULT, 1 if self.forces else None)
        self.follows_triggers = replayed_costs(table, self.goal, lambda now: picker).follows_triggers

    def round(self, buckets: Sequence[Bucket], changed: Sequence[int], rates: np.ndarray, now: int) -> float:
        if self.follows_triggers:
            return Triggers([DEFAULT], self.forces).round(buckets, changed, rates, now)
        self.clock.millis = now
        read, done = 0.0, set()
        known = rates if self.is_known else np.full(len(buckets), rates.mean())
        some = [number for number, bucket in enumerate(buckets) if len(bucket.runs) > 1]
        found = MergeCandidates.of([buckets[number].merges(float(known[number]), patience(number)) for number in some])
        chosen = best_merges(found, now, self.goal.at(self.left.part_of_rate), self.left.most_bytes)
        flat = [option for number in some for option in buckets[number].merges(0).options]
        # a merge for which the budget was saved asks again in each round
        divided = DividedBudget(self.left, earlier=self.saving)
        scores = np.where(chosen.is_forced, math.inf, chosen.score).tolist()
        for index, score in zip(chosen.index.tolist(), scores, strict=True):
            number, option = some[int(found.bucket[index])], flat[index]
            if divided.refuses(str(number), WantedMerge(score, option.cost, len(buckets[number].runs))):
                continue
            spent = buckets[number].compact(option.run_count, option.output_level, now)
            assert spent == option.cost, "the choice knows what the step rule rewrites"
            self.left.settle(option.cost, spent)
            done.add(number)
            read += spent
        self.saving = divided.saving
        if self.forces:
            only = UniversalCompaction(MAX_LEVEL, run_trigger=1 << 30)
            for number in changed:
                if number not in done:
                    read += Triggers([only], forces=True).round([buckets[number]], [0], rates, now)
        return read


def simulate(load: Load, policy: Triggers | ByGoal, count_from: int = 0) -> Outcome:
    """Follow each commit with a round."""
    buckets = [Bucket() for _ in range(load.buckets)]
    total, weight, hidden = Outcome(), 0.0, [0, 0]
    for number, commit in enumerate(load.commits):
        now, rates = (number + 1) * ROUND_MILLIS, load.reads(number)
        if isinstance(policy, ByGoal):
            policy.note(buckets, commit, rates, now)
        for bucket, keys in commit.items():
            level = MAX_LEVEL if load.begins and number == 0 else 0
            buckets[bucket].flush(KeySetRun(keys, ROW_BYTES), now - ROUND_MILLIS // 2, level)
        read = policy.round(buckets, [*commit], rates, now)
        total.by_round.append(read)
        if number < count_from:
            continue
        total.read += read
        opened = np.array([bucket.opened for bucket in buckets])
        rows = np.array([bucket.rows * (1.5 if bucket.opened > 1 else 1.0) for bucket in buckets])
        weight += float(rates.sum())
        total.runs += float(opened @ rates)
        total.held += float(np.array([len(bucket.runs) for bucket in buckets]) @ rates)
        total.rows += float(rows @ rates)
        total.most = max(total.most, max(len(bucket.runs) for bucket in buckets))
        hidden[0] += sum(run.level == 0 for bucket in buckets for run in bucket.runs)
        hidden[1] += sum(bool(bucket.runs) for bucket in buckets)
    total.runs, total.held, total.rows = total.runs / weight, total.held / weight, total.rows / weight
    total.hidden = hidden[0] / max(1, hidden[1])
    return total


DEFAULT = UniversalCompaction(MAX_LEVEL)
SETTINGS = tuple(
    UniversalCompaction(MAX_LEVEL, trigger, amplification, ratio)
    for trigger, ratio, amplification in (
        (2, 1, 200), (3, 1, 200), (5, 1, 200), (10, 1, 200), (3, 100, 50), (5, 100, 50), (7, 100, 50), (5, 100, 1000)
    )
)  # fmt: skip


# What is shown, and whether a goal was met


@dataclass
class Book:
    """Prints lines, and remembers which goals were missed."""

    missed: list[str] = field(default_factory=list)

    def goal(self, what: str, found: float, least: float) -> None:
        is_met = found >= least
        self.say(f"  {'met   ' if is_met else 'MISSED'} {what}: {found:.1%} (goal {least:.0%})")
        if not is_met:
            self.missed.append(what)

    @staticmethod
    def say(text: str) -> None:
        print(text, flush=True)


def line(name: str, outcome: Outcome) -> str:
    return f"  {name}: {outcome.read / 1e9:.3f} GB, {outcome.runs:.2f} runs a read, at most {outcome.most}"


def at_bytes(load: Load, most: float, first: int = 0, *, is_known: bool = True) -> Outcome:
    """The goal with the highest rate at which merges read no more than `most` bytes."""
    return bisected(lambda goal: simulate(load, ByGoal(goal, is_known=is_known), first), lambda done: done.read <= most, 1)


def at_runs(load: Load, most: float) -> Outcome:
    """The goal with the lowest rate at which a read opens no more than `most` runs."""
    return bisected(lambda goal: simulate(load, ByGoal(goal)), lambda done: done.runs <= most, -1)


def bisected(simulated: Callable[[Goal], Outcome], fits: Callable[[Outcome], bool], direction: int) -> Outcome:
    """The last outcome that fits, of rates that rise (`direction` 1) or fall (-1) as far as it does."""
    low, high, found = 2.0, 9.0, None
    for _ in range(BISECTIONS):
        rate = (low + high) / 2
        done = simulated(Goal("tried", 10.0**rate, bytes_per_merge=0))
        found = done if fits(done) else found
        low, high = (rate, high) if fits(done) == (direction > 0) else (low, rate)
    assert found is not None, "none fits"
    return found


def best_rate(load: Load, most: float) -> Outcome:
    """The goal that opens the fewest runs while merges read no more than `most` bytes, in a table that is replayed.

    In few buckets, bytes jump with the rate, up and down, so that bisection would find any of these places.
    """
    tried: dict[float, Outcome] = {}

    def best(rates: Sequence[float]) -> float:
        for rate in rates:
            tried[rate] = simulate(load, ByGoal(Goal("tried", 10.0**rate, bytes_per_merge=0), replays=True))
        return min(tried, key=lambda rate: (tried[rate].read > most, tried[rate].runs))

    near = best(COARSE)
    while tried[near].read > most:
        assert min(tried) > 0, "even the lowest rate reads more"
        near = best([min(tried) - 0.5])
    last = max(rate for rate, done in tried.items() if done.read <= max(NEARLY * most, tried[near].read))
    return tried[best(np.arange(near - 2 * STEP, last + 2 * STEP, STEP).tolist())]


def chosen_keys(load: Load, first: int) -> Outcome:
    """The setting of each bucket that is best for it on the first commits, at no more bytes than the defaults in all."""
    early = replace(load, commits=load.commits[:first])
    runs, bytes_ = np.zeros((len(SETTINGS), load.buckets)), np.zeros((len(SETTINGS), load.buckets))
    rates = load.reads(0)
    for column, setting in enumerate(SETTINGS):
        for bucket in range(load.buckets):
            commits = [{0: commit[bucket]} for commit in early.commits if bucket in commit]
            rate = rates[bucket]
            done = simulate(Load(commits, always(rate), 1), Triggers([setting]))
            runs[column, bucket], bytes_[column, bucket] = done.runs, done.read
    allowed, low, high = bytes_[SETTINGS.index(DEFAULT)].sum(), -4.0, 12.0
    best = np.full(load.buckets, SETTINGS.index(DEFAULT))
    for _ in range(40):  # the exchange rate at which all tables together read no more than with the defaults
        rate = (low + high) / 2
        pick = (bytes_ + 10.0**rate * runs * rates).argmin(axis=0)
        if bytes_[pick, np.arange(load.buckets)].sum() <= allowed:
            best, low = pick, rate
        else:
            high = rate
    return simulate(load, Triggers([SETTINGS[number] for number in best]), first)


def tables(book: Book, seed: int, commits: int, count: int) -> None:
    load, first = uneven_tables(seed, commits, count), commits // 2
    default = simulate(load, Triggers([DEFAULT]), first)
    book.say(line("defaults", default))
    known = at_bytes(load, default.read, first)
    book.say(line("goal, reads known", known))
    unknown = at_bytes(load, default.read, first, is_known=False)
    book.say(line("goal, reads unknown", unknown))
    by_keys = chosen_keys(load, first)
    book.say(line("keys chosen per table", by_keys))
    against = known if by_keys.read >= default.read else at_bytes(load, by_keys.read, first)
    book.goal("reads known, runs against defaults at no more bytes", 1 - known.runs / default.runs, 0.50)
    book.goal("reads known, runs against keys chosen per table", 1 - against.runs / by_keys.runs, 0.25)
    book.goal("reads unknown, runs against defaults", 1 - unknown.runs / default.runs, 0.30)


def budget(book: Book, seed: int, commits: int, count: int) -> None:
    """A service that wants more than its budget of a day, for some days; the first day begins with a full bucket."""
    load, day = uneven_tables(seed, commits, count), 86_400_000 // ROUND_MILLIS
    whole = simulate(load, Triggers([DEFAULT]))
    amount = int(whole.read / commits * day / 2)
    found = simulate(load, ByGoal(Goal.of("latency"), budget=amount))
    spent = np.array(found.by_round)
    days = np.convolve(spent, np.ones(day))[: len(spent)]
    book.say(line(f"half of what the triggers read, {amount / 1e9:.2f} GB a day", found))
    book.goal("of 24 hours, the most that one took of the budget, below 100 %", 1 - days.max() / amount, 0.0)
    # the average, because at any moment a part may be saved for a large merge
    book.goal(
        "of the budget used in 24 hours, on the average after the first day",
        days[min(day, len(days) - 1) :].mean() / amount,
        0.95,
    )


def late(book: Book, seed: int, commits: int, count: int) -> None:
    load = late_partitions(seed, commits, count)
    default = simulate(load, Triggers([DEFAULT]))
    book.say(line("defaults", default))
    found = at_runs(load, default.runs)
    book.say(line("goal that opens as few runs", found))
    saved, most_runs = 1 - found.read / default.read, GOALS["balanced"].most_runs
    possible = 1 - least_bytes(load, ROW_BYTES, default.held, most_runs, MAX_LEVEL) / default.read
    book.say(f"  {saved:.1%} fewer bytes; with all commits and reads known before, at most {possible:.1%} (50 % were hoped for)")
    book.goal("bytes saved at the runs of the defaults, of what is possible", saved / possible, 0.80)


def vectors(book: Book, seed: int, commits: int) -> None:
    """Three times as many commits as elsewhere: with so few full compactions, a lucky moment of one would decide."""
    load = single("uniform", seed, 3 * commits)
    default = simulate(load, Triggers([DEFAULT], forces=True))
    book.say(line("defaults", default))
    # merges below level 0 free levels for the forced ones, so that bytes do not simply rise with the rate
    tried = [simulate(load, ByGoal(Goal("tried", 10.0 ** (n / 8), bytes_per_merge=0), forces=True)) for n in range(32, 39)]
    found = min(tried, key=lambda one: (one.read > 0.85 * default.read, one.rows))
    book.say(line("goal", found))
    book.goal("bytes", 1 - found.read / default.read, 0.15)
    book.goal("rows read by scans", 1 - found.rows / default.rows, 0.20)
    book.goal("time that level 0 is hidden, unchanged", default.hidden - found.hidden, 0.0)


def singles(book: Book, seed: int, commits: int) -> None:
    ratios = []
    for name in SINGLE:
        load = single(name, seed, commits)
        default = simulate(load, Triggers([DEFAULT]))
        found = best_rate(load, default.read)
        ratios.append(found.runs / default.runs)
        book.say(
            f"  {name}: {default.runs:.2f} -> {found.runs:.2f} runs, {default.read / 1e9:.3f} -> {found.read / 1e9:.3f} GB, "
            f"scans {found.rows / default.rows - 1:+.0%}"
        )
    mean = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
    book.goal("ten workloads, geometric mean of the runs", 1 - mean, 0.15)
    book.goal("the worst of them", 1 - max(ratios), -0.05)


def main() -> Iterator[str]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("tables", "budget", "late", "single", "vectors"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--small", action="store_true", help="few tables and commits: the figures mean nothing")
    asked = parser.parse_args()
    book, commits = Book(), 20 if asked.small else asked.commits
    cases: dict[str, Callable[[int], None]] = {
        "tables": lambda seed: tables(book, seed, commits * 2 // 3, 10 if asked.small else 200),
        "budget": lambda seed: budget(book, seed, commits, 10 if asked.small else 60),
        "late": lambda seed: late(book, seed, commits, 30 if asked.small else 100),
        "single": lambda seed: singles(book, seed, commits),
        "vectors": lambda seed: vectors(book, seed, commits),
    }
    for name in asked.only or cases:
        for seed in asked.seeds:
            began = time.process_time()
            book.say(f"{name}, seed {seed}, {commits} commits")
            cases[name](seed)
            book.say(f"  {time.process_time() - began:.0f} s of CPU")
    if not asked.small:
        yield from book.missed


if __name__ == "__main__":
    sys.exit(1 if [*main()] else 0)
