"""A catalog as an object: its databases, its tables, their commit locks, and compaction of several tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_cli.api.maintenance import CompactOptions, Planned, compact_request
from paimon_cli.api.opened_table import Runtime, check_positive
from paimon_cli.api.table import Table, check_table_options
from paimon_cli.api.table_choice import TableChoice
from paimon_cli.catalog.table_location import TableLocation, locate_table
from paimon_cli.errors import NotFound, PaimonError, StorageUnavailable, UsageError
from paimon_cli.metastore.find import find_metastore
from paimon_cli.metastore.metastore import Metastore, TableIdentifier, is_name
from paimon_cli.metastore.settings import SettingRow, read_settings
from paimon_cli.options.option_text import counted
from paimon_cli.storage.catalog_options import split_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from paimon_cli.api.comparison import Versions
    from paimon_cli.api.sql_query import SqlResult
    from paimon_cli.catalog.table_listing import DatabaseRow, TableRow
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.ingest.text_form import TextForm
    from paimon_cli.inspect.health_report import HealthRow
    from paimon_cli.inspect.lock_report import LockReport, LockRow
    from paimon_cli.jobs.clone_job import ClonedTable
    from paimon_cli.jobs.compact_request import CompactionPlan, CompactRequest
    from paimon_cli.jobs.compaction_service import ServedTable, ServiceWatcher, TableRound
    from paimon_cli.jobs.comparison import Comparison
    from paimon_cli.jobs.table_change import Shield
    from paimon_cli.storage.lock_table import HeldLock


COMPACTION = "compaction"
"""Name of the leases of compaction services."""
NAMED = 5
"""How many tables a message names."""


@dataclass(frozen=True)
class DatabaseDrop:
    """A database to be dropped, and the tables that are dropped with it."""

    database: str
    table_names: tuple[str, ...]


class Catalog:
    """The tables of a warehouse, and of any directory.

    The warehouse is `url`, else `PAIMON_WAREHOUSE`, else that of `./paimon.yaml`; tables that are named by paths need none.
    `options` holds catalog options (`s3.endpoint`; `profile` chooses a profile of that file) and table options, which override
    the options that each table stores.

    >>> catalog = Catalog(str(getfixture("tmp_path")))
    >>> Table.create("shop.orders", columns=["id BIGINT NOT NULL"], primary_key="id", bucket=1, warehouse=catalog.url)
    Table('shop.orders')
    >>> [(table.table, table.records) for table in catalog.tables()]
    [('shop.orders', 0)]
    >>> [done.state for done in catalog.compact(database="shop")]
    ['nothing to do']
    """

    def __init__(
        self,
        url: str | None = None,
        options: Mapping[str, str] | None = None,
        *,
        branch: str | None = None,
        strict_options: bool = False,
        allow_unsafe_commit: bool = False,
        runtime: Runtime | None = None,
    ) -> None:
        self.url, self.branch, self.runtime = url, branch, runtime or Runtime()
        self._options, self._table_options = split_options({key: str(value) for key, value in (options or {}).items()})
        self._allow_unsafe_commit = allow_unsafe_commit
        check_table_options(self._table_options, self.runtime, strict=strict_options)

    @classmethod
    def at(
        cls,
        url: str | None,
        options: Mapping[str, str],
        table_options: Mapping[str, str],
        runtime: Runtime,
        *,
        branch: str | None = None,
        allow_unsafe_commit: bool = False,
    ) -> Catalog:
        """A catalog whose options are split and checked."""
        catalog = cls(url, options, branch=branch, allow_unsafe_commit=allow_unsafe_commit, runtime=runtime)
        catalog._table_options = dict(table_options)
        return catalog

    def tables(self, place: str | None = None, *, database: str | None = None) -> list[TableRow]:
        """The tables of the warehouse, of one database, or below a directory; `place` is a database or a directory.

        A table that cannot be opened is listed with its problem. Raises `NotFound` if the place does not exist.
        """
        from paimon_cli.catalog.table_listing import table_rows, tables_below, tables_of_database, tables_of_warehouse

        if place is not None and database is not None:
            raise UsageError(f"'{place}' and --database {database} both name a place to look", hint="leave one of the two out")
        place = database or place
        if place is None:
            found = tables_of_warehouse(self._metastore)
        elif is_name(place) and self._metastore.has_names:
            found = tables_of_database(place, self._metastore)
        else:
            found = tables_below(place, self._metastore)
        return table_rows(found)

    def databases(self) -> list[DatabaseRow]:
        """The databases by name."""
        from paimon_cli.catalog.table_listing import database_rows

        return database_rows(self._metastore)

    def create_database(self, name: str, *, if_not_exists: bool = False) -> bool:
        """Make a database. False if it exists and that is allowed; otherwise `UsageError`."""
        if not is_name(name):
            raise UsageError(f"'{name}' is not a valid database name", "it may not contain . / \\ or $")
        metastore = self._metastore
        if if_not_exists:
            with suppress(NotFound):
                metastore.database(name)
                return False
        metastore.create_database(name)
        return True

    def plan_drop_database(self, name: str, *, cascade: bool = False) -> Planned[DatabaseDrop, DatabaseDrop]:
        """The tables that would be dropped with a database. `UsageError` if it has any, unless `cascade`."""
        metastore = self._metastore
        metastore.database(name)
        tables = [TableLocation.of(table, metastore) for table in metastore.tables(name)]
        if tables and not cascade:
            shown = ", ".join(location.name for location in tables[:NAMED])
            raise UsageError(
                f"database {name} is not empty",
                f"it has {counted(len(tables), 'table')}: {shown}{', ...' if len(tables) > NAMED else ''}",
                "drop them first, or pass --cascade",
            )

        def run() -> DatabaseDrop:
            for location in tables:
                self._open(location).drop()
            metastore.drop_database(name)
            return plan

        plan = DatabaseDrop(name, tuple(location.name for location in tables))
        return Planned(plan, run)

    def drop_database(self, name: str, *, cascade: bool = False) -> DatabaseDrop:
        """Remove a database; with `cascade` drop its tables first."""
        return self.plan_drop_database(name, cascade=cascade).run()

    def rename_table(self, old: str, new: str) -> None:
        """Give a table of the catalog another name, in one step. Stop its writers first.

        Raises `Refused` on stores that cannot move a directory in one step, `UsageError` if the new name is taken.
        """
        self._metastore.rename_table(TableIdentifier.parse(old), TableIdentifier.parse(new))

    def clone_table(self, source: str, target: str) -> ClonedTable:
        """Copy the latest snapshot of a table, with its data files, into a new table."""
        from paimon_cli.jobs.clone_job import clone_table

        opened = self._open(self._locate(source))
        location = locate_table(target, self.url, self._options, is_new=True)
        return clone_table(opened.context, opened.name, replace(location, allow_unsafe_commit=self._allow_unsafe_commit))

    def settings(self) -> list[SettingRow]:
        """What the catalog is configured with, and where each value comes from. Secrets are hidden."""
        return read_settings(self.url, self._options).rows()

    def health(
        self, tables: Sequence[str] = (), *, database: str | None = None, argument: Callable[[str], str] = str
    ) -> list[HealthRow]:
        """The health of tables, of all tables of a database, or of the warehouse; the tables that need most care come first.

        A table that cannot be opened is a row, too; `NotFound` if one of `tables` does not exist. `argument` turns a name into
        what the commands of the findings take.
        """
        from paimon_cli.catalog.table_listing import tables_of_database, tables_of_warehouse
        from paimon_cli.inspect.health_report import by_pain, health_of, unreadable

        if tables and database is not None:
            raise UsageError("tables and --database", "each names what to examine", "leave one of the two out")
        if tables:
            found: Iterable[TableLocation] = [self._locate(table) for table in tables]
        elif database is not None:
            found = tables_of_database(database, self._metastore)
        else:
            found = tables_of_warehouse(self._metastore)

        def examined(location: TableLocation) -> HealthRow:
            name = argument(location.name)
            try:
                return health_of(self._open(location).context, location.name, name)
            except PaimonError as error:
                if tables and isinstance(error, NotFound):
                    raise
                return unreadable(location.name, name, error)

        return by_pain(map(examined, found))

    def compare(
        self,
        here: str,
        there: str,
        *,
        key: Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        where: str | None = None,
        limit: int = 10,
        format: str | None = None,
        form: TextForm | None = None,
        **versions: Unpack[Versions],
    ) -> Comparison:
        """Compare the rows of two tables, of two versions of a table, or of a table and files.

        A side is a table, `table@3` at a snapshot or `table@nightly` at a tag, or a file, glob or directory of files in `format`
        (default by its extension). `versions` name them separately: `snapshot_a`, `tag_a`, `branch_a` and the same with `_b`.
        Rows are paired by `key`, by default the primary key, or counted as a whole where there is none (or `key` is empty).
        """
        from paimon_cli.api.comparison import compare_sides

        return compare_sides(self, (here, there), key, columns, where, limit, format, form, versions)

    def sql(self, query: str) -> SqlResult:
        """Run one SELECT with DuckDB over tables of this catalog, or over tables named by their paths in double quotes.

        DuckDB asks for columns and conditions, by which files are skipped. Raises `UsageError` for other statements, for errors
        in the query, and where duckdb is not installed.
        """
        from paimon_cli.api.sql_query import run_query

        return run_query(query, self.table, self.runtime.trace)

    def locks(self, table: str | None = None) -> LockReport:
        """How the commits of a table, or of the warehouse, are kept apart, and the commit locks that are held.

        Where only a test can tell, as on S3, two writers race for a probe file, which is then removed.
        """
        from paimon_cli.inspect.lock_report import table_lock, warehouse_locks

        if table is None:
            return warehouse_locks(self._metastore)
        location = self._locate(table)
        context = self._open(location).context
        return table_lock(location, context.storage, context.layout.root)

    def plan_break_lock(self, table: str, *, even_if_valid: bool = False) -> Planned[HeldLock, LockRow]:
        """The commit lock of a table, which `run` breaks. Raises `Refused` while it is valid, unless `even_if_valid`."""
        from paimon_cli.inspect.lock_report import break_held_lock, breakable_lock

        location = self._locate(table)
        settings, lock = breakable_lock(location, self._open(location).context.layout.root, even_if_valid=even_if_valid)
        return Planned(lock, lambda: break_held_lock(location, settings, lock))

    def break_lock(self, table: str, *, even_if_valid: bool = False) -> LockRow:
        """Break the commit lock of a table whose holder died. Writers take over expired locks on their own."""
        return self.plan_break_lock(table, even_if_valid=even_if_valid).run()

    def plan_compaction(
        self,
        tables: Sequence[str] = (),
        *,
        database: str | Sequence[str] | None = None,
        all_tables: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        strategy: str = "full",
        **options: Unpack[CompactOptions],
    ) -> Iterator[tuple[Table, CompactionPlan]]:
        """What `compact` would do to each table. Nothing is changed."""
        from paimon_cli.jobs.compact_request import plan_compaction

        choice = TableChoice.of(tables, database, all_tables, include, exclude)
        request = _request(choice, strategy, options)

        def planned(location: TableLocation) -> tuple[Table, CompactionPlan]:
            table = self._open(location)
            table.check_call()
            return table, plan_compaction(table.context, request)

        return map(planned, self._locations(choice, self._metastore))

    def compact(
        self,
        tables: Sequence[str] = (),
        *,
        database: str | Sequence[str] | None = None,
        all_tables: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        strategy: str = "full",
        dedicated: bool = False,
        parallelism: int | None = None,
        shield: Shield = nullcontext,
        **options: Unpack[CompactOptions],
    ) -> Iterator[TableRound]:
        """Compact tables, databases or the whole warehouse, table by table; the failure of one does not stop the rest.

        `include` and `exclude` are regular expressions of whole names of tables. `dedicated`: warn if writers may compact as
        well, unless that is how new rows become visible. `shield` holds signals back during a commit. Results come as tables
        are done.
        """
        from paimon_cli.jobs.compact_job import run_compact
        from paimon_cli.jobs.compaction_service import COMPACTED, FAILED, NOTHING, TableRound

        choice = TableChoice.of(tables, database, all_tables, include, exclude)
        request, found = _request(choice, strategy, options), self._locations(choice, self._metastore)

        def rounds() -> Iterator[TableRound]:
            with self.runtime.engine_running(parallelism) as engine:
                for location in found:
                    try:
                        table = self._open_to_compact(location)
                        if dedicated and not (table.context.mode.awaits_compaction or table.context.mode.postpones_rows):
                            self._warn_of_other_compactors(table)
                        context = table.context
                        summary = run_compact(context, request, engine, self.runtime.new_progress(), shield=shield)
                    except PaimonError as error:
                        yield TableRound(location.name, FAILED, error=error)
                    else:
                        state = COMPACTED if summary.buckets else NOTHING
                        yield TableRound(location.name, state, summary, standing=summary.plan.standing)

        return rounds()

    def watch(
        self,
        tables: Sequence[str] = (),
        *,
        watcher: ServiceWatcher,
        database: str | Sequence[str] | None = None,
        all_tables: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        strategy: str = "minor",
        dedicated: bool = False,
        interval: str = "10 s",
        max_rounds: int | None = None,
        parallelism: int | None = None,
        shield: Shield = nullcontext,
        lease: str = "1 min",
        expire: bool = False,
        orphans_every: str | None = None,
        **options: Unpack[CompactOptions],
    ) -> None:
        """Compact in rounds with a pause of `interval` between them, until interrupted or for `max_rounds`.

        Named tables must exist at the start and may vanish later; databases are listed before each round. `watcher` is informed
        of each table and round. Services of the same tables share the work: each compacts a table while it holds its lease, and
        takes over what a dead one has not renewed for the time `lease`; `0 s`: without leases. `expire`: also expire snapshots
        of tables with new ones, by their own options. `orphans_every`: also delete the orphans of each table at this interval.
        """
        from paimon_cli.jobs.compaction_service import CompactionService
        from paimon_cli.jobs.leases import Leases
        from paimon_cli.jobs.service_turn import Upkeep
        from paimon_cli.options.option_text import parse_duration
        from paimon_cli.storage.clock_and_random import SystemClock, SystemRandom

        pause, lives = parse_duration(interval) / 1000, parse_duration(lease)
        check_positive(max_rounds=max_rounds)
        if options.get("if_snapshot") is not None:
            raise UsageError("--watch cannot be combined with --if-snapshot", "every round makes its own plan")
        upkeep = Upkeep(expire, None if orphans_every is None else parse_duration(orphans_every))
        choice = TableChoice.of(tables, database, all_tables, include, exclude)
        request, clock = _request(choice, strategy, options), SystemClock()
        leases = Leases(COMPACTION, SystemRandom().uuid(), lives, clock) if lives else None
        served = self._served(choice, dedicated, has_leases=leases is not None)
        with self.runtime.engine_running(parallelism) as engine:
            CompactionService(served, request, engine, clock, watcher, shield, leases, upkeep).run(pause, max_rounds)

    def _served(self, choice: TableChoice, dedicated: bool, has_leases: bool) -> Callable[[], list[ServedTable]]:
        """Lists the tables of the service. Named ones are checked now, the others before they are first compacted: by
        their lease, which is created as safely as a snapshot, or else when they are first opened.
        """
        from paimon_cli.jobs.compaction_service import ServedTable

        metastore, met = self._metastore, set[str]()
        last: dict[TableChoice, list[TableLocation]] = {}

        def context_at(location: TableLocation) -> TableContext:
            table = self._open(location)
            context = table.context
            if location.name in met:
                return context
            if not (choice.is_listed and has_leases):
                table.check_commit()
            if dedicated:
                self._warn_of_other_compactors(table)
            met.add(location.name)
            return context

        def listed(part: TableChoice) -> list[TableLocation]:
            try:
                last[part] = list(self._locations(part, metastore))
            except NotFound:
                last[part] = []  # all tables of the database are gone; new ones may come
            except StorageUnavailable as error:
                if part not in last:
                    raise
                self.runtime.warn(f"the tables could not be listed, and the list of the last round is used: {error}")
            return last[part]

        for location in self._locations(choice, metastore):
            if not choice.is_listed:
                context_at(location)

        def served() -> list[ServedTable]:
            found = (location for part in choice.one_by_one() for location in listed(part))
            return [ServedTable(location.name, partial(context_at, location)) for location in found]

        return served

    def _locations(self, choice: TableChoice, metastore: Metastore) -> Iterator[TableLocation]:
        for location in choice.locations(self._locate, metastore, self.branch):
            yield replace(location, allow_unsafe_commit=self._allow_unsafe_commit)

    @property
    def _metastore(self) -> Metastore:
        """The catalog as it is configured now."""
        return find_metastore(self.url, self._options)

    def _locate(self, table: str, branch: str | None = None) -> TableLocation:
        location = locate_table(table, self.url, self._options, branch or self.branch)
        return replace(location, allow_unsafe_commit=self._allow_unsafe_commit)

    def _open(self, location: TableLocation) -> Table:
        return Table.at(location, self._table_options, self.runtime)

    def table(self, name: str, *, branch: str | None = None) -> Table:
        """A table of this catalog, by `db.table` or by its path. `NotFound`."""
        return self._open(self._locate(name, branch))

    def _open_to_compact(self, location: TableLocation) -> Table:
        table = self._open(location)
        table.check_commit()
        return table

    def _warn_of_other_compactors(self, table: Table) -> None:
        if not table.context.options.write_only:
            self.runtime.warn(f"{table.name} is not write-only, so its writers may compact as well: set write-only=true")


def _request(choice: TableChoice, strategy: str, options: CompactOptions) -> CompactRequest:
    """The request for each table of a choice."""
    if options.get("if_snapshot") is not None and (choice.is_listed or len(choice.tables) > 1):
        raise UsageError("--if-snapshot pins the plan of one table", "snapshot ids of different tables are unrelated")
    return replace(compact_request(strategy, options), unknown_buckets_allowed=choice.is_listed)
