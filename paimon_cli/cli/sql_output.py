"""What statements of SQL answer, as the commands that do the same show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from paimon_cli.cli.drop_commands import emptied_text
from paimon_cli.cli.output import Item, OutputFormat
from paimon_cli.cli.results import counted, note_waiting, on_stderr, ran, say
from paimon_cli.cli.row_output import print_rows
from paimon_cli.cli.sql_interrupt import stopping_queries
from paimon_cli.cli.update_commands import changed_text, note_changed
from paimon_cli.cli.write_command import written_text
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.sql.statements import statements_of

if TYPE_CHECKING:
    from paimon_cli.api.sql_result import SqlResult
    from paimon_cli.api.sql_session import SqlSession
    from paimon_cli.cli.command import Call
    from paimon_cli.jobs.merge_job import MergeSummary


def text_of_file(path: str) -> str:
    """The statements of a file. Raises `NotFound`, and `UsageError` if it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig") as stream:
            return stream.read()
    except FileNotFoundError as error:
        raise NotFound(f"no file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}", getattr(error, "strerror", None) or str(error)) from error


def run_script(call: Call, session: SqlSession, text: str) -> None:
    """Run the statements, and show what each answers.

    Lines of several statements would not be told apart (`-o csv`, `-o ndjson`): then stdout has only the rows of queries, and
    stderr what the others have changed.
    """
    has_lines = call.output in (OutputFormat.CSV, OutputFormat.NDJSON)
    tell = on_stderr if has_lines and len(statements_of(text)) > 1 else None
    with stopping_queries(session.context):
        try:
            session.run(text, lambda result: show_result(call, result, tell))
        except KeyboardInterrupt as interrupt:
            if interrupt.args:
                on_stderr(interrupt.args[0])
            raise


def show_result(call: Call, result: SqlResult, tell: Callable[[str], None] | None) -> None:
    """Show the rows of a query, or what was changed as the command that does the same shows it; `tell`: as a text for people."""
    if result.is_text and call.is_for_people:
        for batch in result.rows():
            for text in batch.columns[-1].to_pylist():
                say(text)
        return
    if result.is_query:
        print_rows(result, None, call)
        return
    text, kind = _text_of(result)
    if tell is not None:
        tell(text)
    elif kind is not None:
        call.show(Item(kind, result.table, result.summary), text)
    elif call.is_for_people:
        say(text)
    else:
        print_rows(result, result.table, call)
    if (waiting := getattr(result.summary, "waiting_records", 0)) != 0:
        note_waiting(call.pasted(result.table or ""), waiting)


def _text_of(result: SqlResult) -> tuple[str, str | None]:
    """The text for people, and the kind of the summary; None for a statement that has none."""
    kind, summary = type(result.summary).__name__, result.summary
    if kind == "WriteSummary":
        created = f"created {result.table}; " if result.verb == "created" else ""
        return f"{created}{written_text(summary)}", kind
    if kind == "MergeSummary":
        note_changed(summary, "changed")
        return merged_text(summary), kind
    if kind == "UpdateSummary":
        done = "deleted" if result.verb == "deleted" else "changed"
        note_changed(summary, done)
        return changed_text(summary, done), "DeleteSummary" if done == "deleted" else kind
    if kind == "Dropped":
        return emptied_text(summary, False), "DropSummary"
    if kind in ("TableDropped",):
        return f"dropped table {result.table}", "TableDropSummary"
    if result.verb == "existed":
        return f"{result.table} already exists, nothing was changed", None
    if result.verb == "not there":
        return f"{result.table} does not exist, nothing was changed", None
    return f"{result.verb} {result.table}", None


def merged_text(summary: MergeSummary) -> str:
    if not summary.snapshots:
        return "no row of the source changes the table, nothing was committed"
    ids = ", ".join(str(snapshot.id) for snapshot in summary.snapshots)
    rows = f"{counted(summary.inserted, 'row')} inserted, {summary.updated:,} updated, {summary.deleted:,} deleted"
    effort = f"{counted(summary.attempts, 'attempt')}, {counted(summary.conflicts, 'conflict')}"
    return f"snapshot {ids}: {rows} in {counted(summary.buckets, 'bucket')}, {effort}, {ran(summary)}"
