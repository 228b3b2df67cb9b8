"""The health of several tables, most urgent first, and what mends them without discarding anything."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.health import FixCall, Fixed, FixPlan
from paimon_cli.api.maintenance import Planned
from paimon_cli.api.opened_catalog import OpenedCatalog
from paimon_cli.api.table_choice import ChosenTable
from paimon_cli.errors import NotSupported, PaimonError
from paimon_cli.requests.integrity import CostOfTables, ExaminedTables, HealthOfTables, SomeTables
from paimon_cli.storage.redaction import without_login
from paimon_cli.storage.time_bounds import look_at_each

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.inspect.health_report import HealthRow
    from paimon_cli.jobs.table_cost import TableCost

_Found = TypeVar("_Found")


class FixesCall(ExaminedTables):
    """What to look for in tables, which may have other names in commands."""

    _: KW_ONLY
    argument: Callable[[str], str] | None = None


class CostOfTablesCall(CostOfTables):
    """The tables to look at, which may have other names in commands."""

    _: KW_ONLY
    argument: Callable[[str], str] | None = None


class HealthOfTablesCall(HealthOfTables):
    """What to look for in tables, which may have other names in commands, and whether to mend it."""

    _: KW_ONLY
    argument: Callable[[str], str] | None = None


@checks_arguments
class Examination(OpenedCatalog):
    """The methods of `Catalog` that judge its tables, and mend what they find."""

    @takes(HealthOfTablesCall)
    def health(self, call: HealthOfTablesCall) -> list[HealthRow]:
        """The health of `tables`, of all tables of a database, or of the warehouse, most urgent first.

        A table that cannot be opened, or gives no answer in time (`table-timeout`, an option of the catalog), gets a row too.
        Raises `NotFound` if one of `tables` does not exist. Nothing is written, unless `fix` is set: then what the findings
        propose is done as far as it discards nothing, and the result is what is left. `argument`: converts the name of a table
        into the argument for the commands of its findings.
        """
        if not call.fix:
            return [each.row for each in self._examined(FixesCall.of(call))]
        fixed = self.plan_fixes(**vars(FixesCall.of(call))).run()
        fixed.raise_failures()
        return fixed.rows

    @takes(FixesCall)
    def plan_fixes(self, call: FixesCall) -> Planned[FixPlan, Fixed]:
        """Plan to mend what `health` finds in these tables, as far as that discards nothing; see `Table.plan_fix`.

        `argument`: converts the name of a table into the argument for commands.
        """
        from paimon_cli.inspect.findings.remedies import FixStep, steps_of
        from paimon_cli.inspect.health_report import by_urgency

        found = self._examined(call)
        planned = [steps_of(each.row.table, each.row.findings) if each.table is not None else [] for each in found]

        def run() -> Fixed:
            done: list[FixStep] = []
            errors: list[PaimonError] = []
            left: list[HealthRow] = []
            for each, steps in zip(found, planned, strict=True):
                if each.table is None or not steps:
                    left.append(each.row)
                    continue
                tried, failures = each.table._carried_out(steps)
                done, errors = [*done, *tried], [*errors, *failures]
                left.append(each.table._health(_asked(call, each.argument), each.row.table, failures))
            return Fixed(by_urgency(left), done, errors)

        return Planned(FixPlan([each.row for each in found], [step for steps in planned for step in steps]), run)

    @takes(CostOfTablesCall)
    def cost(self, call: CostOfTablesCall) -> list[TableCost]:
        """What `tables`, all tables of a database, or of the warehouse store, in bytes, and what removals would free.

        The rows of a table, by what keeps the files, add up to all files in its directory. A table whose cost cannot be told has
        the error as its `problem`. Unless `tables` are named, dropped tables that lie in the trash follow. Raises `NotFound` if
        one of `tables` does not exist. Nothing is written. `argument`: converts the name of a table into the argument for
        commands.
        """
        from paimon_cli.inspect.price_table import price_table
        from paimon_cli.jobs.table_cost import TableCost, priced

        prices = None if call.prices is None else price_table(call.prices)

        def unknown(name: str, error: PaimonError) -> TableCost:
            return TableCost(name, problem=error)

        def look(table: Table, name: str, word: str) -> TableCost:
            return table._cost(name, word)

        damaged, found = self._looked_at(call, call.argument or self._pasted, look)
        costs = [unknown(error.path or "", error) for error in damaged]
        costs += (unknown(name, cost) if isinstance(cost, PaimonError) else cost for name, cost in found)
        if not call.tables:
            costs += self._trash_costs(call.database)
        return costs if prices is None else [priced(cost, prices) for cost in costs]

    def _trash_costs(self, database: str | None) -> list[TableCost]:
        """The dropped tables of a database, or of all. None if the catalog has no trash; unreadable entries are left to
        `trash ls`.
        """
        from paimon_cli.catalog.warehouse_trash import trash_of_warehouse
        from paimon_cli.jobs.table_cost import cost_of_dropped

        try:
            trash = trash_of_warehouse(self._metastore)
        except NotSupported:
            return []
        entries = trash.entries(lambda _: None)
        chosen = (entry for entry in entries if database is None or entry.table.startswith(f"{database}."))
        return [cost_of_dropped(entry.table, entry.files, entry.size) for entry in chosen]

    def _examined(self, call: FixesCall) -> list[_Examined]:
        """The tables with their health, most urgent first."""
        from paimon_cli.catalog.warehouse_policy import warehouse_of_place
        from paimon_cli.inspect.findings.finding import Finding
        from paimon_cli.inspect.findings.policy_findings import refused_settings, shorter_retention, unreadable_policy
        from paimon_cli.inspect.health_report import damaged_entry, of_policy, unreadable, with_findings
        from paimon_cli.maintain.policy_effect import judged_for

        argument = call.argument or self._pasted

        policies, unread = self._policies(), dict[str, Finding]()

        def look(table: Table, name: str, word: str) -> _Examined:
            row = table._health(_asked(call, word), name)
            try:
                policy = policies.of(table.context.place)
            except PaimonError as error:
                command = self._showing_policy(warehouse_of_place(table.context.place))
                unread.setdefault(error.message, unreadable_policy(error, command))
                return _Examined(row, word, table)
            judged = judged_for(policy, table.context) if policy.met else []
            return _Examined(with_findings(row, shorter_retention(judged, f"paimon-cli policy show {word}")), word, table)

        damaged, looks = self._looked_at(call, argument, look)
        found = [_Examined(damaged_entry(error)) for error in damaged]
        found += (_Examined(of_policy("policy.yaml", [finding])) for finding in unread.values())
        for warehouse, of_warehouse in policies.read.items():
            if refused := refused_settings(of_warehouse.refused, self._showing_policy(warehouse)):
                found.append(_Examined(of_policy("policy.yaml", refused)))
        for name, each in looks:
            found.append(_Examined(unreadable(name, argument(name), each)) if isinstance(each, PaimonError) else each)
        return sorted(found, key=lambda each: each.row.place)

    def _showing_policy(self, warehouse: str | None) -> str:
        """The command that shows the policy of a warehouse. None: of that of the catalog."""
        command = "paimon-cli policy show"
        if warehouse is None or self.url is not None:
            return command + self._metastore.flags
        return f"{command} --warehouse {shlex.quote(without_login(warehouse))}"

    def _looked_at(
        self, call: SomeTables, argument: Callable[[str], str], look: Callable[[Table, str, str], _Found]
    ) -> tuple[list[PaimonError], list[tuple[str, _Found | PaimonError]]]:
        """The errors of damaged entries of the catalog; for each table its name, and what `look` returns for it, or its error.

        `look` is given the opened table, its name, and its argument for commands.
        """
        from paimon_cli.catalog.table_listing import tables_of_database, tables_of_warehouse
        from paimon_cli.inspect.findings.runner import is_of_call

        metastore, damaged, named = self._metastore, list[PaimonError](), call.tables or ()
        if named:
            chosen = [ChosenTable(without_login(name), partial(self._locate, name)) for name in named]
        else:
            among = tables_of_warehouse if call.database is None else partial(tables_of_database, call.database)
            chosen = [ChosenTable.at(location, self.branch) for location in among(metastore, damaged.append)]

        def one(chosen_table: ChosenTable) -> _Found:
            location = chosen_table.locate()
            return look(self._open(location), location.name, argument(chosen_table.name if named else location.name))

        found = list[tuple[str, _Found | PaimonError]]()
        looks = look_at_each(one, chosen, metastore.table_seconds, 1, lambda table: table.name)
        for (name, _), each in zip(chosen, looks, strict=True):
            if isinstance(each, PaimonError) and named and is_of_call(each):
                raise each
            found.append((name, each))
        return damaged, found


class _Examined(NamedTuple):
    """The health of a table. `table`: None if it could not be opened."""

    row: HealthRow
    argument: str = ""
    table: Table | None = None


def _asked(call: FixesCall, argument: str) -> FixCall:
    return FixCall(advice=call.advice, topology=call.topology, argument=argument)
