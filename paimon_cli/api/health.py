"""Is a table all right, and what should be done? Its findings and advice, and what mends them without discarding anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.definition import Alter
from paimon_cli.api.inspection import Inspection
from paimon_cli.api.maintenance import Maintenance, Planned
from paimon_cli.errors import CommitUnknown, PaimonError, PartialSuccess
from paimon_cli.options.option_text import counted
from paimon_cli.read.html_text import ShownAsTable
from paimon_cli.requests.integrity import CostOptions, HealthOptions

if TYPE_CHECKING:
    from paimon_cli.inspect.findings.finding import Finding
    from paimon_cli.inspect.findings.remedies import FixStep
    from paimon_cli.inspect.health_report import HealthRow
    from paimon_cli.jobs.doctor_job import Fact
    from paimon_cli.jobs.table_cost import TableCost
    from paimon_cli.lsm.compaction_simulation import OnCommit


class FixCall(HealthOptions):
    """What to look for in one table."""

    _: KW_ONLY
    argument: str | None = None


class HealthCall(FixCall):
    """What to look for in one table, and whether to mend it."""

    _: KW_ONLY
    fix: bool = False


class CostCall(CostOptions):
    """What to show of the cost of one table."""

    _: KW_ONLY
    argument: str | None = None


@dataclass(frozen=True)
class FixPlan(ShownAsTable):
    """The health of tables, and the steps that mend what can be mended without discarding anything."""

    rows: list[HealthRow]
    steps: list[FixStep]


@dataclass(frozen=True)
class Fixed(ShownAsTable):
    """The health of tables after the steps: what is left. `errors`: of the steps that failed."""

    rows: list[HealthRow]
    steps: list[FixStep]
    errors: list[PaimonError]

    def raise_failures(self) -> None:
        """Raise the error of the only step, or that of a commit whose outcome is unknown, or one for all that failed."""
        if not self.errors:
            return
        unknown = next((error for error in self.errors if isinstance(error, CommitUnknown)), None)
        first = unknown or self.errors[0]
        if unknown is not None or len(self.steps) == 1:
            raise first
        what = f"{len(self.errors)} of {counted(len(self.steps), 'step')} failed"
        raise PartialSuccess(what, f"the first one: {first.message}", first.hint) from first


@checks_arguments
class Care(Maintenance, Inspection):
    """The methods of `Table` that judge it, and mend what they find."""

    def doctor(self, *, argument: str | None = None) -> list[Fact | Finding]:
        """Facts and findings about the storage of the table, then the findings of `health`.

        Safe commits are tested on the storage itself: writers race for probe files in the table's directory, which are removed
        afterwards. `argument`: the name of the table in the commands of findings.
        """
        from paimon_cli.jobs.doctor_job import examine_table

        self._expect_existing()
        return list(examine_table(self.supported, argument or self.context.layout.argument))

    @takes(CostCall)
    def cost(self, call: CostCall) -> TableCost:
        """What the table stores, in bytes, by what keeps the files: its latest snapshot, older ones, tags, branches, or nothing.

        The rows add up to all files in its directory; `savings` say what each removal would free. Nothing is written. Raises
        `DamagedFile` if a version cannot be read, because what it keeps is then unknown. `argument`: the table's name in
        commands.
        """
        from paimon_cli.inspect.price_table import price_table
        from paimon_cli.jobs.table_cost import priced

        prices = None if call.prices is None else price_table(call.prices)
        cost = self._cost(self.name, call.argument or self.context.layout.argument)
        return cost if prices is None else priced(cost, prices)

    def _cost(self, name: str, argument: str) -> TableCost:
        from paimon_cli.jobs.table_cost import cost_of_table

        self._expect_existing()
        return cost_of_table(self.supported, name, argument, self.runtime.new_progress())

    @takes(HealthCall)
    def health(self, call: HealthCall) -> HealthRow:
        """Figures, a verdict and findings: whether the table is all right, and what should be done.

        Nothing is written, unless `fix` is set: then what the findings propose is done as far as it discards nothing (compact,
        set options), and the result is what is left. `argument`: the table's name in commands.
        """
        self._expect_existing()
        if not call.fix:
            return self._health(FixCall.of(call), self.name)
        fixed = self.plan_fix(**vars(FixCall.of(call))).run()
        fixed.raise_failures()
        return fixed.rows[0]

    @takes(FixCall)
    def plan_fix(self, call: FixCall) -> Planned[FixPlan, Fixed]:
        """Plan to mend what `health` finds, as far as that discards nothing: `steps` of the plan; its `rows` have all findings.

        `run` carries out the steps, also after one that failed, and examines the table again. `argument`: the table's name in
        commands.
        """
        from paimon_cli.inspect.findings.remedies import steps_of

        self._expect_existing()
        row = self._health(call, self.name)
        steps = steps_of(row.table, row.findings)

        def run() -> Fixed:
            done, errors = self._carried_out(steps)
            return Fixed([self._health(call, self.name, errors)], done, errors)

        return Planned(FixPlan([row], steps), run)

    def advise(self, *, only: Sequence[str] | None = None, argument: str | None = None) -> list[Finding]:
        """What `health` finds with `advice`, and what is well, by topic, with the figures of the table's own history.

        `only`: some of buckets, small-files, options, compaction and history. `argument`: the name of the table in the commands
        of suggestions.
        """
        from paimon_cli.inspect.findings.examined_table import ExaminedTable
        from paimon_cli.inspect.findings.finding import LISTING, METADATA, OK, REPLAY, TOPICS
        from paimon_cli.inspect.findings.runner import by_topic, findings_of

        progress = self.runtime.new_progress()

        def on_scenario(number: int, count: int) -> OnCommit:
            progress.start(f"Simulating compaction options, {number} of {count}", None)
            return progress.advance

        table = ExaminedTable(self.supported, argument or self.context.layout.argument, on_scenario=on_scenario)
        try:
            return by_topic(findings_of(table, OK, only or TOPICS, (METADATA, LISTING, REPLAY)))
        finally:
            progress.finish()

    def _health(self, asked: FixCall, name: str, failures: Sequence[PaimonError] = ()) -> HealthRow:
        """`failures`: of steps that were just tried, whose damage is a finding."""
        from paimon_cli.inspect.findings.examined_table import ExaminedTable
        from paimon_cli.inspect.health_report import health_of

        table = ExaminedTable(self.supported, asked.argument or self.context.layout.argument, failures=failures)
        return health_of(table, name, with_advice=asked.advice, with_topology=asked.topology)

    def _carried_out(self, steps: Sequence[FixStep]) -> tuple[list[FixStep], list[PaimonError]]:
        """The steps after each was tried, and the errors of those that failed."""
        from paimon_cli.inspect.findings.remedies import FixState

        done: list[FixStep] = []
        errors: list[PaimonError] = []
        for step in steps:
            try:
                self._carry_out(step)
                done.append(replace(step, state=FixState.DONE))
            except PaimonError as error:
                errors.append(error)
                done.append(replace(step, state=FixState.FAILED, message=error.message))
        return done, errors

    def _carry_out(self, step: FixStep) -> None:
        remedy = step.remedy
        assert remedy is not None
        self.check_commit()
        if remedy.options:
            Alter(self).set(remedy.options)
        elif remedy.strategy is not None:
            self.compact(strategy=remedy.strategy)
        else:
            self.compact_manifests()


def examine_installation() -> list[Fact | Finding]:
    """Facts and findings about this machine and the installed libraries (`doctor` without a table)."""
    from paimon_cli.jobs.doctor_job import examine_machine

    return list(examine_machine())
