"""`cost`: the bytes of a table by what keeps them, what each removal would free, and how the table has grown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_report import decision_rows
from paimon_cli.inspect.daily_growth import GrowthRow, growth_by_day, retained_changes
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.operation_cost import OperationCost, operation_costs
from paimon_cli.inspect.price_table import PriceTable
from paimon_cli.inspect.stored_bytes import CostRow, rows_by_owner
from paimon_cli.jobs.engine import Progress
from paimon_cli.jobs.reclaim_job import Expiry, plan_expire
from paimon_cli.maintain.expire_snapshots import bytes_to_write, files_to_delete_now, plan_expiry
from paimon_cli.maintain.named_files import measured, total_size
from paimon_cli.maintain.owners import BRANCH, CONSUMER, ORPHANS, TAG, OwnedFiles, Owner, find_owners
from paimon_cli.maintain.retention import Retention, consumers
from paimon_cli.requests.maintenance import ExpireOptions
from paimon_cli.storage.redaction import shown_name

TRASH = "trash"
ONCE_OLD = "once the files are a day old"
"""When orphan cleaning deletes what no version names."""


@dataclass(frozen=True)
class Saving:
    """What a command would free now. `files`: those that it deletes; `bytes`: theirs without `bytes_written`, those of the
    changelogs that an expiry writes in place of snapshots, if changelogs outlive them. `loses`: what could no longer be read.

    `freed_later`: the bytes that it makes needless and leaves; `later_command` deletes them, `later_when` that is possible. The
    two are empty if nothing is left.
    """

    table: str
    what: str
    files: int
    bytes: int
    loses: str
    command: str
    freed_later: int = 0
    later_when: str = ""
    later_command: str = ""
    bytes_written: int = 0

    @property
    def all_bytes(self) -> int:
        """What is free in the end."""
        return self.bytes + self.freed_later


@dataclass(frozen=True)
class CompactionCost:
    """What the compaction that the triggers of a table pick now would do to its storage, in bytes.

    About `write_bytes` at most are stored at once, beside changelogs: how many rows replace others is not known before.
    `freed_later`: the data files that it replaces, which go when the snapshots that name them expire, and some manifests with
    them; a tag or branch keeps those that it names.
    """

    table: str
    buckets: int
    files: int
    write_bytes: int
    freed_later: int
    command: str


@dataclass(frozen=True)
class TableCost:
    """The cost of a table: `rows` by owner, which add up to `files` and `bytes`, and `savings`.

    `growth`: by day, as far as the retained snapshots tell. `due`: the compaction that is due, None if none is. `operations`:
    what a read, a write, the due compaction and an idle hour of a service take. `month`: the money for storing the bytes that
    long, in `currency`; None without prices.
    `problem`: why nothing is known about the table; None if all is well.
    """

    table: str
    files: int = 0
    bytes: int = 0
    rows: Sequence[CostRow] = ()
    savings: Sequence[Saving] = ()
    growth: Sequence[GrowthRow] = ()
    due: CompactionCost | None = None
    operations: Sequence[OperationCost] = ()
    month: float | None = None
    currency: str | None = None
    problem: PaimonError | None = None


def cost_of_table(context: TableContext, name: str, argument: str, progress: Progress) -> TableCost:
    """The cost of the table called `name`, whose commands call it `argument`. Raises `DamagedFile` if a version is unreadable."""
    owned = find_owners(context)
    changes, table = retained_changes(context), ExaminedTable(context, argument)
    savings = _Savings(context, owned, name, argument, progress)
    found = sorted(savings.all(), key=lambda saving: (-saving.all_bytes, saving.what))
    return TableCost(
        name,
        owned.files,
        owned.size,
        [*rows_by_owner(name, owned)],
        [saving for saving in found if saving.files],
        growth_by_day(changes, name),
        _due_compaction(table, name, argument),
        operation_costs(table, name, changes),
    )


def cost_of_dropped(name: str, files: int, size: int) -> TableCost:
    """The cost of a dropped table called `name`: what its entry in the trash says."""
    shown = shown_name(name)
    return TableCost(shown, files, size, [CostRow(shown, TRASH, files, size)])


def priced(cost: TableCost, prices: PriceTable) -> TableCost:
    """The cost with the money for its operations, and for storing its bytes for a month."""
    operations = [prices.priced(operation) for operation in cost.operations]
    return replace(cost, operations=operations, month=prices.of_month(cost.bytes), currency=prices.currency)


def _due_compaction(table: ExaminedTable, name: str, argument: str) -> CompactionCost | None:
    """None also for a table that this version cannot compact."""
    rows = decision_rows(table.context, table.due.values())
    if not rows:
        return None
    rewritten = [row for row in rows if row.read_bytes]
    return CompactionCost(
        name,
        len(rows),
        sum(row.files - row.upgraded for row in rewritten),
        sum(row.read_bytes for row in rewritten),
        sum(row.read_bytes for row in rewritten),
        f"paimon-cli compact {argument}",
    )


@dataclass
class _Savings:
    """What could be removed. Expiries are planned as the command would, the rest is counted from the owners."""

    context: TableContext
    owned: OwnedFiles
    name: str
    argument: str
    progress: Progress

    def all(self) -> Iterator[Saving]:
        yield from self._expiries()
        yield from self._tags()
        yield from self._branches()
        yield from self._consumers()
        files, size = self.owned.only(Owner(ORPHANS))
        yield self._saving("orphans", files, size, "nothing", "orphans rm", "--apply")

    def _saving(self, what: str, files: int, size: int, loses: str, command: str, *options: str) -> Saving:
        return Saving(self.name, what, files, size, loses, self._command(command, *options))

    def _command(self, command: str, *options: str) -> str:
        return " ".join(("paimon-cli", command, self.argument, *options))

    def _with_later(self, saving: Saving, size: int, when: str, command: str) -> Saving:
        """The saving with the bytes that its command leaves for another one."""
        return replace(saving, freed_later=size, later_when=when, later_command=command) if size else saving

    def _expiries(self) -> Iterator[Saving]:
        own = plan_expire(self.context, ExpireOptions(), self.progress)
        yield self._expiry(own, "snapshots that are due to expire", f"time travel to {len(own.names)} of the snapshots")
        latest = plan_expire(self.context, ExpireOptions(retain_max=1), self.progress)
        if len(latest.names) > len(own.names):
            what, loses = "all snapshots but the latest", "time travel, except to tags, branches and what consumers still read"
            yield self._expiry(latest, what, loses, "--retain-max", "1")
        changelogs = plan_expire(self.context, ExpireOptions("changelogs"), self.progress)
        loses = f"{len(changelogs.names)} changelogs"
        yield self._expiry(changelogs, "changelogs that are due to expire", loses, "--what changelogs")
        few = plan_expire(self.context, ExpireOptions("changelogs", retain_max=1), self.progress)
        if len(few.names) > len(changelogs.names):
            what, loses = "all changelogs that may go", f"{len(few.names)} changelogs, except what consumers still read"
            yield self._expiry(few, what, loses, "--what changelogs", "--retain-max", "1")

    def _expiry(self, plan: Expiry, what: str, loses: str, *options: str) -> Saving:
        files, written = plan.files(), plan.written()
        saving = self._saving(what, len(files), total_size(files) - written, loses, "expire", *options)
        return replace(saving, bytes_written=written)

    def _tags(self) -> Iterator[Saving]:
        for owner in self._owners(TAG):
            files, size = self.owned.only(owner)
            loses = f"the state that tag {shown_name(owner.name)} keeps"
            yield self._saving(f"tag {shown_name(owner.name)}", files, size, loses, "tags rm", shlex.quote(owner.name))

    def _branches(self) -> Iterator[Saving]:
        """The removal of a branch deletes its directory alone: its data files may be those of a job that still runs."""
        for owner in self._owners(BRANCH):
            files, size = self.owned.branch_directories.get(owner.name, (0, 0))
            shown = shown_name(owner.name)
            saving = self._saving(
                f"branch {shown}", files, size, f"all rows of branch {shown}", "branches rm", shlex.quote(owner.name)
            )
            left = self.owned.only(owner)[1] - size
            yield self._with_later(saving, left, ONCE_OLD, self._command("orphans rm", "--apply"))

    def _owners(self, kind: str) -> list[Owner]:
        found = {owner for group in self.owned.groups for owner in group.owners if owner.kind == kind}
        return sorted(found, key=lambda owner: owner.name)

    def _consumers(self) -> Iterator[Saving]:
        """What an expiry would free in addition, if a consumer had read everything. Its removal frees its file.

        It is the table's own. If that would free nothing more, because the snapshots are young, one of all but the latest.
        """
        names = {consumer.name for consumer in consumers(self.context)}
        if not names:
            return
        own = Retention.of(self.context.options)
        latest = own.asking(self.context, 1, None, None, None)
        before, before_latest = self._expired(own), self._expired(latest)
        for name in sorted(names):
            shown, ignored = shown_name(name), frozenset((name,))
            loses = f"what consumer {shown} has not read yet"
            what = f"snapshots that only consumer {shown} keeps"
            saving = self._saving(what, *self.owned.only(Owner(CONSUMER, name)), loses, "consumers rm", shlex.quote(name))
            left = self._expired(replace(own, ignored=ignored)) - before
            if left:
                yield self._with_later(saving, left, "once the snapshots expire", self._command("expire"))
                continue
            left = self._expired(replace(latest, ignored=ignored)) - before_latest
            if left:
                saving = replace(saving, loses=f"{loses}, then time travel to these snapshots")
                when = "when all snapshots but the latest expire"
                yield self._with_later(saving, left, when, self._command("expire", "--retain-max", "1"))

    def _expired(self, retention: Retention) -> int:
        """The bytes that an expiry would free."""
        plan = plan_expiry(self.context, replace(retention, limit=None))
        if plan is None:
            return 0
        return total_size(measured(self.context, files_to_delete_now(self.context, plan))) - bytes_to_write(self.context, plan)
