"""Inspection of a table: its manifests, files, buckets and sorted runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from paimon_cli.api.arguments import checks_arguments
from paimon_cli.api.opened_table import OpenedTable
from paimon_cli.api.runtime import Runtime
from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import Point, check_positive
from paimon_cli.requests.selections import Buckets, Partitions, bucket_list, partition_list

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_cli.history.partition_spec import PartitionSpec
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.inspect.bucket_plan import BucketPlanRow
    from paimon_cli.inspect.bucket_report import BucketRow, PartitionRow
    from paimon_cli.inspect.compaction_scenarios import LsmExplanation, ScenarioRow
    from paimon_cli.inspect.file_report import EntryRow, FileDetails, FileRow, RowGroupRow
    from paimon_cli.inspect.index_report import IndexRow, VectorRow
    from paimon_cli.inspect.lsm_report import LsmRow
    from paimon_cli.inspect.report_figures import TableState
    from paimon_cli.inspect.table_description import TableDescription
    from paimon_cli.inspect.version_report import ManifestRow
    from paimon_cli.lsm.compaction_simulation import OnCommit, SimulatedWorkload


@checks_arguments
class Inspection(OpenedTable):
    """The methods of `Table` that inspect it without changing it. Plural names list things, singular names show one.

    Sizes are bytes, times epoch millis. `snapshot`: an id, a tag or a time, default the latest; the methods raise `NotFound` if
    it does not exist.
    """

    def describe(self, *, argument: str | None = None) -> TableDescription:
        """A summary of the table: columns, keys, options, contents, versions and pending maintenance.

        `argument`: the name of the table in the commands of findings.
        """
        from paimon_cli.inspect.findings.examined_table import ExaminedTable
        from paimon_cli.inspect.table_description import describe_table

        table = self.supported
        return describe_table(table, ExaminedTable(table, argument or table.layout.argument))

    def manifests(self, *, snapshot: Point | None = None, lists: Sequence[str] | None = None) -> list[ManifestRow]:
        """Manifests of a snapshot, list by list; `lists`: some of base, delta, changelog and index.

        Lists that cannot be read are left out, with a warning.
        """
        from paimon_cli.inspect.version_report import LISTS, manifest_rows

        chosen = list(lists) if lists else LISTS
        return manifest_rows(self.context, self._snapshot(snapshot), chosen, self._warn_of_damage)

    def manifest(self, name: str) -> list[EntryRow]:
        """The entries of one manifest: files added and deleted."""
        from paimon_cli.inspect.file_report import manifest_entries

        return manifest_entries(self.supported, name)

    def files(
        self,
        *,
        snapshot: Point | None = None,
        partition: Partitions | None = None,
        bucket: Buckets | None = None,
        level: int | None = None,
        kind: Literal["data", "changelog"] = "data",
    ) -> list[FileRow]:
        """Live data files by partition, bucket and level, or the changelog files of `snapshot` (default: of all snapshots)."""
        from paimon_cli.inspect.file_report import FileSelection, changelog_file_rows, file_rows

        chosen = FileSelection(_partitions(self.context, partition), _buckets(bucket), level)
        found = self._snapshot(snapshot)
        if kind == "data":
            return file_rows(self.context, found, chosen)
        history = self.context.snapshots
        every = [known for number in history.ids() if (known := history.find(number)) is not None]
        return changelog_file_rows(self.context, every if snapshot is None or found is None else [found], chosen)

    def file(self, name: str, *, snapshot: Point | None = None) -> FileDetails:
        """One data file with its column statistics. Raises `NotFound` if the snapshot does not contain it."""
        from paimon_cli.inspect.file_report import file_details

        return file_details(self.context, self._snapshot(snapshot), name)

    def partitions(self, *, snapshot: Point | None = None, done: bool = False) -> list[PartitionRow]:
        """Partitions with their files, rows and bytes. `done`: look for success files even if there are many partitions."""
        from paimon_cli.inspect.bucket_report import partition_rows

        return partition_rows(self.context, self._snapshot(snapshot), done)

    def buckets(
        self,
        *,
        snapshot: Point | None = None,
        partition: Partitions | None = None,
        index_stats: bool = False,
        argument: str | None = None,
    ) -> Sequence[BucketRow]:
        """Buckets with their files, sorted runs, rows, bytes and skew, and the command that would improve them now.

        `index_stats`: return `IndexedBucketRow`, with the keys in hash indexes and the rows marked by deletion vectors.
        `argument`: the name of the table in commands. At an older `snapshot` there are none: they would change the latest one.
        """
        from paimon_cli.history.live_files import bucket_files
        from paimon_cli.inspect.bucket_report import bucket_rows, findings_by_bucket, indexed_bucket_rows
        from paimon_cli.inspect.findings.examined_table import ExaminedTable
        from paimon_cli.metadata.data_file import ALL_FILES, FileFilter

        rows = indexed_bucket_rows if index_stats else bucket_rows
        shown, spec = self._snapshot(snapshot), _partitions(self.context, partition)
        wanted = ALL_FILES if spec is None else FileFilter(spec.matches)
        table = ExaminedTable(self.supported, argument or self.context.layout.argument, wanted)
        if shown == table.latest:
            found = rows(self.context, table.all_buckets, findings_by_bucket(table))
            self._warn_of_buckets(in_rows=True)
            return found
        return rows(self.context, bucket_files(self.context, shown, wanted).values())

    def bucket_plan(self, *, partition: Partitions | None = None, argument: str | None = None) -> list[BucketPlanRow]:
        """The bucket count that each partition should have, and what the change costs (`buckets plan`); changes nothing.

        `argument`: the name of the table in commands.
        """
        from paimon_cli.inspect.bucket_plan import bucket_plan
        from paimon_cli.inspect.findings.examined_table import ExaminedTable

        chosen = _partitions(self.context, partition)
        return bucket_plan(ExaminedTable(self.supported, argument or self.context.layout.argument), chosen)

    def lsm(
        self, *, snapshot: Point | None = None, partition: Partitions | None = None, bucket: Buckets | None = None
    ) -> list[LsmRow]:
        """The sorted runs of each bucket, newest first, and the next compaction (`lsm show`)."""
        from paimon_cli.inspect.lsm_report import lsm_rows

        rows = lsm_rows(self.context, self._snapshot(snapshot), _partitions(self.context, partition), bucket_list(bucket))
        if snapshot is None:
            self._warn_of_buckets()
        return rows

    def explain_lsm(self, *, snapshot: Point | None = None) -> LsmExplanation:
        """Compare universal and leveled compaction by simulation with the table's own figures (`lsm explain`)."""
        from paimon_cli.inspect.compaction_scenarios import explain_lsm

        return explain_lsm(self.context, self._snapshot(snapshot))

    def indexes(
        self, *, snapshot: Point | None = None, partition: Partitions | None = None, bucket: Buckets | None = None
    ) -> list[IndexRow]:
        """The index files of a snapshot by partition and bucket."""
        from paimon_cli.inspect.index_report import index_rows

        return index_rows(self.context, self._snapshot(snapshot), _partitions(self.context, partition), _buckets(bucket))

    def dv(
        self,
        *,
        snapshot: Point | None = None,
        partition: Partitions | None = None,
        bucket: Buckets | None = None,
        dangling: bool = False,
    ) -> list[VectorRow]:
        """The deletion vectors of a snapshot: deleted rows per data file, and the index file that stores the vector.

        `dangling`: only vectors whose data file is no longer live.
        """
        from paimon_cli.inspect.index_report import vector_rows

        rows = vector_rows(self.context, self._snapshot(snapshot), _partitions(self.context, partition), _buckets(bucket))
        return [row for row in rows if row.level is None] if dangling else rows

    def state(self) -> TableState:
        """The current state that `watch` shows: files, buckets, sorted runs, and the newest commits."""
        from paimon_cli.inspect.report_figures import table_state

        return table_state(self.supported)

    def row_groups(self, name: str, *, snapshot: Point | None = None) -> list[RowGroupRow]:
        """The row groups of one Parquet data file. Raises `NotSupported` for other formats."""
        from paimon_cli.inspect.file_report import row_groups

        return row_groups(self.context, self.file(name, snapshot=snapshot).path)

    def row_group(self, name: str, number: int, *, snapshot: Point | None = None, limit: int | None = None) -> pa.Table:
        """The first rows of one row group as they are stored, with key columns, sequence numbers and row kinds."""
        from paimon_cli.inspect.file_report import row_group_rows

        return row_group_rows(self.context, self.file(name, snapshot=snapshot).path, number, limit)

    def report(
        self, html: str, *, force: bool = False, snapshot: Point | None = None, argument: str | None = None
    ) -> WrittenReport:
        """Write the state and history of the table as one HTML page to a file or URL, with what keeps its bytes, and what the
        services of its warehouse did in the last week.

        `force`: replace an existing file; `snapshot`: show the files and the history at this one; `argument`: the name of the
        table in commands.
        """
        from paimon_cli import __version__
        from paimon_cli.catalog.warehouse_ledger import ledger_of_table
        from paimon_cli.inspect.report_figures import report_figures
        from paimon_cli.inspect.report_page import report_page
        from paimon_cli.inspect.spent_on_table import spent_on_table
        from paimon_cli.storage.whole_file import whole_file

        table = self.supported
        found = ledger_of_table(table)
        spent = None if found is None else spent_on_table(*found)
        figures = report_figures(table, self.name, argument or table.layout.argument, self._snapshot_id(snapshot), spent)
        page = report_page(figures, __version__).encode(errors="replace")
        with whole_file(html, table.place.store_options, self.context.random, replace=force) as sink:
            sink.write(page)
        findings = len(figures.health.findings)
        return WrittenReport(html, len(page), figures.health.verdict, findings, figures.bucket_count, len(figures.kinds))

    def simulate(
        self,
        set: Mapping[str, str] | None = None,
        *,
        compare: bool = False,
        compact_every: int = 1,
        workload: Mapping[str, Any] | None = None,
    ) -> Simulation:
        """Compare compaction options by simulating the table's history, or a `workload`; see `simulate`."""
        return simulate(workload, set, compare=compare, compact_every=compact_every, table=self)


