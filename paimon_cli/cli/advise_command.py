"""`advise`: what a table's own history says about its buckets, files, options and compaction, with the command for it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.messages import say
from paimon_cli.cli.parameters import TableName
from paimon_cli.cli.progress_bar import progress_on_stderr
from paimon_cli.cli.results import Column, Listing, OutputFormat
from paimon_cli.cli.value_kinds import JSON, counted

if TYPE_CHECKING:
    from paimon_cli.lsm.compaction_simulation import OnCommit

COLUMNS = (
    Column("topic", "Topic"),
    Column("severity", "Severity"),
    Column("code", "Code"),
    Column("subject", "Subject"),
    Column("message", "Finding"),
    Column("command", "Command"),
    Column("figures", None, JSON),
)


class Topic(str, enum.Enum):
    """Choices of `--only`."""

    BUCKETS = "buckets"
    SMALL_FILES = "small-files"
    OPTIONS = "options"
    COMPACTION = "compaction"


def register(app: typer.Typer, panel: str) -> None:
    command(app, "advise", rich_help_panel=panel)(advise)


def advise(
    call: Call,
    table: TableName,
    only: Annotated[list[Topic] | None, typer.Option("--only", help="Only this topic; repeatable.", show_default=False)] = None,
) -> None:
    """Suggest changes from the table's own history: number of buckets, small files, options, compaction triggers.

    Each suggestion shows its figures and the command that carries it out. Nothing is changed, and advice is not a failure:
    the exit code is 0 (`doctor` exits with 4 on findings). Triggers are compared by replaying the commits still in the history.

    paimon-cli advise ./wh/shop.db/orders --only buckets
    """
    from paimon_cli.cli.text_view import wrapped
    from paimon_cli.table.advice_rules import TOPICS, Case
    from paimon_cli.table.advice_rules import advise as advice_of

    case, progress = Case(call.open(table).context, call.pasted(table)), progress_on_stderr()

    def on_scenario(number: int, count: int) -> OnCommit:
        progress.start(f"Simulating compaction options, {number} of {count}", None)
        return progress.advance

    case.on_scenario = on_scenario
    try:
        found = advice_of(case, [topic.value for topic in only] if only else TOPICS)
    finally:
        progress.finish()
    if call.output is not OutputFormat.TABLE:
        call.show(Listing("AdviceList", table, COLUMNS, found))
        return
    topic = ""
    for advice in found:
        if advice.topic != topic:
            topic = advice.topic
            say(topic)
        say(wrapped(f"  {advice.severity:<7}  {advice.subject}: {advice.message}", indent=11))
        if advice.command:
            say(f"           run: {advice.command}")
    todo = sum(bool(advice.command) for advice in found)
    say(f"{counted(todo, 'suggestion')}; nothing was changed" if todo else "no suggestions")
