"""`lab`: concurrency scenarios, reproduced step by step with the shipped code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli import lab_check_command
from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import ConflictGranularity
from paimon_cli.cli.results import Column, Listing, OutputFormat
from paimon_cli.cli.value_kinds import COUNT, FLAG, ID, NAMES, Kind, records
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.lab.story import Story

lab = group("Concurrency scenarios, reproduced step by step with the data conflict check off and on.")

PERCENT = Kind(lambda share: share, lambda share: f"{100 * share:.1f}%", right_aligned=True)

CASE_COLUMNS = (
    Column("name", "Case"),
    Column("title", "What happens"),
    Column("anomaly", "Anomaly without check"),
    Column("writers", "Writers", COUNT),
    Column("rounds", "Rounds", COUNT),
    Column("honours", None, NAMES),
)
GRANULARITY = "granularity"
GRANULARITY_COLUMNS = (
    Column("granularity", "Granularity"),
    Column("commits", "Commits", COUNT),
    Column("refused", "Refused", COUNT),
    Column("abort_rate", "Abort rate", PERCENT),
    Column("needless", "Needlessly", COUNT),
    Column("lost_updates", "Lost updates", COUNT),
)
STEP_NAMES = ("step", "who", "what", "outcome")
STEP_COLUMNS = (Column("step", "Step", ID), Column("who", "Who"), Column("what", "What"), Column("outcome", "Outcome"))
STORY_COLUMNS = (
    Column("case"),
    Column("checks", None, NAMES),
    Column("store"),
    Column("is_correct", None, FLAG),
    Column("verdict"),
    Column("rows", None, NAMES),
    Column("violations", None, NAMES),
    Column("steps", None, records(*STEP_NAMES)),
)


@command(lab, "ls")
def list_cases(call: Call) -> None:
    """List the cases."""
    from paimon_cli.lab.case_catalog import CASES

    call.show(Listing("LabCaseList", None, CASE_COLUMNS, CASES))


Writers = Annotated[
    int | None,
    typer.Option(
        "--writers",
        metavar="N",
        min=1,
        max=26,
        help="Number of concurrent writers; default that of the case.",
        show_default=False,
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds", metavar="N", min=1, max=1000, help="Rounds of writes; default that of the case.", show_default=False
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="Seed of the choices that a case leaves open, such as who goes first.")
]


@command(lab, "run")
def run_lab_case(
    call: Call,
    case: Annotated[str, typer.Argument(metavar="CASE", help="Name of a case, see `lab ls`.", show_default=False)],
    data_conflict_check: Annotated[
        ConflictGranularity | None,
        typer.Option("--data-conflict-check", help="Run with this granularity only; default off and bucket."),
    ] = None,
    writers: Writers = None,
    rounds: Rounds = None,
    seed: Seed = None,
) -> None:
    """Run a case with the shipped code and show what happened. The same case and options always give the same story.

    `lab ls -o json` lists the options of each case; others are errors. --option sets options of the case's table.

    paimon-cli lab run topology-1 --writers 8 --rounds 5 --seed 3
    """
    from paimon_cli.lab.case_catalog import BOTH, run_case

    _refuse_catalog_options(call)
    if case == GRANULARITY:
        if data_conflict_check is not None:
            hint = "paimon-cli lab granularity"
            raise UsageError("--data-conflict-check with the case granularity", "it compares all of them", hint)
        compare(call, writers=writers or DEFAULT_WRITERS, rounds=rounds or DEFAULT_ROUNDS, seed=seed or 0)
        return
    checks = BOTH if data_conflict_check is None else (data_conflict_check.value,)
    stories = run_case(case, checks, seed, writers, rounds, call.options)
    if call.output is not OutputFormat.TABLE:
        call.show(Listing("LabStoryList", None, STORY_COLUMNS, stories))
        return
    for story in stories:
        call.show(Listing("LabStory", None, STEP_COLUMNS, story.steps, _heading(story), _footer(story)))


DEFAULT_WRITERS, DEFAULT_ROUNDS, DEFAULT_KEYS, DEFAULT_TOUCHED = 4, 10, 80, 2


@command(lab, GRANULARITY)
def compare(
    call: Call,
    writers: Annotated[int, typer.Option(metavar="N", min=1, max=26, help="Number of concurrent writers.")] = DEFAULT_WRITERS,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Rounds of writes.")] = DEFAULT_ROUNDS,
    keys: Annotated[int, typer.Option(metavar="N", min=2, help="Counters, in two partitions of two buckets.")] = DEFAULT_KEYS,
    keys_per_commit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Neighbouring counters that each commit raises.")
    ] = DEFAULT_TOUCHED,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the choice of counters and of the order of the commits.")] = 0,
) -> None:
    """Compare the granularities of the data conflict check: abort rates and lost updates of the same read-modify-writes.

    In each round every writer reads some counters of a table, raises them by one and commits; refused commits are not retried.

    paimon-cli lab granularity --writers 8 --keys 200
    """
    from paimon_cli.cli.progress_bar import progress_on_stderr
    from paimon_cli.lab.granularity import GranularityShape, compare_granularities
    from paimon_cli.lab.lab_table import LabSetting

    _refuse_catalog_options(call)
    progress = progress_on_stderr()
    progress.start("Rounds", len(ConflictGranularity) * rounds)
    try:
        shape = GranularityShape(writers, rounds, keys, keys_per_commit)
        rows = compare_granularities(shape, LabSetting(seed=seed, options=call.options), progress.advance)
    finally:
        progress.finish()
    heading = f"{writers} writers, {rounds} rounds, {keys} counters in 2 partitions of 2 buckets, {keys_per_commit} per commit"
    call.show(Listing("LabGranularityList", None, GRANULARITY_COLUMNS, rows, heading, GRANULARITY_FOOTER))


GRANULARITY_FOOTER = "needlessly: refused without a change to the same counter; lost updates: acknowledged but not counted"


def _refuse_catalog_options(call: Call) -> None:
    for key in call.catalog_options:
        raise UsageError(f"--option {key} is not supported here", "the tables of the lab have no catalog", "leave it out")


lab_check_command.register(lab)


def _heading(story: Story) -> str:
    return f"{story.case}   data conflict check: {' or '.join(story.checks)}   store: {story.store}"


def _footer(story: Story) -> str:
    lines = [f"readers see: {'; '.join(story.rows)}"] if story.rows else []
    lines += [f"check finds: {violation}" for violation in story.violations]
    return "\n".join([*lines, f"{'correct' if story.is_correct else 'ANOMALY'}: {story.verdict}\n"])
