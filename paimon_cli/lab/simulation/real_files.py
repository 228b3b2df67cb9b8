"""Real data files in a simulation: tasks and reads are computed once per distinct input.

Thousands of schedules run the same shipped tasks on the same few files. So the storage calls of a task and their answers are
recorded. When a task starts again with the same files under the same names, its calls are repeated one by one, so that other
actors and faults can intervene as usual. As long as every answer is the recorded one, the result is too. At the first different
answer the task runs again from its start, and receives the answers given so far.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.bucket.postponed_files import replay_order
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_bucket, check_file, check_merged
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import Violation
from paimon_cli.jobs.engine import Computing, LocalEngine, Progress
from paimon_cli.jobs.postponed_rows import WaitingRows
from paimon_cli.jobs.stored_rows import RowsOfTable
from paimon_cli.lab.simulation.scenario import Rows
from paimon_cli.lab.simulation.script import forget_scripts
from paimon_cli.lab.simulation.sim_storage import CallStorage, SimDisk
from paimon_cli.metadata.data_file import BucketId
from paimon_cli.metadata.data_file_schema import VALUE_KIND
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.write.table_writer import Written
from paimon_cli.write.write_plan import CompactionWhileWriting, IndexAssignment, Tallies, WritePlan

MAX_KEPT = 20_000
MANY_ROWS = 1 << 16


class AnsweredCall(NamedTuple):
    """A storage call and its answer; the answer is the exception if one was raised."""

    operation: str
    path: str
    arguments: tuple[bytes, ...]
    answer: Any


def _answer(storage: Any, operation: str, path: str, arguments: tuple[bytes, ...]) -> Any:
    try:
        found = getattr(storage, operation)(path, *arguments)
    except (FileNotFoundError, StorageUnavailable) as error:
        return error
    return found.read() if operation == "open_input" else found


def _is_same(call: AnsweredCall, answer: Any) -> bool:
    if isinstance(answer, Exception) or isinstance(call.answer, Exception):
        return type(answer) is type(call.answer)
    return bool(answer == call.answer)


class RecordingStorage(CallStorage):
    """Records the calls to an actor's storage. `known`: calls already made, whose answers are returned without a new call."""

    def __init__(self, inner: Any, known: Sequence[AnsweredCall] = ()) -> None:
        self.is_remote: bool = inner.is_remote
        self._inner = inner
        self._known = iter(known)
        self.calls: list[AnsweredCall] = []

    def _call(self, operation: str, path: str, *arguments: bytes) -> Any:
        call = next(self._known, None) or AnsweredCall(
            operation, path, arguments, _answer(self._inner, operation, path, arguments)
        )
        if (call.operation, call.path) != (operation, path):
            raise AssertionError(f"a task run again called {operation} {path} instead of {call.operation} {call.path}")
        self.calls.append(call)
        if isinstance(call.answer, Exception):
            raise call.answer
        return call.answer


@dataclass(frozen=True)
class _RecordedTask:
    """A task that has run: its calls, the number of UUIDs that it drew, and its result."""

    calls: tuple[AnsweredCall, ...]
    uuids: int
    result: Any


_TASKS: dict[Any, _RecordedTask] = {}


def forget() -> None:
    """Forget all scripts, tasks and rows, so that changed code can run in their place."""
    _TASKS.clear()
    _READS.clear()
    forget_scripts()


def cached_result(key: tuple[Any, ...], context: TableContext, run: Callable[[TableContext], Any]) -> Any:
    """The result of `run` on this table. `key` holds everything that it depends on except the answers of the storage."""
    random: Any = context.random
    task_key = (*key, str(random), context.clock.now_millis(), context.storage.is_remote)
    known = _TASKS.get(task_key)
    made: list[AnsweredCall] = []
    if known is not None:
        for call in known.calls:
            answer = _answer(context.storage, call.operation, call.path, call.arguments)
            if not _is_same(call, answer):
                made.append(call._replace(answer=answer))
                break
            made.append(call)
        else:
            for _ in range(known.uuids):
                random.uuid()
            return known.result
    storage, before = RecordingStorage(context.storage, made), random.count
    result = run(replace(context, storage=storage))
    if known is None and not any(isinstance(call.answer, Exception) for call in storage.calls):
        if len(_TASKS) >= MAX_KEPT:
            _TASKS.clear()
        _TASKS[task_key] = _RecordedTask(tuple(storage.calls), random.count - before, result)
    return result


