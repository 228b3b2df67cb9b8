"""The budgets of tables: that of the call, or one for each line of a policy, which the tables that it is about share.

Without a goal, the tables ask one after the other, the most urgent first, each for its compactions. With one, the compactions of
all tables ask one by one, the most urgent first. What the whole budget does not suffice for holds back nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.service_turn import Turn
from paimon_cli.jobs.service.wanted_merges import WantedMerge
from paimon_cli.maintain.policy import PolicyKey, TablePolicy
from paimon_cli.options.option_text import human_size
from paimon_cli.requests.upkeep import Allowance
from paimon_cli.storage.injected import Clock

NewBudget = Callable[[Allowance, Collection[str]], Budget]
"""Makes the budget of a line, given the names of the tables that share it."""
TakenElsewhere = Callable[[bool, Collection[str] | None], Sequence[tuple[int, float]] | None]
"""What other services have taken of a daily budget, as moments (epoch millis) and bytes, or millis if not the first argument; of
the tables with these names, or of all. None if it cannot be found out."""
_OF_CALL = ""


@dataclass(frozen=True)
class Grant:
    """What a table may take of a daily budget in one round: bytes to read, and the millis that they are taken to need."""

    table: str
    size: int
    millis: float


@dataclass
class SharedBudgets:
    """`own`: that of the call, whose limit counts in place of those in policies; None for none. `make`: None for whole ones.
    `elsewhere`: asked before each round what other services have taken; None if there are none.
    """

    clock: Clock
    own: Budget | None = None
    make: NewBudget | None = None
    elsewhere: TakenElsewhere | None = None
    _lines: dict[str, str] = field(default_factory=dict)
    _budgets: dict[str, Budget] = field(default_factory=dict)
    _saving: dict[str, SavedFor | None] = field(default_factory=dict)

    def give(self, policies: Mapping[str, TablePolicy]) -> None:
        """Give each table its budget, by its name. A line that is no longer there, or has changed, is forgotten."""
        self._lines = {name: self._line(policy) for name, policy in policies.items()}
        for line in self._budgets.keys() - {*self._lines.values()}:
            del self._budgets[line]
            self._saving.pop(line, None)
        for name, line in self._lines.items():
            if line != _OF_CALL and line not in self._budgets:
                allowance = policies[name].value(PolicyKey.BUDGET)
                sharing = frozenset(other for other, of_other in self._lines.items() if of_other == line)
                made = Budget.of(allowance, self.clock) if self.make is None else self.make(allowance, sharing)
                self._budgets[line] = made

    def of(self, table: str) -> Budget | None:
        """The budget of a table; None if it has none."""
        line = self._lines.get(table, _OF_CALL)
        return self.own if line == _OF_CALL else self._budgets[line]

    def saves_until(self, table: str) -> int | None:
        """Until when the budget of a table is saved for a merge (epoch millis); None if it is not."""
        saving = self._saving.get(self._lines.get(table, _OF_CALL))
        return None if saving is None else saving.until_millis

    def share_out(self, turns: Sequence[Turn]) -> None:
        """Reserve the budgets for the turns of a round, given in the order of their need."""
        for line in dict.fromkeys(self._lines.get(turn.table, _OF_CALL) for turn in turns):
            sharing = [turn for turn in turns if self._lines.get(turn.table, _OF_CALL) == line]
            budget = self.of(sharing[0].table)
            if budget is not None:
                if budget.daily is not None and self.elsewhere is not None:
                    names = {name for name, of_name in self._lines.items() if of_name == line}
                    budget.takes_note(self.elsewhere(budget.daily.is_size, None if line == _OF_CALL else names))
                is_by_goal = any(turn.is_by_goal for turn in sharing)
                self._saving[line] = share_out(sharing, budget, self._saving.get(line), is_by_goal=is_by_goal)

    def grants(self, turns: Sequence[Turn]) -> list[Grant]:
        """What the turns may take of daily budgets; none for those that have reserved nothing."""
        return [
            Grant(turn.table, turn.granted + turn.may_grow, (turn.granted + turn.may_grow) * turn.budget.daily.millis_per_byte)
            for turn in turns
            if turn.granted and turn.budget.daily is not None
        ]

    def _line(self, policy: TablePolicy) -> str:
        setting = policy.settings.get(PolicyKey.BUDGET)
        if setting is None or (self.own is not None and self.own.is_limited):
            return _OF_CALL
        return f"{setting.source}:{setting.line} {setting.text}"


@dataclass(frozen=True)
class SavedFor:
    """The budget is saved for a merge of a table until it suffices, so that less urgent ones do not take it.

    `since_millis`: when the saving began; `until_millis`: when the budget suffices, if nothing else is taken (epoch millis).
    """

    wanted: WantedMerge
    table: str
    since_millis: int
    until_millis: int


@dataclass
class DividedBudget:
    """A budget that is divided among merges, which ask one by one, the most urgent first.

    Merges that must be made come first: those of rows that readers wait for, and then the buckets with the most runs. If the
    cheapest came first, an expensive one would wait for good, and grow meanwhile. For the first of them that does not fit, or a
    small other one, the budget is saved, in later rounds, too: less urgent ones take what is beyond that. A single run does not
    come again, so that it takes what fits.

    `saving`: what the budget is saved for. `earlier`: the same in the last round, if that merge asks again.
    """

    budget: Budget
    saving: SavedFor | None = None
    earlier: SavedFor | None = None

    def refuses(self, table: str, wanted: WantedMerge) -> str:
        """Reserve the bytes of a merge; returns why not, or nothing."""
        budget, size, left = self.budget, wanted.size, f"{self.budget.left_text or 'nothing'} of the budget"
        first = self.saving if self.saving is not None and wanted.urgency <= self.saving.wanted.urgency else None
        saved = 0 if first is None else budget.saved(first.wanted.size, first.since_millis)
        if size > budget.most_bytes:
            said = f"{size} bytes are more than the whole budget"
        elif first is not None and not budget.has(saved + size):
            said = f"{human_size(saved)} are saved for {first.table}, {first.wanted}; {left} were left when it asked"
        elif not wanted.must_be and budget.is_kept_from(size):
            said = f"it reads {human_size(size)}, and {left} were left when it asked, kept for what must be done"
        elif budget.reserve_all(size):
            if self.earlier is not None and self.earlier.table == table:
                self.earlier = None
            return ""
        else:
            said = f"it reads {human_size(size)}, and {left} were left when it asked"
        if (
            first is None
            and budget.daily is not None
            and size <= budget.most_bytes
            and (wanted.must_be or budget.saves_for(size))
        ):
            since = budget.clock.now_millis() if self.earlier is None else self.earlier.since_millis
            self.saving = SavedFor(wanted, table, since, budget.ready_millis(size))
        if wanted.must_be and wanted.shows_rows:
            return f"{said}; until the budget suffices, readers wait for its new rows"
        return f"{said}; the budget comes before the cap on runs" if wanted.must_be else said


def share_out(turns: Sequence[Turn], budget: Budget, saving: SavedFor | None = None, *, is_by_goal: bool) -> SavedFor | None:
    """Reserve the budget for all turns, given in the order of their need. Returns what the budget is saved for."""
    if not budget.bounds_bytes:
        for turn in turns:
            turn.budget, turn.granted = budget, None
        return None
    if not is_by_goal:
        _share_by_need(turns, budget)
        return None
    if saving is not None and any(turn.table == saving.table for turn in turns):
        divided = DividedBudget(budget, earlier=saving)
    else:
        is_over = saving is not None and budget.clock.now_millis() >= saving.until_millis
        divided = DividedBudget(budget, None if is_over else saving)
    for turn in turns:
        turn.budget, turn.granted = budget, 0
    asking = [(part, turn) for turn in turns for wanted in turn.wanted for part in wanted.parts]
    for wanted, turn in sorted(asking, key=lambda each: each[0].order):
        refusal = divided.refuses(turn.table, wanted)
        turn.budget_says = turn.budget_says or refusal
        if not refusal:
            turn.granted = (turn.granted or 0) + wanted.size
    return divided.saving


def _share_by_need(turns: Sequence[Turn], budget: Budget) -> None:
    """Reserve the budget for whole compactions, in the order of the turns. A single run does not come again, so that it takes
    what fits, now or when others have given something back. A service saves for the first one that does not fit yet, and leaves
    it to a later round: the ledger has to say what a round may take, before it takes any of it.
    """
    whole, saved = budget.whole_bytes, ""
    for turn in turns:
        turn.budget, turn.granted, unpaid = budget, 0, list[WantedMerge]()
        for wanted in turn.wanted:
            if not saved and budget.reserve_all(wanted.size):
                turn.granted += wanted.size
            elif whole is None or wanted.size <= whole:
                size, left = human_size(wanted.size), f"{budget.left_text or 'nothing'} of the budget"
                turn.budget_says = turn.budget_says or saved or f"it reads {size}, and {left} were left when it asked"
                unpaid += [wanted] if budget.daily is None else []
                saved = saved if budget.daily is None else saved or f"the budget is saved for {turn.table}, which reads {size}"
        turn.unpaid = tuple(unpaid)
