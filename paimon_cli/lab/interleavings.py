"""`lab check`: searches for anomalies of concurrent work on one table by running many interleavings of storage calls.

The actors (`cast`) run the shipped jobs and the shipped commit on a simulated storage; only the rows inside data files are
simplified, where no actor needs real ones. An oracle knows what each commit is to add, and checks every change that a reader
could observe.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from paimon_cli.catalog.option_values import check_option_values
from paimon_cli.commit.data_conflict import KEY, OFF
from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.lab.cast import Cast
from paimon_cli.lab.minimized import minimized, sentence, told
from paimon_cli.lab.simulation.exploration import Finding, Result, ShouldContinue, explore, sample
from paimon_cli.lab.simulation.run import NarratedStep, Run, after, narrate, replay
from paimon_cli.lab.simulation.scenario import PUT_IF_ABSENT, UNSAFE, Scenario
from paimon_cli.lab.simulation.schedule import CRASH, PUT_FAULTS, Step, parse_schedule, schedule_text
from paimon_cli.lab.story import Story
from paimon_cli.options.option_catalog import COMPACT, WRITE, find_option
from paimon_cli.options.own_options import DATA_CONFLICT_CHECK
from paimon_cli.storage.memory_storage import MemoryStorage

RANDOM_SCHEDULES = 1_000
FIRST_DEPTH = 1
HONOURED_OPTIONS = ("commit.", "manifest.", "snapshot.", "compaction.", "num-sorted-run.", "num-levels", "write-only")
"""Prefixes of the table options that affect commits, plans and expiry; all others concern rows and data files."""


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
        return self.store != UNSAFE and (self.data_conflict_check != OFF or not self.cast.shares_rows)

    @property
    def cast(self) -> Cast:
        return Cast(self.actors, self.rounds)

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
    story = Story("", ())
    told(story, scenario, steps, request.cast.names)
    return Find(schedule, violations, request.replay_line(schedule), [sentence(step) for step in story.steps])


def story_of(request: CheckRequest, schedule: str) -> Story:
    """One schedule as a story. Raises `UsageError` if the text is not a schedule of these actors."""
    scenario, steps = scenario_of(request), _parsed(request, schedule)
    story = Story(", ".join(request.actors), (request.data_conflict_check,), request.store)
    told(story, scenario, steps, request.cast.names)
    story.violations = list(replay(scenario, steps).violations)
    return story.end(not story.violations, f"replay: {request.replay_line(schedule)}")


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
    """Run one schedule. Raises `UsageError` if the text is not a schedule of these actors."""
    scenario, steps, names = scenario_of(request), _parsed(request, schedule), request.cast.names
    run = Run(scenario)
    narrated: list[NarratedStep] = list(narrate(run, steps))
    run.discard()
    replayed = [ReplayedStep(t.step, names[t.actor], t.call, t.befalls, t.own_calls) for t in narrated]
    return Replay(list(run.violations), replayed)


def _parsed(request: CheckRequest, schedule: str) -> list[Step]:
    hint, count = "copy the replay command that `lab check` printed", len(request.actors)
    try:
        steps: list[Step] = parse_schedule(schedule)
    except ValueError as error:
        raise UsageError("not a schedule", str(error), hint) from error
    strangers = [step for step in steps if step.actor >= count]
    if strangers:
        why = f"step {strangers[0]} is of actor {strangers[0].actor}, and the actors are numbered 0 to {count - 1}"
        raise UsageError("not a schedule of these actors", why, hint)
    return steps


def scenario_of(request: CheckRequest) -> Scenario:
    """The initial table and the jobs of the actors. Raises `UsageError` for unsupported actors and options."""
    cast = request.cast
    cast.check()
    _check_options(request)
    options = {**cast.table_options, **request.options, DATA_CONFLICT_CHECK: request.data_conflict_check}
    scenario = Scenario(
        "check",
        tuple(cast.jobs()),
        options,
        files_vanish=cast.deletes_files,
        faults=(CRASH, *PUT_FAULTS) if request.faults else (),
        max_faults=request.faults,
        tolerates=frozenset({"PV023"}),  # overlapping sequence numbers are only a risk; the oracle checks whether readers notice
        real_files=cast.has_real_files,
        store=request.store,
    )
    table = TableContext(TablePlace(scenario.layout.root, "the table"), MemoryStorage(), scenario.definition)
    for operation in (WRITE, COMPACT):
        table.check(operation)  # what the actors could not do is refused before any of them starts
    return after(scenario, [cast.beginning()])


def _check_options(request: CheckRequest) -> None:
    if request.data_conflict_check == KEY:
        why = "it reads keys from data files, and most data files of the simulation are not Parquet"
        raise UsageError("--data-conflict-check key cannot be checked", why, "use range, bucket or partition")
    for key in request.options:
        if not key.startswith(HONOURED_OPTIONS) or find_option(key) is None or key == DATA_CONFLICT_CHECK:
            raise UsageError(
                f"--option {key} is not supported here",
                f"only options of commits, plans and expiry are: {', '.join(HONOURED_OPTIONS)}",
                f"--data-conflict-check sets {DATA_CONFLICT_CHECK}" if key == DATA_CONFLICT_CHECK else "leave the option out",
            )
    check_option_values(request.options)