class RealEngine(LocalEngine):
    """The local engine with a memory of tasks. `rows` identifies the rows of a write."""

    def __init__(self, disk: SimDisk, rows: object = None) -> None:
        super().__init__()
        self._disk = disk
        self._rows = rows

    def run_tasks(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        on_done: Callable[[Any], None] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[Any]:
        function = function.function if isinstance(function, Computing) else function
        context = getattr(function, "args", (None,))[0]
        if not (isinstance(context, TableContext) and all(isinstance(task, CompactionTask) for task in tasks)):
            return super().run_tasks(function, tasks, on_done)
        shipped = function.func  # type: ignore[attr-defined]

        def known(task: CompactionTask) -> Any:
            key = ("compact", _table(context), task, self._contents(context, task))
            return cached_result(key, context, lambda recorded: shipped(recorded, task))

        return super().run_tasks(known, tasks, on_done)

    def _contents(self, context: TableContext, task: CompactionTask) -> tuple[bytes | None, ...]:
        files = self._disk.files
        data = (files.get(context.data_file_path(task.partition, task.bucket, f)) for f in (*task.files, *task.others))
        return (*data, *(files.get(context.layout.index(index.file_name)) for index in task.index_files))

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        if self._rows is None:
            return super().write_rows(plan, tallies, progress)
        context = plan.context
        started = (plan.file_stamp, tuple(plan.first_sequences.items()), plan.read_snapshot_id)
        key = ("write", _table(context), self._rows, started, _compaction(plan.compaction), _routes(plan))
        write = super().write_rows

        def written(recorded: TableContext) -> tuple[Written, Tallies]:
            counted: Tallies = {}
            reads_the_table = isinstance(plan.incoming, (WaitingRows, RowsOfTable))
            incoming = replace(plan.incoming, context=recorded) if reads_the_table else plan.incoming  # type: ignore[type-var]
            return write(replace(plan, context=recorded, incoming=incoming), counted, progress), counted

        result, counted = cached_result(key, context, written)
        tallies.update(copy.deepcopy(counted))
        return result


def _routes(plan: WritePlan) -> tuple[object, ...]:
    """What the buckets of rows depend on besides their keys."""
    indexes = plan.assignment.indexes if isinstance(plan.assignment, IndexAssignment) else None
    return (repr(plan.splits), repr(plan.buckets), repr(indexes))


def _compaction(compaction: CompactionWhileWriting | None) -> tuple[object, ...] | None:
    if compaction is None:
        return None
    return (compaction.compact_bucket, tuple((bucket.files, bucket.index_files) for bucket in compaction.existing.values()))


def _table(context: TableContext) -> tuple[object, ...]:
    return (context.schema.id, tuple(sorted(context.schema.options.items())), context.schema.fields)


# what readers see


_READS: dict[Any, Any] = {}


def _found(what: str, version: Version, paths: Sequence[str], read: Callable[[], Any]) -> Any:
    """The result of `read`, cached by the content of these files. If one is missing, `read` runs and raises."""
    storage = version.context.storage
    try:
        key = (what, _table(version.context), tuple((path, storage.read_bytes(path)) for path in paths))
    except FileNotFoundError:
        return read()
    if key not in _READS:
        if len(_READS) >= MAX_KEPT:
            _READS.clear()
        _READS[key] = read()
    return _READS[key]


def _paths(version: Version, bucket_id: BucketId) -> list[str]:
    data = [version.file_path(entry) for entry in version.at(bucket_id)]
    return data + [version.index_path(entry) for entry in version.index_entries if entry.bucket_id == bucket_id]


def _levels(version: Version, bucket_id: BucketId) -> str:
    return ",".join(f"{entry.file.file_name}@{entry.file.level}" for entry in version.at(bucket_id))


def real_rows(version: Version, *, level_0: bool) -> Rows:
    """The rows of real data files, as the shipped reader returns them. `level_0`: include those that plain reads hide."""
    shown = replace(version.context, shows_level_0=level_0)
    rows: dict[int, str] = {}
    for bucket_id, entries in version.buckets.items():
        if bucket_id.bucket == POSTPONE_BUCKET:
            continue
        indexes = tuple(e.index_file for e in version.index_entries if e.bucket_id == bucket_id)
        bucket = BucketFiles(*bucket_id, entries[-1].total_buckets, tuple(entry.file for entry in entries), indexes)

        def read(bucket: BucketFiles = bucket) -> dict[int, str]:
            found: dict[int, str] = {}
            for batch in read_bucket(shown, bucket, ("k", "v")):
                keys = batch.column("k").to_pylist()
                for key, value in zip(keys, map(str, batch.column("v").to_pylist()), strict=True):
                    found[key] = f"{found[key]} and {value}" if key in found else value
            return found

        for key, value in _found(
            f"rows {level_0} {_levels(version, bucket_id)}", version, _paths(version, bucket_id), read
        ).items():
            rows[key] = f"{rows[key]} and {value}" if key in rows else value
    return _with_waiting(version, rows) if level_0 else rows


def _with_waiting(version: Version, rows: dict[int, str]) -> dict[int, str]:
    """Add the rows that wait for a bucket, in the order in which they will be assigned."""
    waiting = {bucket_id: entries for bucket_id, entries in version.buckets.items() if bucket_id.bucket == POSTPONE_BUCKET}
    for entries in waiting.values():
        by_name = {entry.file.file_name: entry for entry in entries}
        for file in replay_order([entry.file for entry in entries]):
            for change in real_changes(version, [by_name[file.file_name]]):
                if change.kind & 1:
                    rows.pop(change.key, None)
                else:
                    rows[change.key] = change.value
    return rows


def real_violations(version: Version) -> list[Violation]:
    """The violations that the shipped checks of rows and vectors find in all buckets."""
    found: list[Violation] = []
    for bucket_id in sorted(version.buckets):
        read = functools.partial(_checked, version, bucket_id)
        found += _found(f"check {_levels(version, bucket_id)}", version, _paths(version, bucket_id), read)
    return found


def _checked(version: Version, bucket_id: BucketId) -> list[Violation]:
    found = [v for entry in version.at(bucket_id) for v in check_file(version, entry, rows=True)]
    return [*found, *check_bucket(version, bucket_id, rows=True), *check_merged(version, bucket_id)]


class RealChange(NamedTuple):
    """A changelog row."""

    kind: int
    key: int
    value: str


def real_changes(version: Version, entries: Sequence[Any]) -> Iterator[RealChange]:
    """The rows of changelog files, in file order."""
    context = version.context
    for entry in entries:
        path = context.data_file_path(entry.partition, entry.bucket, entry.file)

        def read(entry: Any = entry) -> list[RealChange]:
            names, found = (VALUE_KIND, "k", "v"), list[RealChange]()
            for batch in read_data_file(context, entry.bucket_id, entry.file, names, MANY_ROWS):
                kinds, keys, values = (batch.column(name).to_pylist() for name in names)
                found += map(RealChange, kinds, keys, map(str, values))
            return found

        yield from _found("changelog", version, [path], read)
