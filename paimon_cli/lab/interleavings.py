"""`lab check`: searches for anomalies of concurrent work on one table by running many interleavings of storage calls.

The actors run the shipped jobs and the shipped commit on a simulated storage; only the rows inside data files are simplified. An
oracle knows what each commit is to add, and checks every change that a reader could observe.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_cli.catalog.option_values import check_option_values
from paimon_cli.commit.data_conflict import KEY, OFF
from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.lab.minimized import minimized, told
from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.actor_jobs import (
    compactor,
    expirer,
    in_turn,
    litterer,
    orphan_remover,
    overwriter,
    read_modify_write,
    restorer,
    rows,
    tagger,
    writer,
)
from paimon_cli.lab.simulation.exploration import Finding, Result, ShouldContinue, explore, sample
from paimon_cli.lab.simulation.paper_files import DELETE
from paimon_cli.lab.simulation.publication import COUNTER
from paimon_cli.lab.simulation.run import NarratedStep, Run, after, narrate, replay
from paimon_cli.lab.simulation.scenario import PUT_IF_ABSENT, UNSAFE, Scenario
from paimon_cli.lab.simulation.schedule import CRASH, PUT_FAULTS, Step, parse_schedule, schedule_text
from paimon_cli.options.option_catalog import COMPACT, WRITE, find_option
from paimon_cli.options.own_options import DATA_CONFLICT_CHECK
from paimon_cli.storage.memory_storage import MemoryStorage

SHARED_BUCKET = 0
FIRST_ROWS = rows(SHARED_BUCKET, COUNTER, 2, value="0")
"""The rows of snapshot 1."""
MAX_ACTORS = 6
RANDOM_SCHEDULES = 1_000
FIRST_DEPTH = 1
HONOURED_OPTIONS = ("commit.", "manifest.", "snapshot.", "compaction.", "num-sorted-run.", "num-levels", "write-only")
"""Prefixes of the table options that affect commits, plans and expiry; all others concern rows and data files."""

KINDS: Mapping[str, str] = {
    "writer": "writes to a bucket of its own",
    "rival": "writes a key that every rival writes",
    "counter": "reads a counter, adds one and writes it back; retries after a data conflict",
    "twin": "makes a commit with the same identity as every other twin",
    "overwriter": "replaces all rows with its own",
    "deleter": "deletes a row that is there at the beginning",
    "restorer": "brings back the rows of the first snapshot as a new commit; starts again after a conflict",
    "compactor": "compacts every bucket fully; makes a new plan after a conflict",
    "expirer": "expires all snapshots except the newest",
    "tagger": "tags an old snapshot",
    "cleaner": "removes orphan files",
}
_HAVE_ROUNDS = {"writer", "rival", "counter", "twin"}
_SHARING = ("rival", "counter", "overwriter", "deleter", "restorer")
_REPLACE_ALL_ROWS = {"overwriter", "restorer"}
_NEED_HISTORY = {"expirer", "tagger", "cleaner"}


@dataclass(frozen=True)
class CheckRequest:
    """The request of `lab check`.

    `depth`: the most interruptions of unfinished actors in one schedule, None for no limit. `seed`: run random schedules instead
    of all. `faults`: the most crashes and lost responses in one schedule. `minimize`: shrink the schedules that were found, and
    tell them in words.
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
    minimize: bool = False

    @property
    def is_safe(self) -> bool:
        """Whether no violation is possible: the store makes commits atomic, and actors that share rows run under the data
        conflict check.
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
    """A schedule with violations, and the command that replays it. `story`: the schedule in words, if it was minimized."""

    schedule: str
    violations: list[str]
    replay: str
    story: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CheckReport:
    """The result of `lab check`. `is_complete`: all interleavings within `depth` and `faults` were covered. `states`: the number
    of distinct states reached.
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
    """One step of a replayed schedule: the actor's storage call, and its fault (empty if there is none)."""

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


def check_interleavings(request: CheckRequest, should_continue: ShouldContinue) -> CheckReport:
    """Run schedules until all are done or `should_continue` returns False. Equal requests give equal finds in the same order."""
    scenario = scenario_of(request)
    if request.seed is not None:
        count = RANDOM_SCHEDULES if request.schedules is None else request.schedules
        result = sample(scenario, count, request.seed, max_findings=request.finds, should_continue=should_continue)
    else:
        result = _explored(request, scenario, should_continue)
    finds = [_found(request, scenario, finding, should_continue) for finding in result.findings]
    return _report(request, result, finds)


def _found(request: CheckRequest, scenario: Scenario, finding: Finding, should_continue: ShouldContinue) -> Find:
    if not request.minimize:
        return Find(finding.schedule, list(finding.violations), request.replay_line(finding.schedule))
    steps = minimized(scenario, parse_schedule(finding.schedule), should_continue)
    schedule, violations = schedule_text(steps), list(replay(scenario, steps).violations)
    story = told(scenario, steps, actor_names(request.actors))
    return Find(schedule, violations, request.replay_line(schedule), story)


def _explored(request: CheckRequest, scenario: Scenario, should_continue: ShouldContinue) -> Result:
    """Search all interleavings, those with one interruption first. The figures are of the last search."""
    depths = (FIRST_DEPTH, None) if request.depth is None else (request.depth,)
    for depth in depths:
        result = explore(
            scenario,
            max_schedules=request.schedules,
            max_switches=depth,
            private_faults=request.faults > 0,
            max_findings=request.finds,
            should_continue=should_continue,
        )
        if result.findings or not result.complete:
            break
    return result


