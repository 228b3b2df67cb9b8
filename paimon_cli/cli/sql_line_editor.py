"""The line editor of the SQL shell: lines until a semicolon, a history, and completion of keywords, tables and columns."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import has_completions, is_searching
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from paimon_cli.errors import PaimonError

if TYPE_CHECKING:
    from paimon_cli.api.sql_context import SqlContext

KEYWORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "ORDER",
    "LIMIT",
    "JOIN",
    "LEFT",
    "ON",
    "USING",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "NULL",
    "LIKE",
    "BETWEEN",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "WITH",
    "DISTINCT",
    "COUNT",
    "SUM",
    "MIN",
    "MAX",
    "AVG",
    "INSERT",
    "INTO",
    "OVERWRITE",
    "VALUES",
    "UPDATE",
    "SET",
    "DELETE",
    "MERGE",
    "MATCHED",
    "TRUNCATE",
    "CREATE",
    "TABLE",
    "DATABASE",
    "IF",
    "EXISTS",
    "PRIMARY",
    "KEY",
    "PARTITIONED",
    "DROP",
    "ALTER",
    "ADD",
    "COLUMN",
    "RENAME",
    "SHOW",
    "TABLES",
    "DATABASES",
    "DESCRIBE",
    "USE",
    "EXPLAIN",
    "OVER",
    "PARTITION",
    "HAVING",
]
DOT_COMMANDS = (".help", ".mode", ".quit", ".read", ".tables", ".timer")
_WORD = re.compile(r"[\w.$]*$")
_TABLE = re.compile(r"\b(?:from|join|into|update|table|describe|overwrite|using)\s+([\w.$]+)", re.IGNORECASE)
_KEPT_SECONDS = 30.0


class SqlCompleter(Completer):
    """Completes from what the catalog says now; names are asked for again after a while. Errors give no choices."""

    def __init__(self, context: SqlContext) -> None:
        self._context = context
        self._kept: dict[str, tuple[float, list[str]]] = {}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        found = _WORD.search(text)
        word = found[0] if found else ""
        if text.lstrip().startswith("."):
            names: list[str] = (
                [command for command in DOT_COMMANDS if command.startswith(text.strip())] if " " not in text else []
            )
        else:
            names = [*self._columns(document.text), *self._tables()] + ([] if "." in word else list(KEYWORDS))
        for name in dict.fromkeys(names):
            if name.lower().startswith(word.lower()) and word:
                yield Completion(name, start_position=-len(word))

    def _tables(self) -> list[str]:
        return self._known("", self._all_tables)

    def _all_tables(self) -> list[str]:
        metastore, database = self._context.catalog._metastore, self._context.database
        found = [table.identifier for row in metastore.databases(_leave_out) for table in metastore.tables(row.name, _leave_out)]
        return [*(str(one) for one in found), *(one.table for one in found if one.database == database)]

    def _columns(self, text: str) -> list[str]:
        tables = dict.fromkeys(_TABLE.findall(text))
        return [column for table in tables for column in self._known(table, lambda table=table: self._columns_of(table))]  # type: ignore[misc]

    def _columns_of(self, table: str) -> list[str]:
        return list(self._context.table(table.split(".")).context.schema.field_names)

    def _known(self, name: str, find: Callable[[], list[str]]) -> list[str]:
        """What was found lately for this name."""
        key, now = f"{self._context.database}/{name}", time.monotonic()
        if key not in self._kept or now - self._kept[key][0] > _KEPT_SECONDS:
            try:
                self._kept[key] = (now, find())
            except (PaimonError, OSError):
                self._kept[key] = (now, [])
        return self._kept[key][1]


def _leave_out(damage: PaimonError) -> None:
    """What is damaged in the catalog completes nothing."""


def line_editor(
    context: SqlContext, history: Path | None, prompts: tuple[str, str], is_finished: Callable[[str], bool], **streams: Any
) -> Callable[[], str]:
    """A function that reads lines until they are finished. Raises `EOFError` at the end, and `KeyboardInterrupt`."""
    keys = KeyBindings()

    @keys.add("enter", filter=~is_searching & ~has_completions)
    def run_or_continue(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    kept: History = InMemoryHistory() if history is None else FileHistory(str(history))
    session: PromptSession[str] = PromptSession(
        prompts[0],
        history=kept,
        completer=ThreadedCompleter(SqlCompleter(context)),
        complete_while_typing=False,
        multiline=True,
        key_bindings=keys,
        prompt_continuation=lambda width, number, wraps: prompts[1],
        enable_history_search=True,
        **streams,
    )
    return session.prompt
