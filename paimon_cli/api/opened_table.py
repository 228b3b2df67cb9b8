"""An open table, and how its calls run: on which engine, and where warnings and progress are reported."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from paimon_cli.errors import UsageError, in_python
from paimon_cli.storage.trace import NoTrace, Trace

if TYPE_CHECKING:
    from paimon_cli.catalog.table import CatalogTable
    from paimon_cli.history.live_files import BucketNumbers
    from paimon_cli.history.partition_spec import PartitionSpec, PartitionValues
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.engine import Engine, Progress
    from paimon_cli.metadata.snapshot import Snapshot

Partitions = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""One partition as its keys and values, or several; with only some of the keys, all partitions that match. None is null."""


def _warn_in_python(message: str) -> None:
    warnings.warn(in_python(message), UserWarning, stacklevel=2)


@dataclass(frozen=True)
class Runtime:
    """How calls run.

    `engine` is `auto`, `local` or `spark`: `auto` runs small work in this process and bulk work on Spark, from
    `spark_threshold` on (bytes, or bytes and files: `1 gb,1000`). `master` (`spark://`, `yarn`, ... or a
    Spark Connect server, `sc://host:port`) and `spark_conf` choose Spark and configure it.
    `progress` makes the object that is informed of the phases of a job, `warn` gets each warning; `trace` gets the steps.
    `given_engine` is an engine that runs already, and stays; then nothing else is chosen.
    """

    engine: str = "auto"
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    spark_threshold: str | None = None
    progress: Callable[[], Progress] | None = None
    warn: Callable[[str], None] = _warn_in_python
    trace: Trace = field(default_factory=NoTrace, repr=False)
    given_engine: Engine | None = field(default=None, repr=False)

    def new_progress(self) -> Progress:
        if self.progress is not None:
            return self.progress()
        from paimon_cli.jobs.engine import NoProgress

        return NoProgress()

    def open_engine(self, parallelism: int | None = None) -> Engine:
        """The engine, not started yet. It runs at most `parallelism` threads of this process, or tasks of Spark, at a time."""
        if self.given_engine is not None:
            return self.given_engine
        from paimon_cli.jobs.engine_choice import THRESHOLD_KEY, EngineRequest, Threshold, open_engine
        from paimon_cli.metastore.settings import catalog_setting

        if self.spark_threshold is not None:
            threshold = Threshold.parse(self.spark_threshold, "--spark-threshold")
        else:
            setting = catalog_setting(THRESHOLD_KEY)
            threshold = Threshold() if setting is None else Threshold.parse(setting, f"{THRESHOLD_KEY} of paimon.yaml")
        return open_engine(EngineRequest(self.engine, self.master, self.spark_conf, parallelism, parallelism, threshold))

    @contextmanager
    def engine_running(self, parallelism: int | None = None) -> Iterator[Engine]:
        """The engine, stopped on every way out."""
        engine = self.open_engine(parallelism)
        try:
            yield engine
        finally:
            engine.stop()


Self = TypeVar("Self", bound="OpenedTable")


class OpenedTable:
    """What all parts of `Table` share: the table, its context, and the checks before a commit.

    A table keeps the schema that it was opened with; `refresh` takes the latest. Snapshots are looked up by each call.
    """

    def __init__(self, opened: CatalogTable, runtime: Runtime) -> None:
        self.catalog_table = opened
        self.runtime = runtime
        self._may_commit = False

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    @property
    def name(self) -> str:
        """The table as it was named when it was opened, without secrets."""
        return self.catalog_table.name

    @property
    def url(self) -> str:
        """The root directory of the table, in normal form."""
        return self.catalog_table.url

    @property
    def branch(self) -> str:
        """`main`, or the branch that was opened."""
        return self.catalog_table.branch

    @property
    def context(self) -> TableContext:
        """The table as jobs see it, at the schema that it was opened with. For use inside of paimon_cli."""
        return self.catalog_table.context

    def refresh(self) -> None:
        """Take the table's latest schema, if another process has changed it."""
        self.catalog_table = replace(self.catalog_table)

    def with_options(self: Self, options: Mapping[str, str]) -> Self:
        """The same table with other table options, for the calls made through the result only."""
        return type(self)(
            replace(self.catalog_table, options={**self.catalog_table.options, **options}),
            self.runtime,
        )

    def check_call(self) -> None:
        """Raise `UsageError` for a read-only view, and for an option that would damage the table if it held for one call only.

        Jobs that change the table call it before they plan.
        """
        opened = self.catalog_table
        if opened.read_optimized:
            raise UsageError(f"{opened.name} is a view", "views are read-only", "leave $ro out")
        if opened.options:
            from paimon_cli.catalog.option_values import check_options_of_call

            check_options_of_call(opened.schemas.latest().options, opened.options, opened.snapshots.latest_id() is not None)

    def check_commit(self) -> None:
        """`check_call`, and `Refused` where the storage cannot keep two commits apart; once, before the first commit."""
        if self._may_commit:
            return
        self.check_call()
        self.catalog_table.snapshots.fetch_latest()
        if warning := self.catalog_table.check_commits():
            self.runtime.warn(warning)
        self._may_commit = True

    def _snapshot(self, snapshot: int | None) -> Snapshot | None:
        return self.catalog_table.snapshot(snapshot)

    def _partitions(self, partitions: Partitions | None) -> PartitionSpec | None:
        """A test on partitions; None for all."""
        if partitions is None:
            return None
        from paimon_cli.history.partition_spec import PartitionSpec

        return PartitionSpec.parse_any(self.context, partition_list(partitions))

    @staticmethod
    def _buckets(buckets: BucketNumbers | None) -> frozenset[int] | None:
        """The numbers of buckets; None for all."""
        from paimon_cli.history.live_files import bucket_numbers

        return bucket_numbers(buckets)


def partition_list(partitions: Partitions | None) -> list[PartitionValues]:
    """Partitions with their values as texts; none for None, which means all partitions.

    `UsageError` for what names no partition, such as an empty list, so that it is never taken for all of them.
    """
    if partitions is None:
        return []
    several = [partitions] if isinstance(partitions, Mapping) else partitions
    if not all(isinstance(one, Mapping) for one in several):
        raise UsageError(f"{partitions!r} is no partition", "a partition is given by its keys and values", 'use {"KEY": "VALUE"}')
    if not several or not all(several):
        why = "a selection without keys is not taken for all partitions"
        raise UsageError("no partition is named", why, "name the keys and values of a partition, or leave the selection out")
    return [{key: None if value is None else str(value) for key, value in one.items()} for one in several]


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """`UsageError` for a value that an option does not have."""
    if value not in choices:
        raise UsageError(f"--{option} {value}", f"choose one of {', '.join(choices)}")


def check_names(given: Mapping[str, object], options: type) -> None:
    """`TypeError` for a keyword that is none of the options, which are declared as a `TypedDict`."""
    for name in given.keys() - options.__annotations__.keys():
        raise TypeError(f"there is no option '{name}', there are {', '.join(options.__annotations__)}")


def check_positive(**numbers: int | None) -> None:
    """`UsageError` for an option, in Python's spelling, that is less than 1; None means not given."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise UsageError(f"--{name.replace('_', '-')} {number}", "the least is 1")
