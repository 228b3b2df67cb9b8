"""Scripts of SQL: statements that run one after the other, each as one commit. `USE` holds for those after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paimon_cli.api.sql_changes import delete, insert, truncate, update
from paimon_cli.api.sql_context import SqlContext, SqlTables
from paimon_cli.api.sql_definition import alter, create, described, drop, show, use
from paimon_cli.api.sql_merge import merge
from paimon_cli.api.sql_result import SqlResult, snapshots_of
from paimon_cli.errors import NotSupported, PaimonError, UsageError
from paimon_cli.requests.conditions import Params
from paimon_cli.sql.changes import read_delete, read_insert, read_merge, read_truncate, read_update
from paimon_cli.sql.statement_text import parameters_of
from paimon_cli.sql.statements import Statement, Words, statements_of

_ONE_COMMIT = ("each statement is one commit", "several changes of a table as one commit: `with table.transaction()` in Python")
_TABLES_ONLY = ("a query reads tables; nothing else is attached, loaded or set", "")
NOT_RUN = {
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK", "ABORT", "SAVEPOINT", "END"), _ONE_COMMIT),
    **dict.fromkeys(
        ("ATTACH", "DETACH", "INSTALL", "LOAD", "SET", "RESET", "PRAGMA", "CALL", "IMPORT", "DEALLOCATE"), _TABLES_ONLY
    ),
    **dict.fromkeys(("PREPARE", "EXECUTE"), ("statements are not prepared", "values of parameters: --param id=7 for :id")),
    "COPY": ("a statement writes no files", "the command `sql` prints files with -o csv, `read` writes them with --output-path"),
    "EXPORT": ("a statement writes no files", "the command `read` writes files with --output-path"),
    "VACUUM": (
        "snapshots expire by a command",
        "the command `expire` removes old snapshots for good; it shows them with --dry-run",
    ),
    "RESTORE": (
        "tables are set back by a command",
        "the command `rollback`; or INSERT OVERWRITE t FROM t AT (VERSION => 3)",
    ),
    "CHECKPOINT": ("each commit is durable", ""),
    "OPTIMIZE": ("tables are compacted by a command", "the command `compact`"),
    "ANALYZE": ("statistics are not stored", "the command `describe` tells what a table holds"),
    "REPLACE": ("in a table with a primary key, INSERT replaces the row with the same key", "INSERT INTO ..."),
    "UPSERT": ("in a table with a primary key, INSERT replaces the row with the same key", "INSERT INTO ..."),
    **dict.fromkeys(("GRANT", "REVOKE", "COMMENT", "REFRESH", "CACHE", "UNCACHE", "MSCK", "REPAIR"), ("it is not supported", "")),
}
"""Statements of others that are not run, with the reason and what to do."""
NOTHING_DONE = ("used", "existed", "not there", "unchanged")
"""What statements say that have changed nothing."""
_QUERIES = ("SELECT", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "(")


class SqlSession:
    """Runs scripts over the tables of a catalog.

    `params`: values of parameters such as `:id`. `confirm`: asked with what a statement would delete, before it does.
    """

    def __init__(
        self,
        catalog: SqlTables,
        *,
        params: Mapping[str, Any] | None = None,
        allow_files: bool = False,
        confirm: Callable[[str], None] | None = None,
    ) -> None:
        self.context = SqlContext(catalog, Params().parse(params), allow_files, confirm)

    def last(self, script: str) -> SqlResult:
        """Run a script, and return what its last statement answers; the rows of queries before it are read and dropped."""
        results: list[SqlResult] = []

        def keep(result: SqlResult) -> None:
            results.append(result)

        def before_next() -> None:
            if results and results[-1].is_query:
                for _ in results[-1].rows():
                    pass

        self.run(script, keep, before_next)
        return results[-1]

    def run(self, script: str, show: Callable[[SqlResult], None], before_next: Callable[[], None] | None = None) -> None:
        """Run all statements, and hand what each answers to `show`. After an error the statements behind it are not run.

        `before_next`: reads the rest of an answer before the next statement may change what it reads; an error in it is one of
        the statement that answered.

        Raises the error of the statement, which says what was committed before.
        """
        statements = statements_of(script)
        if not statements:
            raise UsageError("there is no statement", "the SQL is empty")
        self._check_params(statements)
        done: list[tuple[int, SqlResult]] = []
        for number, statement in enumerate(statements, 1):
            try:
                result = self.execute(statement)
                if result.verb not in ("", *NOTHING_DONE):
                    done.append((number, result))
                show(result)
                if before_next is not None and number < len(statements):
                    before_next()
            except RuntimeError as error:  # DuckDB has noticed the interrupt before Python
                if not self.context.was_interrupted:
                    raise
                interrupt = KeyboardInterrupt()
                _say_what_is_done(interrupt, number, statements, done)
                raise interrupt from error
            except (PaimonError, KeyboardInterrupt) as error:
                if isinstance(error, UsageError) and (missing := self._without_value(statement)) is not None:
                    error.set_hint(f"if :{missing} is a parameter, give it a value: --param {missing}=VALUE")
                _say_what_is_done(error, number, statements, done)
                raise

    def _check_params(self, statements: Sequence[Statement]) -> None:
        used = {name for statement in statements for _, name in parameters_of(statement.words())}
        if unused := sorted(self.context.params.keys() - used):
            raise UsageError(
                f"the SQL has no parameter :{unused[0]}", "a value is given for it", "leave out the value, or write it as :name"
            )

    def _without_value(self, statement: Statement) -> str | None:
        """What may be a parameter, and has no value."""
        names = (name for _, name in parameters_of(statement.words()))
        return next((name for name in names if name not in self.context.params), None)

    def execute(self, statement: Statement) -> SqlResult:
        """Run one statement."""
        words = statement.words()
        self.context.written = statement.text
        run = self._change(words)
        if run is not None:
            return run
        if words.accept("SHOW"):
            return show(self.context, words)
        if words.accept("DESCRIBE") or words.accept("DESC"):
            return described(self.context, words)
        for word, statement_of in _DEFINITIONS.items():
            if words.accept(word):
                return statement_of(self.context, words)
        if words.peeks("EXPLAIN"):
            return self._explained(words)
        for word, (why, hint) in NOT_RUN.items():
            if words.peeks(word):
                raise NotSupported(f"the statement {word}", why, hint)
        rest = words.rest
        return self.context.query(self.context.duckdb_text(rest), self.context.values_in(rest))

    def _change(self, words: Words) -> SqlResult | None:
        """Run a statement that changes rows; None if it is another one."""
        preamble = None
        if words.peeks("WITH"):
            preamble = words.rest.until(("INSERT",), ("UPDATE",), ("DELETE",), ("MERGE",), ("SELECT",), ("FROM",), ("VALUES",))
            words = words.rest.after(preamble)
        context = self.context
        if words.accept("INSERT"):
            return insert(context, read_insert(words, preamble))
        if words.accept("UPDATE"):
            return update(context, read_update(words, preamble))
        if words.accept("DELETE"):
            return delete(context, read_delete(words, preamble))
        if words.accept("MERGE"):
            return merge(context, read_merge(words, preamble))
        if preamble is None and words.accept("TRUNCATE"):
            return truncate(context, read_truncate(words))
        return None

    def _explained(self, words: Words) -> SqlResult:
        words.expect("EXPLAIN")
        if words.peeks("(", "FORMAT") or words.peeks("(", "ANALYZE"):
            raise NotSupported(
                f"EXPLAIN {words.rest.first(2).text} ...)", "a plan is shown as text", "EXPLAIN or EXPLAIN ANALYZE"
            )
        analyze = words.accept("ANALYZE")
        rest = words.rest
        if not any(rest.peeks(word) for word in (*_QUERIES, "WITH")):
            raise NotSupported("EXPLAIN of a change", "only queries have a plan", "EXPLAIN SELECT ... with the same condition")
        text, values = self.context.duckdb_text(rest), self.context.values_in(rest)
        return self.context.query(text, values, explain="EXPLAIN ANALYZE" if analyze else "EXPLAIN")


_DEFINITIONS: dict[str, Callable[[SqlContext, Words], SqlResult]] = {"USE": use, "CREATE": create, "DROP": drop, "ALTER": alter}


def _say_what_is_done(
    error: PaimonError | KeyboardInterrupt, number: int, statements: Sequence[Statement], done: Sequence[tuple[int, SqlResult]]
) -> None:
    """Let the error of one of several statements say which it was, which were committed before, and which did not run."""
    if len(statements) == 1:
        return
    committed, texts = [], []
    for place, result in done:
        snapshots = snapshots_of(result.summary)
        committed.append({"statement": place, "done": result.verb, "table": result.table, "snapshots": snapshots})
        at = f", snapshot {', '.join(map(str, snapshots))}" if snapshots else ""
        texts.append(f"{place} ({result.verb}, {result.table}{at})")
    rest = list(range(number + 1, len(statements) + 1))
    facts = {"statement": number, "line": statements[number - 1].line, "committed": committed, "not_run": rest}
    line = f"in statement {number} of {len(statements)}, line {facts['line']}: {statements[number - 1].shown}"
    line += f"\ncommitted before: {', '.join(texts) if texts else 'nothing'}"
    line += f"; not run: {', '.join(map(str, rest)) if rest else 'none'}"
    if isinstance(error, PaimonError):
        error.details |= facts
        error.extend_why(line)
    else:
        error.args = (line,)
