"""The policy of a catalog: how its tables are maintained, and what the next round decides."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.catalog_maintenance import Maintaining
from paimon_cli.catalog.metastore.configuration_files import PROFILE
from paimon_cli.catalog.metastore.metastore import is_name
from paimon_cli.errors import Conflict, UsageError
from paimon_cli.requests.compaction import TableChoice
from paimon_cli.requests.policy import PolicyOf, SetPolicy
from paimon_cli.requests.upkeep import Allowance

if TYPE_CHECKING:
    from paimon_cli.jobs.service.next_round import RoundDecision
    from paimon_cli.maintain.policy_effect import JudgedSetting


@dataclass(frozen=True)
class PolicyRow:
    """A line of a policy. `level`, `pattern`: whom it is for; `source`, `line`: where it stands.

    `effect`: `in force`, `overridden` by a later line, `no effect` on the table, or `refused` in this file; `why`: the reason, if
    it does not count, or hooks of it are left out.
    """

    key: str
    value: str
    level: str
    pattern: str
    source: str
    line: int
    effect: str
    why: str = ""


@dataclass(frozen=True)
class PolicySummary:
    """A policy that was replaced. `settings`: how many lines it has that count; versions: the beginning of a SHA-256, or none.

    `lengthening`: the places of those about retention, which have no effect on tables that keep more already.
    """

    path: str
    settings: int
    version_before: str
    version_after: str
    lengthening: tuple[str, ...] = ()


@checks_arguments
class PolicyBook:
    """The policies of a warehouse and of the user's own configuration, which `maintain` obeys.

    Raises `UsageError` for a policy with mistakes, and names the first ones with their lines.
    """

    def __init__(self, catalog: Maintaining) -> None:
        self._catalog = catalog

    @takes(PolicyOf)
    def show(self, of: PolicyOf) -> list[PolicyRow]:
        """The lines that are about a table or a database, or all lines, in the order in which they count.

        Raises `NotFound` for a table or database that does not exist.
        """
        from paimon_cli.catalog.warehouse_policy import name_of_place, own_rules, policy_of_place, policy_of_warehouse
        from paimon_cli.jobs.service.policy_hooks import with_hooks_judged
        from paimon_cli.maintain.policy import LEVEL_NOUNS, Policy, Setting, TablePolicy
        from paimon_cli.maintain.policy_effect import Effect, JudgedSetting, judged_for

        def rows(judged: list[JudgedSetting], refused: list[Setting]) -> list[PolicyRow]:
            why = "only the user's own configuration may set it"
            both = [*with_hooks_judged(judged), *(JudgedSetting(setting, Effect.REFUSED, why) for setting in refused)]
            return [
                PolicyRow(s.key, s.text, LEVEL_NOUNS[s.level], s.pattern, s.source, s.line, each.effect, each.why)
                for each in both
                for s in (each.setting,)
            ]

        catalog, name = self._catalog, of.table
        own = own_rules(catalog._options.get(PROFILE) or catalog.runtime.profile)
        if name is None or self._is_database(name):
            if name is not None:
                catalog._metastore.database(name)  # raises for one that does not exist, as `explain` does
            whole = [policy_of_warehouse(catalog._metastore).policy(), own]
            policies = whole if name is None else [policy.about(name, None) for policy in whole]
            lines = [setting for policy in policies for setting in policy.settings]
            return rows([JudgedSetting(setting, Effect.IN_FORCE) for setting in lines], policies[0].refused)
        location = catalog._locate(name)
        file = policy_of_place(location)
        policies = [Policy() if file is None else file.policy(), own]
        of_warehouse, of_user = (policy.about(*name_of_place(location)) for policy in policies)
        met = TablePolicy((*of_warehouse.settings, *of_user.settings))
        return rows(judged_for(met, catalog._open(location).context), of_warehouse.refused)

    def version(self) -> str:
        """The version of the policy in the warehouse, for `set`: the beginning of its SHA-256, or `none`."""
        from paimon_cli.catalog.warehouse_policy import policy_of_warehouse, version_of

        return version_of(policy_of_warehouse(self._catalog._metastore).content())

    @takes(SetPolicy)
    def set(self, call: SetPolicy) -> PolicySummary:
        """Replace the policy of the warehouse by the content of a file, if it is still what it was: compare-and-swap.

        Raises `UsageError` for mistakes, and for settings that only the user's own configuration may make, `Conflict` if the
        policy is another version than `if_version`, or was changed meanwhile.
        """
        from paimon_cli.catalog.warehouse_policy import policy_of_warehouse
        from paimon_cli.maintain.policy import RETENTION, Policy
        from paimon_cli.maintain.policy_text import MAX_POLICY

        try:
            with open(call.file, "rb") as source:
                content = source.read(MAX_POLICY + 1)
        except OSError as error:
            raise UsageError(f"cannot read {call.file}", error.strerror or "") from error
        settings = Policy.read(content, call.file).settings
        lengthening = tuple(
            f"{each.key}: {each.text} ({each.place})" for each in settings if each.key.startswith(f"{RETENTION}.")
        )
        file = policy_of_warehouse(self._catalog._metastore)
        try:
            before, after = file.replace(content, call.file, call.if_version)
        except Conflict as conflict:
            conflict.set_hint(f"look at the new one: paimon-cli policy show{self._catalog._metastore.flags}")
            raise
        return PolicySummary(file.path, len(settings), before, after, lengthening)

    @takes(PolicyOf)
    def explain(self, of: PolicyOf) -> list[RoundDecision]:
        """What the next round of `maintain` decides about a table, the tables of a database, or all tables, and why.

        The error of a table that cannot be planned stands in its row; that of an only table is raised.
        """
        from paimon_cli.api.catalog_compaction import look_seconds
        from paimon_cli.jobs.service.budget import Budget
        from paimon_cli.jobs.service.next_round import RoundDecision, decisions_of
        from paimon_cli.jobs.service.table_round import rounds_of_damage
        from paimon_cli.requests.upkeep import MaintainTables
        from paimon_cli.storage.injected import SystemClock

        name = of.table
        if name is None:
            chosen = MaintainTables(all_tables=True)
        else:
            chosen = MaintainTables(database=[name]) if self._is_database(name) else MaintainTables(tables=[name])
        policies = self._catalog._policies()
        tables, damaged = self._catalog._to_maintain(chosen, commits=False, policies=policies)
        seconds = look_seconds(TableChoice.of(chosen), self._catalog._metastore)
        clock = SystemClock()
        taken = self._catalog._taken_by_others(clock, "", policies)

        def new_budget(allowance: Allowance, names: Collection[str]) -> Budget:
            return Budget.of(allowance, clock, taken(allowance.size is not None, names) or ())

        named = zip(rounds_of_damage(damaged), damaged, strict=True)
        of_damage = (RoundDecision(each.table, each.state, error=error.message) for each, error in named)
        return [*decisions_of(tables, clock, seconds, new_budget), *of_damage]

    def _is_database(self, name: str) -> bool:
        return is_name(name) and self._catalog._metastore.has_names


@checks_arguments
class KeepsPolicy(Maintaining):
    """The policy of `Catalog`."""

    @property
    def policy(self) -> PolicyBook:
        """How the tables of the warehouse are maintained, by its policy and that of the user's own configuration."""
        return PolicyBook(self)
