"""`lab`: concurrency scenarios and interleavings, reproduced step by step with the shipped code."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import ConflictGranularity, Given
from paimon_cli.cli.results import say
from paimon_cli.cli.terminal import progress_on_stderr
from paimon_cli.errors import FINDINGS_EXIT_CODE, UsageError
from paimon_cli.options.option_text import counted
from paimon_cli.requests.fields import flag
from paimon_cli.requests.lab import CheckOptions, GranularityOptions

if TYPE_CHECKING:
    from paimon_cli.lab.story import Story


lab = group("Concurrency scenarios, reproduced step by step with the data conflict check off and on.")


GRANULARITY = "granularity"


@command(lab, "ls")
def list_cases(call: Call) -> None:
    """List the cases and the options of `lab run` that each of them honours.

    paimon-cli lab ls

    paimon-cli lab ls -o json
    """
    from paimon_cli.lab.case_catalog import CASES, Case

    call.show(Listing("LabCaseList", None, Case, CASES))


@command(lab, "explain")
def explain_lab_case(
    call: Call,
    case: Annotated[str, typer.Argument(metavar="CASE", help="Name of a case, see `lab ls`.", show_default=False)],
) -> None:
    """Explain the mechanism of a case, and what Delta Lake, Hudi and Iceberg do about it.

    paimon-cli lab explain lost-update-counter

    paimon-cli lab explain merge-disorder -o json
    """
    from paimon_cli.lab.case_catalog import explain_case

    explained = explain_case(case)
    if not call.is_for_people:
        call.show(Item("LabExplanation", None, explained))
        return
    say(f"{explained.case}: {explained.title}\n")
    say(textwrap.fill(explained.theory, PARAGRAPH) + "\n")
    elsewhere = (("Delta Lake", explained.delta_lake), ("Hudi", explained.hudi), ("Iceberg", explained.iceberg))
    for name, counterpart in elsewhere:
        say(textwrap.fill(counterpart, PARAGRAPH, initial_indent=f"{name:<12}", subsequent_indent=" " * 12))
    say(f"\nsee it: paimon-cli lab run {explained.case}    # options: {', '.join(explained.honours)}")


PARAGRAPH = 100
"""The width of paragraphs in columns."""

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
    int | None, typer.Option("--seed", metavar="N", help="Seed for random choices of a case, such as which writer starts.")
]
Html = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write one HTML page to this file or URL: a lane for each actor, its storage calls in order, conflicts in red.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file of --html if it exists.")]


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
    html: Html = None,
    force: Force = False,
) -> None:
    """Run a case with the shipped code and show its steps. The same case and options always give the same result.

    `lab ls` lists the options that each case accepts; `lab explain CASE` says why it happens. --option sets options of
    the case's table.

    paimon-cli lab run topology-1 --writers 8 --rounds 5 --seed 3

    paimon-cli lab run lost-update-counter

    paimon-cli lab run lost-deletion-vectors --html story.html
    """
    from paimon_cli.lab.case_catalog import BOTH, explain_case, run_case
    from paimon_cli.lab.story import Story, StoryStep
    from paimon_cli.lab.story_page import stories_file

    _refuse_catalog_options(call)
    _check_force(html, force)
    if case == GRANULARITY:
        if html is not None:
            raise UsageError("--html with the case granularity", "it has no steps", "remove --html")
        if data_conflict_check is not None:
            hint = "paimon-cli lab granularity"
            raise UsageError("--data-conflict-check with the case granularity", "it compares all of them", hint)
        given = {"writers": writers, "rounds": rounds, "seed": seed}
        compare(call, options={name: value for name, value in given.items() if value is not None})
        return
    checks = BOTH if data_conflict_check is None else (data_conflict_check,)
    run = functools.partial(run_case, case, checks, seed, writers, rounds, call.options)
    if html is not None:
        explained = explain_case(case)
        from paimon_cli.cli.lab_search import wrote

        with stories_file(html, replace=force) as write:
            written = write(f"{explained.case}: {explained.title}", explained.theory, run())
        call.show(Item("LabPage", None, written), wrote(written))
        return
    stories = run()
    if not call.is_for_people:
        call.show(Listing("LabStoryList", None, Story, stories))
        return
    for story in stories:
        call.show(Listing("LabStory", None, StoryStep, story.steps, _heading(story), _footer(story)))


@command(lab, GRANULARITY)
def compare(call: Call, *, options: Annotated[Given, GranularityOptions]) -> None:
    """Compare the granularities of the data conflict check by abort rates and lost updates, on the same workload.

    In each round every writer reads some counters, increments them and commits; refused commits are not retried.

    paimon-cli lab granularity --writers 8 --rounds 3

    paimon-cli lab granularity --writers 4 --rounds 3 -o csv
    """
    from paimon_cli.lab.granularity import GranularityRow, compare_granularities
    from paimon_cli.lab.lab_table import LabSetting

    _refuse_catalog_options(call)
    shape = GranularityOptions(**options)
    progress = progress_on_stderr()
    progress.start("Rounds", len(get_args(ConflictGranularity)) * shape.rounds)
    try:
        rows = compare_granularities(shape, LabSetting(seed=shape.seed, options=call.options), progress.advance)
    finally:
        progress.finish()
    where = f"{shape.keys} counters in 2 partitions of {counted(shape.buckets, 'bucket')}"
    heading = f"{shape.writers} writers, {shape.rounds} rounds, {where}, {shape.keys_per_commit} per commit"
    call.show(Listing("LabGranularityList", None, GranularityRow, rows, heading, GRANULARITY_FOOTER))


GRANULARITY_FOOTER = "needlessly: refused although no common counter changed; lost updates: committed increments that are missing"


def _refuse_catalog_options(call: Call) -> None:
    for key in call.catalog_options:
        raise UsageError(f"--option {key} is not supported here", "the tables of the lab have no catalog", "remove the option")


def _check_force(html: str | None, force: bool) -> None:
    if force and html is None:
        raise UsageError("--force without --html", "it replaces the file of --html", "remove --force")


def _heading(story: Story) -> str:
    title = f"{story.case}   data conflict check: {' or '.join(story.checks)}   store: {story.store}"
    return "\n".join([title, *_drawn("before", story.bucket_before)])


def _drawn(when: str, bucket: Sequence[str]) -> list[str]:
    return [f"the bucket {when} (marked rows in brackets):", *(f"  {line}" for line in bucket)] if bucket else []


def _footer(story: Story) -> str:
    lines = _drawn("after", story.bucket_after)
    lines += [f"readers see: {'; '.join(story.rows)}"] if story.rows else []
    lines += [f"check finds: {violation}" for violation in story.violations]
    return "\n".join([*lines, f"{'correct' if story.is_correct else 'ANOMALY'}: {story.verdict}\n"])


@command(lab, "check")
def check_lab(
    call: Call,
    *,
    options: Annotated[Given, CheckOptions],
    replay: Annotated[
        str | None, typer.Option(metavar="SCHEDULE", help="Run this one schedule and show its steps.", show_default=False)
    ] = None,
    html: Html = None,
    force: Force = False,
) -> None:
    """Explore the interleavings of concurrent actors on one table, with the shipped commit code on a simulated store.

    Every storage call that other actors can observe is a step; schedules that lead to the same state are explored once.
    With put-if-absent or the lock, no violations are expected, unless actors share rows (rival, counter, overwriter,
    deleter, restorer) and the data conflict check is off. Each violation is printed with the command that replays it.
    Exits with 4 on violations, even if they are expected.

    paimon-cli lab check --actors writer,writer --store unsafe

    paimon-cli lab check --actors counter,counter --minimize --html find.html

    paimon-cli lab check --actors marker,compactor,expirer --seed 1 --schedules 50
    """
    from paimon_cli.cli.lab_search import show_search
    from paimon_cli.lab.interleavings import CheckRequest

    if call.catalog_options:
        raise UsageError(
            f"--option {next(iter(call.catalog_options))} is not supported here", "the simulated table has no catalog"
        )
    request = CheckRequest(**options, options=call.options)
    _check_force(html, force)
    if replay is not None:
        for name in ("depth", "schedules", "seed", "finds", "time_limit", "minimize"):
            if name in options:
                why = "a replay runs one schedule"
                raise UsageError(f"{flag(name)} cannot be combined with --replay", why, "remove one of them")
    elif html is not None and not request.minimize:
        raise UsageError("--html needs --minimize or --replay", "other finds have too many steps for a page", "add --minimize")
    if show_search(call, request, replay, html, force=force):
        raise typer.Exit(FINDINGS_EXIT_CODE)
