"""What the statements of a script share: the tables, the database that USE has chosen, the values of parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from paimon_cli.api.sql_query import OpenTable, Query, Wrap, run_query
from paimon_cli.api.sql_result import SqlResult
from paimon_cli.sql.statement_text import duckdb_text, parameters_of
from paimon_cli.sql.statements import Words

if TYPE_CHECKING:
    from paimon_cli.api.maintenance import Planned
    from paimon_cli.api.runtime import Runtime
    from paimon_cli.api.table import Table


class SqlTables(Protocol):
    """What statements need of a `Catalog`."""

    runtime: Runtime

    @property
    def _metastore(self) -> Any: ...
    def table(self, name: str) -> Table: ...
    def plan_drop_table(self, name: str, *, purge: bool = False) -> Planned[Any, Any]: ...
    def plan_drop_database(self, name: str, *, cascade: bool = False, purge: bool = False) -> Planned[Any, Any]: ...
    def create_database(self, name: str, *, if_not_exists: bool = False) -> bool: ...
    def rename_table(self, old: str, new: str) -> None: ...
    def _create_defined(self, name: str, definition: Any) -> bool: ...


@dataclass
class SqlContext:
    """`confirm`: asked with what a statement would delete, before it does; it raises `Refused`, or returns."""

    catalog: SqlTables
    params: Mapping[str, Any] = field(default_factory=dict)
    allow_files: bool = False
    confirm: Callable[[str], None] | None = None
    database: str | None = None
    written: str = ""
    """The statement that runs, as the user wrote it."""
    was_interrupted: bool = False
    """Whether `interrupt` was called; DuckDB then raises a `RuntimeError`, or Python a `KeyboardInterrupt`."""
    _stop: Callable[[], None] | None = field(default=None, repr=False)
    """Stops the query that was begun last."""

    def interrupt(self) -> None:
        """Stop the query that runs, if one does; called from another thread."""
        self.was_interrupted = True
        if (stop := self._stop) is not None:
            stop()

    def _begun(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def name_of(self, parts: Sequence[str]) -> str:
        """The table as `Catalog.table` takes it: a name without a database is one of the database that USE has chosen."""
        return self.full_name(".".join(parts))

    def full_name(self, name: str) -> str:
        is_plain = not {".", "/", "\\", "@"} & set(name)
        return f"{self.database}.{name}" if is_plain and self.database is not None else name

    def table(self, parts: Sequence[str]) -> Table:
        return self.catalog.table(self.name_of(parts))

    def values_in(self, *texts: Words) -> dict[str, Any]:
        """The values of the parameters that these parts of a statement have."""
        names = (name for words in texts for _, name in parameters_of(words))
        return {name: self.params[name] for name in names if name in self.params}

    def duckdb_text(self, words: Words) -> str:
        return duckdb_text(words, self.params)

    def query(
        self,
        text: str,
        params: Mapping[str, Any],
        *,
        wraps: tuple[Wrap, ...] = (),
        explain: str = "",
        open_table: OpenTable | None = None,
    ) -> SqlResult:
        """The rows of a query, whose text is DuckDB's."""
        opened = open_table or (lambda name: self.catalog.table(self.full_name(name)))
        asked = Query(text, params, wraps, explain, self.written)
        return run_query(asked, opened, self.catalog.runtime.trace, allow_files=self.allow_files, on_begin=self._begun)