@dataclass(frozen=True)
class WrittenReport:
    """The page that `Table.report` wrote: its path, its bytes, and what it covers."""

    html: str
    size: int
    verdict: str
    findings: int
    buckets: int
    snapshots: int


@dataclass(frozen=True)
class Simulation:
    """The result for each set of options. `workload`: a description of what was simulated."""

    workload: str
    scenarios: list[ScenarioRow]


def simulate(
    workload: Mapping[str, Any] | None = None,
    set: Mapping[str, str] | None = None,
    *,
    compare: bool = False,
    compact_every: int = 1,
    table: OpenedTable | None = None,
    options: Mapping[str, str] | None = None,
    runtime: Runtime | None = None,
) -> Simulation:
    """Compare compaction options by simulation: write, read and space amplification, stalls.

    A `workload` may have `commits`, `rows`, `row_bytes`, `update_ratio`, `skew`, `buckets`, `commit_interval` (ms) and
    `seed`; without one the history of `table` is replayed. The baseline are the options of the table, or `options`; `set`
    is applied on top. `compare`: also try other triggers, size ratios and amplification limits. A compaction round follows
    every `compact_every` commits.
    """
    from paimon_cli.inspect.compaction_scenarios import scenarios, workload_shape
    from paimon_cli.inspect.replayed_commits import history_workload
    from paimon_cli.lsm.compaction_simulation import synthetic_workload
    from paimon_cli.options.option_text import counted
    from paimon_cli.options.table_options import TableOptions

    check_positive(compact_every=compact_every)
    progress = (runtime or (table.runtime if table is not None else Runtime())).new_progress()
    replayed: SimulatedWorkload[Any]
    try:
        if workload:
            shape = workload_shape(workload)
            progress.start("Generating commits", shape.commits)
            replayed = synthetic_workload(shape, progress.advance)
            rows = counted(shape.rows, "row")
            what = f"{shape.commits:,} commits of {rows}, {shape.update_ratio:.0%} updates"
        elif table is not None:
            replayed, what = history_workload(table.context), f"the history of {table.name}"
        else:
            hint = "paimon-cli simulate --commits 100 --rows 1000 --update-ratio 0.5"
            raise UsageError("nothing to simulate", "neither a table nor a workload was given", hint)
        baseline = TableOptions(dict(options or {})) if table is None else table.context.options

        def on_scenario(number: int, count: int) -> OnCommit:
            progress.start(f"Simulating, {number} of {count}", len(replayed.commits))
            return progress.advance

        return Simulation(what, scenarios(replayed, baseline, set or {}, compare, compact_every, on_scenario))
    finally:
        progress.finish()


def _partitions(context: TableContext, partitions: Partitions | None) -> PartitionSpec | None:
    """The selected partitions; None for all."""
    if partitions is None:
        return None
    from paimon_cli.history.partition_spec import PartitionSpec

    return PartitionSpec.parse_any(context, partition_list(partitions))


def _buckets(buckets: Buckets | None) -> frozenset[int] | None:
    """The selected bucket numbers; None for all."""
    from paimon_cli.history.live_files import bucket_numbers

    return bucket_numbers(bucket_list(buckets))
