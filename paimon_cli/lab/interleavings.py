"""`lab check`: explores what can happen when actors work on one table at the same time, by running the orders of their calls.

The actors run the shipped jobs and the shipped commit on a simulated storage; only the rows inside data files are simplified. An
oracle knows what each commit should add, and checks every change that a reader could notice.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_cli.commit.data_conflict import KEY, OFF
from paimon_cli.errors import UsageError
from paimon_cli.lab.simulation.actor import (
    Job,
    compactor,
    expirer,
    in_turn,
    litterer,
    orphan_remover,
    overwriter,
    read_modify_write,
    rows,
    tagger,
    writer,
)
from paimon_cli.lab.simulation.exploration import GoOn, Result, explore, sample
from paimon_cli.lab.simulation.publication import COUNTER
from paimon_cli.lab.simulation.run import Run, ToldStep, after, narrate
from paimon_cli.lab.simulation.scenario import PUT_IF_ABSENT, UNSAFE, Scenario
from paimon_cli.lab.simulation.schedule import CRASH, PUT_FAULTS, Step, parse_schedule
from paimon_cli.options.option_catalog import find_option
from paimon_cli.options.table_options import DATA_CONFLICT_CHECK

SHARED_BUCKET = 0
MOST_ACTORS = 6
RANDOM_SCHEDULES = 1_000
FIRST_DEPTH = 1
HONOURED_OPTIONS = ("commit.", "manifest.", "snapshot.", "compaction.", "num-sorted-run.", "num-levels", "write-only")
"""Beginnings of table options that mean something to commits, plans and expiry; the rest is about rows and data files."""

KINDS: Mapping[str, str] = {
    "writer": "writes to a bucket of its own",
    "rival": "writes a key that every rival writes",
    "counter": "reads a counter, adds one and writes it back; begins again after a data conflict",
    "twin": "makes the very commit that every twin makes",
    "overwriter": "puts its rows in the place of all others",
    "compactor": "compacts every bucket fully; plans again after a conflict",
    "expirer": "expires all snapshots but the newest",
    "tagger": "tags an old snapshot",
    "cleaner": "removes orphan files",
}
_SHARING = ("rival", "counter", "overwriter")
_NEED_HISTORY = {"expirer", "tagger", "cleaner"}


@dataclass(frozen=True)
class CheckRequest:
    """The request of `lab check`. `depth`: how often actors may be interrupted in the middle of their work, None: any number.
    `seed`: draw random schedules instead of trying all. `faults`: the most crashes and lost answers in one schedule.
    """

    actors: tuple[str, ...] = ("writer", "writer", "compactor")
    rounds: int = 1
    store: str = PUT_IF_ABSENT
    data_conflict_check: str = OFF
    faults: int = 0
    depth: int | None = None
    schedules: int | None = None
    seed: int | None = None
    finds: int = 1
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_safe(self) -> bool:
        """Whether nothing should be found: commits are kept apart, and actors that share rows run under the data conflict
        check.
        """
        sharing = sum(kind in _SHARING for kind in self.actors)
        return self.store != UNSAFE and (self.data_conflict_check != OFF or sharing < 2)

    def replay_line(self, schedule: str) -> str:
        """The command that replays this schedule."""
        words = ["paimon-cli", "lab", "check", "--actors", ",".join(self.actors), "--store", self.store]
        words += ["--data-conflict-check", self.data_conflict_check]
        words += ["--rounds", str(self.rounds)] if self.rounds != 1 else []
        words += ["--faults", str(self.faults)] if self.faults else []
        for key, value in self.options.items():
            words += ["--option", f"{key}={value}"]
        return shlex.join([*words, "--replay", schedule])


@dataclass(frozen=True)
class Find:
    """A schedule with violations, and the command that shows it again."""

    schedule: str
    violations: list[str]
    replay: str


@dataclass(frozen=True)
class CheckReport:
    """The result of `lab check`. `is_complete`: all orders of calls (within `depth` and `faults`) were tried. `states`: the
    number of different states reached.
    """

    actors: tuple[str, ...]
    store: str
    data_conflict_check: str
    is_safe: bool
    is_complete: bool
    schedules: int
    states: int
    storage_calls: int
    finds: list[Find]


@dataclass(frozen=True)
class ReplayedStep:
    """One step of a replayed schedule: the storage call of the actor, and the fault that affects it, '' if there is none."""

    step: str
    actor: str
    call: str
    befalls: str
    own_calls: int


@dataclass(frozen=True)
class Replay:
    """A replayed schedule, and its violations."""

    violations: list[str]
    steps: list[ReplayedStep]


def check_interleavings(request: CheckRequest, go_on: GoOn) -> CheckReport:
    """Run schedules until all are done, or `go_on` returns False. The same request gives the same finds in the same order."""
    scenario = scenario_of(request)
    if request.seed is not None:
        count = RANDOM_SCHEDULES if request.schedules is None else request.schedules
        result = sample(scenario, count, request.seed, most_findings=request.finds, go_on=go_on)
    else:
        result = _explored(request, scenario, go_on)
    return _report(request, result)


def _explored(request: CheckRequest, scenario: Scenario, go_on: GoOn) -> Result:
    """All orders, those with one interruption first: most anomalies need no more. The figures are those of the last search."""
    depths = (FIRST_DEPTH, None) if request.depth is None else (request.depth,)
    for depth in depths:
        result = explore(
            scenario,
            most_schedules=request.schedules,
            most_switches=depth,
            private_crashes=request.faults > 0,
            most_findings=request.finds,
            go_on=go_on,
        )
        if result.findings or not result.complete:
            break
    return result


def _report(request: CheckRequest, result: Result) -> CheckReport:
    return CheckReport(
        actors=request.actors,
        store=request.store,
        data_conflict_check=request.data_conflict_check,
        is_safe=request.is_safe,
        is_complete=result.complete,
        schedules=result.schedules,
        states=result.states,
        storage_calls=result.steps,
        finds=[Find(f.schedule, list(f.violations), request.replay_line(f.schedule)) for f in result.findings],
    )


def replay_schedule(request: CheckRequest, schedule: str) -> Replay:
    """Run one schedule. `UsageError` for text that is none."""
    try:
        steps: list[Step] = parse_schedule(schedule)
    except ValueError as error:
        raise UsageError("this is no schedule", str(error), "copy the replay line that `lab check` printed") from error
    run = Run(scenario_of(request))
    names = actor_names(request.actors)
    told: list[ToldStep] = list(narrate(run, steps))
    run.discard()
    replayed = [ReplayedStep(t.step, names[t.actor], t.call, t.befalls, t.own_calls) for t in told]
    return Replay(list(run.violations), replayed)


def actor_names(kinds: Sequence[str]) -> list[str]:
    """Names of the actors, numbered if there are several of a kind: `writer 1`, `writer 2`, `compactor`."""
    seen: Counter[str] = Counter()
    names = []
    for kind in kinds:
        seen[kind] += 1
        names.append(f"{kind} {seen[kind]}" if kinds.count(kind) > 1 else kind)
    return names


def scenario_of(request: CheckRequest) -> Scenario:
    """The table at the beginning, and the jobs of the actors. `UsageError` for what is not supported here."""
    _validate(request)
    options = {**request.options, "bucket": str(_bucket_count(request)), DATA_CONFLICT_CHECK: request.data_conflict_check}
    scenario = Scenario(
        "check",
        tuple(_jobs(request)),
        options,
        files_vanish=bool({"expirer", "cleaner"} & set(request.actors)),
        faults=(CRASH, *PUT_FAULTS) if request.faults else (),
        most_faults=request.faults,
        tolerates=frozenset({"PV023"}),  # overlapping sequence numbers are only a risk; the oracle checks what readers see of it
        store=request.store,
    )
    return after(scenario, [_beginning(request)])


def _beginning(request: CheckRequest) -> Job:
    """Two level-0 files of the shared bucket; a compaction, the snapshot of an old tag, and orphans for the actors that clean
    up.
    """
    first = writer("first", rows(SHARED_BUCKET, COUNTER, 2, value="0"), rows(SHARED_BUCKET, 2, 3))
    if not _NEED_HISTORY & set(request.actors):
        return first
    return in_turn(first, compactor(), *([litterer()] if "cleaner" in request.actors else []))


def _bucket_count(request: CheckRequest) -> int:
    return 2 + request.actors.count("writer")


def _jobs(request: CheckRequest) -> Iterator[Job]:
    own_bucket, twins_bucket = 1, _bucket_count(request) - 1
    for number, kind in enumerate(request.actors):
        user, value = f"{kind}-{number}", "abcdef"[number]
        if kind == "writer":
            batches = [rows(own_bucket, 100 * own_bucket, value=f"{value}{r}") for r in range(request.rounds)]
            own_bucket += 1
            yield writer(user, *batches)
        elif kind == "rival":
            # different row counts give the rivals different sequence numbers
            keys = range(2, 2 + len(request.actors) - number)
            yield writer(user, *(rows(SHARED_BUCKET, *reversed(keys), value=f"{value}{r}") for r in range(request.rounds)))
        elif kind == "twin":
            batches = [rows(twins_bucket, 900, value=f"t{r}") for r in range(request.rounds)]
            yield writer("twin", *batches, repeatable=True)
        elif kind == "counter":
            yield in_turn(*(read_modify_write(f"{user}-{r}", SHARED_BUCKET, COUNTER) for r in range(request.rounds)))
        elif kind == "overwriter":
            yield overwriter(user, rows(SHARED_BUCKET, COUNTER, value="0"))
        elif kind == "tagger":
            yield tagger(user, 2)
        else:
            yield _MAINTENANCE[kind]()


_MAINTENANCE: Mapping[str, Callable[[], Job]] = {
    "compactor": compactor,
    "expirer": expirer,
    "cleaner": orphan_remover,
}


def _validate(request: CheckRequest) -> None:
    unknown = [kind for kind in request.actors if kind not in KINDS]
    if unknown:
        raise UsageError(f"there is no actor '{unknown[0]}'", f"there are {', '.join(KINDS)}")
    if not 1 <= len(request.actors) <= MOST_ACTORS:
        raise UsageError(f"{len(request.actors)} actors", f"1 to {MOST_ACTORS} can be interleaved")
    if request.data_conflict_check == KEY:
        why = "it reads the keys of data files, and those of the simulation are not real files"
        raise UsageError("--data-conflict-check key cannot be checked", why, "take range, bucket or partition")
    if {"counter", "overwriter"} <= set(request.actors):
        raise UsageError("counter and overwriter together", "an overwrite sets the counter back, so increments cannot be judged")
    for key in request.options:
        if not key.startswith(HONOURED_OPTIONS) or find_option(key) is None or key == DATA_CONFLICT_CHECK:
            raise UsageError(
                f"--option {key} is not supported here",
                f"options of commits, plans and expiry can be: {', '.join(HONOURED_OPTIONS)}",
                f"--data-conflict-check sets {DATA_CONFLICT_CHECK}" if key == DATA_CONFLICT_CHECK else "leave the option out",
            )
