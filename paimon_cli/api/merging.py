"""A merge as the library builds it: clause by clause, then `execute`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from paimon_cli.api.arguments import checks_arguments
from paimon_cli.api.assignments import assignments_of
from paimon_cli.errors import UsageError
from paimon_cli.requests.merging import MergeCall, MergeClause

if TYPE_CHECKING:
    from paimon_cli.jobs.merge_job import MergeSummary

Assigned = str | Sequence[str] | Mapping[str, Any] | None
When = Literal["matched", "not_matched", "not_matched_by_source"]


@checks_arguments
class Merge:
    """A merge of rows into a table, begun by `Table.merge`. Of the clauses of a kind, the first whose condition holds counts.

    Conditions and the expressions of `set` are SQL. They read columns of the table, `target.x` and `source.x`; in inserts,
    columns of the source. `values` are data, as in `Table.update`, and so are the `params` of `Table.merge`, whose names all
    clauses can use (`:name`). Each method returns the merge with one more clause.
    """

    def __init__(
        self,
        table: str,
        call: MergeCall,
        run: Callable[[MergeCall, tuple[MergeClause, ...]], MergeSummary],
        clauses: tuple[MergeClause, ...] = (),
        runs: list[None] | None = None,
    ) -> None:
        self._runs: list[None] = [] if runs is None else runs
        """One item for each time that the source was read, also by merges with other clauses."""
        self._table = table
        self._call = call
        self._run = run
        self._clauses = clauses

    def __repr__(self) -> str:
        clauses = ", ".join(f"when {clause.when}: {clause.action}" for clause in self._clauses)
        return f"Merge({self._table!r}, on={list(self._call.on or ())}, {clauses or 'no clause yet'})"

    def when_matched_update(
        self, set: Assigned = None, *, values: Mapping[str, Any] | None = None, condition: str | None = None
    ) -> Merge:
        """Change rows of the table that meet a row of the source: `set={"points": "points + source.points"}`, `values={...}`."""
        return self._with(_clause("matched", "update", set, values, condition))

    def when_matched_update_all(self, *, condition: str | None = None) -> Merge:
        """Give them the values of all columns that the source has, too."""
        return self._with(MergeClause("matched", "update", condition, takes_all=True))

    def when_matched_delete(self, *, condition: str | None = None) -> Merge:
        """Delete rows of the table that meet a row of the source."""
        return self._with(MergeClause("matched", "delete", condition))

    def when_not_matched_insert(
        self, set: Assigned = None, *, values: Mapping[str, Any] | None = None, condition: str | None = None
    ) -> Merge:
        """Insert rows of the source that meet no row of the table: `set={"id": "source.id", "name": "upper(source.name)"}`.

        Columns that are not set get their default, or null.
        """
        return self._with(_clause("not_matched", "insert", set, values, condition))

    def when_not_matched_insert_all(self, *, condition: str | None = None) -> Merge:
        """Insert them with all columns that the table has, too."""
        return self._with(MergeClause("not_matched", "insert", condition, takes_all=True))

    def when_not_matched_by_source_update(
        self, set: Assigned = None, *, values: Mapping[str, Any] | None = None, condition: str | None = None
    ) -> Merge:
        """Change rows of the table that meet no row of the source."""
        return self._with(_clause("not_matched_by_source", "update", set, values, condition))

    def when_not_matched_by_source_delete(self, *, condition: str | None = None) -> Merge:
        """Delete rows of the table that meet no row of the source. Without a condition, the table then holds no others."""
        return self._with(MergeClause("not_matched_by_source", "delete", condition))

    def execute(self) -> MergeSummary:
        """Merge in one commit; start again if another commit conflicts. If it fails, the table is unchanged.

        Raises `BadInput` if several rows of the source meet one row of the table, or a row does not fit, `Conflict` after
        `max_attempts`.
        """
        source = self._call.source
        if self._runs and any(hasattr(type(source), name) for name in ("__next__", "read_next_batch")):
            what = f"the {type(source).__name__} was read already"
            raise UsageError(what, "a merge would take it for an empty source", "call merge again with a new one")
        self._runs.append(None)
        return self._run(self._call, self._clauses)

    def run_by(self, run: Callable[[MergeCall, tuple[MergeClause, ...]], MergeSummary]) -> Merge:
        """The same merge, which `execute` lets another function run."""
        return Merge(self._table, self._call, run, self._clauses)

    def _with(self, clause: MergeClause) -> Merge:
        return Merge(self._table, self._call, self._run, (*self._clauses, clause), self._runs)


def _clause(
    when: When, action: Literal["update", "insert"], set: Assigned, values: Mapping[str, Any] | None, condition: str | None
) -> MergeClause:
    return MergeClause(when, action, condition, tuple(assignments_of(set or ())), values)
