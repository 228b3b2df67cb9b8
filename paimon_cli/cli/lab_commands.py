"""`lab`: the documents' concurrency scenarios, reproduced step by step on the shipped code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli import lab_check_command
from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import ConflictGranularity
from paimon_cli.cli.results import Column, Listing, OutputFormat
from paimon_cli.cli.value_kinds import FLAG, ID, NAMES, records

if TYPE_CHECKING:
    from paimon_cli.lab.story import Story

lab = group("Concurrency scenarios, reproduced step by step with the data conflict check off and on.")

CASE_COLUMNS = (Column("name", "Case"), Column("title", "What happens"), Column("anomaly", "Anomaly without check"))
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


@command(lab, "run")
def run_lab_case(
    call: Call,
    case: Annotated[str, typer.Argument(metavar="CASE", help="Name of a case, see `lab ls`.", show_default=False)],
    data_conflict_check: Annotated[
        ConflictGranularity | None,
        typer.Option("--data-conflict-check", help="Run with this granularity only; else with off and with bucket."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Decides who goes first where a case leaves it open.")] = 0,
) -> None:
    """Run a case and tell what happened; the same case and seed always tell the same."""
    from paimon_cli.lab.case_catalog import BOTH, run_case

    stories = run_case(case, BOTH if data_conflict_check is None else (data_conflict_check.value,), seed)
    if call.output is not OutputFormat.TABLE:
        call.show(Listing("LabStoryList", None, STORY_COLUMNS, stories))
        return
    for story in stories:
        call.show(Listing("LabStory", None, STEP_COLUMNS, story.steps, _heading(story), _footer(story)))


lab_check_command.register(lab)


def _heading(story: Story) -> str:
    return f"{story.case}   data conflict check: {' or '.join(story.checks)}   store: {story.store}"


def _footer(story: Story) -> str:
    lines = [f"readers see: {'; '.join(story.rows)}"] if story.rows else []
    lines += [f"check finds: {violation}" for violation in story.violations]
    return "\n".join([*lines, f"{'correct' if story.is_correct else 'ANOMALY'}: {story.verdict}\n"])
