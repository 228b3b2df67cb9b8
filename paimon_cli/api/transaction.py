"""A transaction as the library has it: `with table.transaction() as t`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.merging import Merge
from paimon_cli.api.row_input import is_spark_frame
from paimon_cli.api.scan import open_scan
from paimon_cli.api.writing import TableWrite, Writing
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.options.choices import CompactionMode
from paimon_cli.requests.merging import MergeCall, MergeClause
from paimon_cli.requests.reading import ScanCall
from paimon_cli.requests.writing import ChangeCall, DeleteCall, Identity, UpdateCall

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_cli.api.scan import Scan
    from paimon_cli.jobs.merge_job import MergeSummary
    from paimon_cli.jobs.transaction_job import OpenTransaction, TransactionSummary
    from paimon_cli.jobs.update_job import UpdateSummary
    from paimon_cli.jobs.write_job import WriteSummary


@checks_arguments
class Transaction:
    """Several changes of a table as one commit, begun by `Table.transaction`: `write`, `update`, `delete` and `merge`. Each of
    them, `scan` and `count` see the changes before them; others see these only after the commit at the end of the block.

    All read one snapshot of the table. If another commit has changed the same buckets since then (or more or less: the data
    conflict check), the end of the block raises `DataConflict`. After an exception nothing is committed, and no file is left.
    """

    summary: TransactionSummary | None = None
    """The result, after the end of the block."""

    def __init__(self, table: Writing, identity: Identity) -> None:
        self._table = table
        self._identity = identity
        self._open: OpenTransaction | None = None
        self._view: Writing | None = None
        self._has_begun = False

    def __repr__(self) -> str:
        state = "open" if self._view is not None else "ended" if self._has_begun else "not begun"
        return f"Transaction({self._table.name!r}, {state})"

    def __enter__(self) -> Transaction:
        from paimon_cli.jobs.transaction_job import OpenTransaction

        if self._has_begun:
            raise UsageError("the transaction has begun already", "each is used once", "call table.transaction() again")
        self._table.check_commit()
        self._open, self._has_begun = OpenTransaction.begin(self._table.context), True
        self._view = _view_of(self._table, self._open)
        self._abandoned = weakref.finalize(self, _abandon, self._open, os.getpid())
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        opened, self._open, self._view = self._open, None, None
        if opened is None:
            return False
        self._abandoned.detach()
        if error_type is not None:
            opened.discard()
            return False
        self.summary = self._commit(opened)
        return False

    def _commit(self, opened: OpenTransaction) -> TransactionSummary:
        from paimon_cli.jobs.table_change import identity_of

        runtime, asked = self._table.runtime, self._identity
        with ExitStack() as running:
            try:
                identity = identity_of(opened.context, asked.commit_user, asked.commit_id, asked.assume_new)
                engine = running.enter_context(runtime.engine_running())
            except BaseException:
                opened.discard()
                raise
            summary = opened.commit(identity, engine, runtime.new_progress())
        self._table._mark_partitions(summary, asked.commit_user, asked.commit_id)
        return summary

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(type(self._table), name):
            raise AttributeError(f"'Transaction' object has no attribute '{name}'")
        why = "it holds changes of rows, which become one commit"
        raise NotSupported(f"{name} in a transaction", why, "call it on the table, before or after the transaction")

    @takes(TableWrite)
    def write(self, call: TableWrite) -> WriteSummary:
        """Write rows, as `Table.write` does. With `overwrite`, rows that others add to what is replaced are a conflict."""
        view = self._step(call)
        if call.stage is not None:
            raise NotSupported("a staged write in a transaction", "its rows wait for another commit", "leave out stage")
        if is_spark_frame(call.data):
            raise NotSupported("a DataFrame of Spark in a transaction", "its session writes and commits by itself", "collect it")
        if call.compact not in (None, CompactionMode.NONE):
            raise _no_compaction()
        done = view.write(**{**vars(call), "compact": CompactionMode.NONE})
        if call.overwrite and self._open is not None:
            self._open.replaced(done.snapshots, None if call.partition is None else call.partition[0])
        return done

    @takes(UpdateCall)
    def update(self, call: UpdateCall) -> UpdateSummary:
        """Change the rows that match a condition, as `Table.update` does."""
        return self._change(call).update(**_uncompacted(call))

    @takes(DeleteCall)
    def delete(self, call: DeleteCall) -> UpdateSummary:
        """Delete the rows that match a condition, as `Table.delete` does."""
        return self._change(call).delete(**_uncompacted(call))

    @takes(MergeCall)
    def merge(self, call: MergeCall) -> Merge:
        """Merge rows, as `Table.merge` does; `execute` makes it a step of the transaction."""
        view, opened = self._change(call), self._open

        def run(merge: MergeCall, clauses: tuple[MergeClause, ...]) -> MergeSummary:
            if self._open is not opened or opened is None:
                raise _ended()
            done = view._merge(type(merge)(**_uncompacted(merge)), clauses)
            opened.relies_on_absence |= bool(done.inserted)
            return done

        return Merge(view.name, call, run)

    @takes(ScanCall)
    def scan(self, call: ScanCall) -> Scan:
        """Plan a read of the rows, as `Table.scan` does, with the changes of this transaction."""
        return open_scan(self._current(), call)

    def count(self, where: str | None = None, *, params: Mapping[str, Any] | None = None) -> int:
        """The number of rows, or of those that match, with the changes of this transaction."""
        return self.scan(where=where, params=params).count()

    def head(self, rows: int = 10) -> pa.Table:
        """The first rows, with the changes of this transaction."""
        return open_scan(self._current(), ScanCall(limit=rows)).to_arrow()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table, with the changes of this transaction."""
        return open_scan(self._current(), ScanCall()).to_arrow()

    @property
    def view(self) -> Writing:
        """The table with the changes of this transaction. Internal to paimon_cli: its own changes would be commits."""
        return self._current()

    def _current(self) -> Writing:
        if self._view is None:
            raise (
                _ended()
                if self._has_begun
                else UsageError("the transaction has not begun", "it needs a block", "with table.transaction() as t: ...")
            )
        return self._view

    def _step(self, call: TableWrite | ChangeCall) -> Writing:
        """The table as a step sees it. Raises `UsageError` for options that only a commit of its own has."""
        view = self._current()
        if call.data_conflict_check is not None or getattr(call, "read_snapshot", None) is not None:
            hint = 'for another granularity: Table.open(name, {"commit.data-conflict-check": "key"})'
            raise UsageError("a step of a transaction has no data conflict check", "its commit is checked as a whole", hint)
        if call.commit_user is not None or call.commit_id is not None:
            hint = "name them for the whole: table.transaction(commit_user=..., commit_id=...)"
            raise UsageError("a step of a transaction has no identity", "the transaction is one commit", hint)
        return view

    def _change(self, call: ChangeCall) -> Writing:
        if call.compact not in (None, CompactionMode.NONE):
            raise _no_compaction()
        return self._step(call)


def _abandon(opened: OpenTransaction, process: int) -> None:
    """Delete the files of a transaction whose block never ended: it can no longer be committed. A fork does not own them."""
    if os.getpid() == process:
        opened.discard()


def _view_of(table: Writing, opened: OpenTransaction) -> Writing:
    """The table as the steps see it. They mark no partitions as done: nothing is committed yet."""
    view = type(table)(opened.view, table.runtime)
    view._marks_partitions = False
    return view


def _uncompacted(call: ChangeCall) -> dict[str, Any]:
    return {**vars(call), "compact": CompactionMode.NONE}


def _ended() -> UsageError:
    return UsageError("the transaction has ended", "its changes are committed or discarded", "begin another one")


def _no_compaction() -> NotSupported:
    return NotSupported("a compaction in a transaction", "what is due is compacted after its commit", "leave out --compact")