def _report(request: CheckRequest, result: Result, finds: list[Find]) -> CheckReport:
    return CheckReport(
        actors=request.actors,
        store=request.store,
        data_conflict_check=request.data_conflict_check,
        is_safe=request.is_safe,
        is_complete=result.complete,
        schedules=result.schedules,
        states=result.states,
        storage_calls=result.steps,
        finds=finds,
    )


def replay_schedule(request: CheckRequest, schedule: str) -> Replay:
    """Run one schedule. Raises `UsageError` if the text is not a schedule."""
    try:
        steps: list[Step] = parse_schedule(schedule)
    except ValueError as error:
        raise UsageError("not a schedule", str(error), "copy the replay command that `lab check` printed") from error
    scenario, names = scenario_of(request), actor_names(request.actors)
    strangers = [step for step in steps if step.actor >= len(names)]
    if strangers:
        why = f"step {strangers[0]} is of actor {strangers[0].actor}, and the actors are numbered 0 to {len(names) - 1}"
        raise UsageError("not a schedule of these actors", why, "copy the replay command that `lab check` printed")
    run = Run(scenario)
    narrated: list[NarratedStep] = list(narrate(run, steps))
    run.discard()
    replayed = [ReplayedStep(t.step, names[t.actor], t.call, t.befalls, t.own_calls) for t in narrated]
    return Replay(list(run.violations), replayed)


def actor_names(kinds: Sequence[str]) -> list[str]:
    """Names of the actors, numbered if there are several of a kind: `writer 1`, `writer 2`, `compactor`."""
    counts: Counter[str] = Counter()
    names = []
    for kind in kinds:
        counts[kind] += 1
        names.append(f"{kind} {counts[kind]}" if kinds.count(kind) > 1 else kind)
    return names


def scenario_of(request: CheckRequest) -> Scenario:
    """The initial table and the jobs of the actors. Raises `UsageError` for unsupported actors and options."""
    _validate(request)
    options = {**request.options, "bucket": str(_bucket_count(request)), DATA_CONFLICT_CHECK: request.data_conflict_check}
    scenario = Scenario(
        "check",
        tuple(_jobs(request)),
        options,
        files_vanish=bool({"expirer", "cleaner"} & set(request.actors)),
        faults=(CRASH, *PUT_FAULTS) if request.faults else (),
        max_faults=request.faults,
        tolerates=frozenset({"PV023"}),  # overlapping sequence numbers are only a risk; the oracle checks whether readers notice
        store=request.store,
    )
    table = TableContext(scenario.layout.root, MemoryStorage(), scenario.schema, scenario.options)
    for operation in (WRITE, COMPACT):
        table.check(operation)  # what the actors could not do is refused before any of them starts
    return after(scenario, [_beginning(request)])


def _beginning(request: CheckRequest) -> Job:
    """Writes two level-0 files to the shared bucket; for actors that need history, also compacts and leaves orphan files."""
    first = writer("first", FIRST_ROWS, rows(SHARED_BUCKET, 2, 3))
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
            # with different row counts, the rivals assign different sequence numbers to the shared key
            keys = range(2, 2 + len(request.actors) - number)
            yield writer(user, *(rows(SHARED_BUCKET, *reversed(keys), value=f"{value}{r}") for r in range(request.rounds)))
        elif kind == "twin":
            batches = [rows(twins_bucket, 900, value=f"t{r}") for r in range(request.rounds)]
            yield writer("twin", *batches, repeatable=True)
        elif kind == "counter":
            yield in_turn(*(read_modify_write(f"{user}-{r}", SHARED_BUCKET, COUNTER) for r in range(request.rounds)))
        elif kind == "overwriter":
            yield overwriter(user, rows(SHARED_BUCKET, COUNTER, value="0"))
        elif kind == "deleter":
            yield writer(user, rows(SHARED_BUCKET, 2, kind=DELETE))
        elif kind == "restorer":
            yield restorer(user, 1, FIRST_ROWS)
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
        raise UsageError(f"unknown actor '{unknown[0]}'", f"actors are {', '.join(KINDS)}")
    if not 1 <= len(request.actors) <= MAX_ACTORS:
        raise UsageError(f"{len(request.actors)} actors", f"1 to {MAX_ACTORS} can be interleaved")
    if request.data_conflict_check == KEY:
        why = "it reads keys from data files, and the data files of the simulation are not Parquet"
        raise UsageError("--data-conflict-check key cannot be checked", why, "use range, bucket or partition")
    if request.rounds != 1 and not _HAVE_ROUNDS & set(request.actors):
        why = f"only {', '.join(sorted(_HAVE_ROUNDS))} repeat their work"
        raise UsageError("--rounds does not apply to these actors", why, "remove --rounds")
    for kind in sorted(_REPLACE_ALL_ROWS & set(request.actors)):
        if "counter" in request.actors:
            why = f"the {kind} resets the counter, so lost increments cannot be detected"
            raise UsageError(f"counter and {kind} cannot be combined", why)
    for key in request.options:
        if not key.startswith(HONOURED_OPTIONS) or find_option(key) is None or key == DATA_CONFLICT_CHECK:
            raise UsageError(
                f"--option {key} is not supported here",
                f"only options of commits, plans and expiry are: {', '.join(HONOURED_OPTIONS)}",
                f"--data-conflict-check sets {DATA_CONFLICT_CHECK}" if key == DATA_CONFLICT_CHECK else "leave the option out",
            )
    check_option_values(request.options)
