"""`lab check`: searches for anomalies of concurrent work on one table by running many interleavings of storage calls.

The actors (`cast`) run the shipped jobs and the shipped commit on a simulated storage; only the rows inside data files are
simplified, where no actor needs real ones. An oracle knows what each commit is to add, and checks every change that a reader
could observe. A failing schedule is shrunk to the fewest faults, switches and steps, and told in words.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise

from paimon_cli.catalog.option_values import check_option_values
from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.lab.cast import Cast
from paimon_cli.lab.simulation.exploration import FailedSchedule, Result, ShouldContinue, explore, sample
from paimon_cli.lab.simulation.run import NarratedStep, Run, after, narrate, replay
from paimon_cli.lab.simulation.scenario import UNSAFE, Scenario
from paimon_cli.lab.simulation.schedule import CRASH, FAULT_MEANING, PUT_FAULTS, ScheduledStep, parse_schedule, schedule_text
from paimon_cli.lab.simulation.script import StorageCall
from paimon_cli.lab.simulation.sim_lock import LOCK, LOOK_AT_LOCK, UNLOCK
from paimon_cli.lab.simulation.sim_storage import LISTING_CALLS, READ_CALLS
from paimon_cli.lab.story import PUBLISHED, TAKEN, Story, StoryStep
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.options.option_catalog import Operation, find_option
from paimon_cli.options.own_options import DATA_CONFLICT_CHECK
from paimon_cli.requests.lab import CheckOptions
from paimon_cli.storage.memory_storage import MemoryStorage

RANDOM_SCHEDULES = 1_000
FIRST_DEPTH = 1
HONOURED_OPTIONS = ("commit.", "manifest.", "snapshot.", "compaction.", "num-sorted-run.", "num-levels", "write-only")
"""Prefixes of the table options that affect commits, plans and expiry; all others concern rows and data files."""


class CheckRequest(CheckOptions):
    """The request of `lab check`. `options`: those of the table."""

    _: KW_ONLY
    options: Mapping[str, str] | None = None

    @property
    def is_safe(self) -> bool:
        """Whether no violation is possible: the store makes commits atomic, and actors that share rows run under the data
        conflict check.
        """
        return self.store != UNSAFE and (self.data_conflict_check != ConflictCheck.OFF or not self.cast.shares_rows)

    @property
    def cast(self) -> Cast:
        return Cast(self.actors, self.rounds)

    def replay_line(self, schedule: str) -> str:
        """The command that replays this schedule."""
        words = ["paimon-cli", "lab", "check", "--actors", ",".join(self.actors), "--store", self.store]
        words += ["--data-conflict-check", self.data_conflict_check]
        words += ["--rounds", str(self.rounds)] if self.rounds != 1 else []
        words += ["--faults", str(self.faults)] if self.faults else []
        for key, value in (self.options or {}).items():
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
class ReplayedSchedule:
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


def _found(request: CheckRequest, scenario: Scenario, finding: FailedSchedule, should_continue: ShouldContinue) -> Find:
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


def replay_schedule(request: CheckRequest, schedule: str) -> ReplayedSchedule:
    """Run one schedule. Raises `UsageError` if the text is not a schedule of these actors."""
    scenario, steps, names = scenario_of(request), _parsed(request, schedule), request.cast.names
    run = Run(scenario)
    narrated: list[NarratedStep] = list(narrate(run, steps))
    run.discard()
    replayed = [ReplayedStep(t.step, names[t.actor], t.call, t.fault, t.own_calls) for t in narrated]
    return ReplayedSchedule(list(run.violations), replayed)


def _parsed(request: CheckRequest, schedule: str) -> list[ScheduledStep]:
    hint, count = "copy the replay command that `lab check` printed", len(request.actors)
    try:
        steps: list[ScheduledStep] = parse_schedule(schedule)
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
    options = {**cast.table_options, **(request.options or {}), DATA_CONFLICT_CHECK: request.data_conflict_check}
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
    for operation in (Operation.WRITE, Operation.COMPACT):
        table.check(operation)  # what the actors could not do is refused before any of them starts
    return after(scenario, [cast.beginning()])


def _check_options(request: CheckRequest) -> None:
    for key in request.options or ():
        if not key.startswith(HONOURED_OPTIONS) or find_option(key) is None or key == DATA_CONFLICT_CHECK:
            raise UsageError(
                f"--option {key} is not supported here",
                f"only options of commits, plans and expiry are: {', '.join(HONOURED_OPTIONS)}",
                f"--data-conflict-check sets {DATA_CONFLICT_CHECK}" if key == DATA_CONFLICT_CHECK else "leave the option out",
            )
    check_option_values(request.options or {})


MAX_REPLAYS = 2_000
_LOOKS = READ_CALLS | LISTING_CALLS | {"exists", "head", "list_page", "list_page_below"}


@dataclass(frozen=True)
class _Tried:
    """The steps that were asked for, and those that the whole run took."""

    asked: tuple[ScheduledStep, ...]
    taken: tuple[ScheduledStep, ...]

    @property
    def cost(self) -> tuple[int, int, int]:
        """Faults, switches between actors, and steps to be written down."""
        switches = sum(one.actor != other.actor for one, other in pairwise(self.taken))
        return sum(step.is_fault for step in self.taken), switches, len(self.asked)


def minimized(scenario: Scenario, steps: Sequence[ScheduledStep], should_continue: Callable[[], bool]) -> list[ScheduledStep]:
    """The shortest schedule found from which no single step, and no end, can be removed without losing all violations.

    A replay takes the steps of a schedule that are possible, and then lets each actor run to its end, so fewer steps mean fewer
    decisions. At most `MAX_REPLAYS` schedules are tried.
    """
    best, replays = _failing(scenario, steps), 0
    if best is None:
        return list(steps)
    improves = True
    while improves:
        improves = False
        asked = best.asked
        shorter = [asked[:length] for length in range(len(asked))]
        shorter += [asked[:index] + asked[index + 1 :] for index in range(len(asked))]
        for candidate in shorter:
            if replays >= MAX_REPLAYS or not should_continue():
                return list(best.asked)
            replays += 1
            tried = _failing(scenario, candidate)
            if tried is not None and tried.cost < best.cost:
                best, improves = tried, True
                break
    return list(best.asked)


def _failing(scenario: Scenario, steps: Sequence[ScheduledStep]) -> _Tried | None:
    """The run of these steps if it ends with violations, otherwise None."""
    run = Run(scenario)
    for step in steps:
        if not run.violations and run.can_take(step):
            run.take(step)
    while not run.violations and not run.is_over:
        run.take(run.calls()[0])
    failed = bool(run.finish())
    run.discard()
    return _Tried(tuple(steps), tuple(run.steps)) if failed else None


def told(story: Story, scenario: Scenario, steps: Sequence[ScheduledStep], names: Sequence[str]) -> None:
    """Record the steps of a schedule in the story; looks of one actor that follow each other are one step."""
    run, rest, looking = Run(scenario), list(steps), ""
    while not run.violations and not run.is_over:
        step = rest.pop(0) if rest else run.calls()[0]
        if not run.can_take(step):
            continue
        call, name = run.roles[step.actor].pending, names[step.actor]
        was_there = call is not None and call.path in run.disk.files
        run.take(step)
        text = "" if call is None else f"{call.operation} {_file(call)}"
        if call is not None and not step.fault and call.operation in _LOOKS:
            if looking != name:
                what = "looks at the newest snapshot" if "/snapshot/" in call.path else f"reads {_file(call)}"
                story.record(name, what, call=text)
            else:
                story.called(name, text)
            looking = name
            continue
        looking = ""
        what, outcome, is_conflict = _words(run, call, was_there)
        fault = f"{FAULT_MEANING[step.fault]}: " if step.fault else ""
        story.record(name, f"{fault}{what}", outcome, call=text, is_conflict=is_conflict)
    run.finish()
    run.discard()


def sentence(step: StoryStep) -> str:
    """A step as one line of text."""
    return f"{step.who} {step.what}{f': {step.outcome}' if step.outcome else ''}"


def _file(call: StorageCall) -> str:
    return call.path.rpartition("/")[2]


def _words(run: Run, call: StorageCall | None, was_there: bool) -> tuple[str, str, bool]:
    """What a step does, its outcome, and whether it runs into the work of another actor."""
    if call is None:
        return "starts again", "", False
    if call.operation in _OF_LOCK:
        return _OF_LOCK[call.operation], "", False
    file = _file(call)
    if call.operation == "put_if_absent":
        is_there = run.disk.files.get(call.path) == call.arguments[0]
        return f"puts {file}", PUBLISHED if is_there else TAKEN, not is_there
    if call.operation == "overwrite":
        is_hint = file == "LATEST"
        return "writes the hint LATEST" if is_hint else f"writes {file}, whatever is there", "", was_there and not is_hint
    return f"deletes {file}" if call.operation == "delete" else f"calls {call.operation} {file}", "", False


_OF_LOCK = {LOCK: "takes the lock", UNLOCK: "gives the lock back", LOOK_AT_LOCK: "looks whether it still has the lock"}
