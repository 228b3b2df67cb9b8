"""The budgets that tables share: by lines of policies, and what each is saved for."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from paimon_cli.jobs.service.budget import DAY_MILLIS, Budget
from paimon_cli.jobs.service.shared_budgets import DividedBudget, SavedFor, SharedBudgets, share_out
from paimon_cli.jobs.service.wanted_merges import WantedMerge
from paimon_cli.maintain.policy import PolicyKey, Setting, TablePolicy
from paimon_cli.requests.upkeep import Allowance
from tests.jobs.test_goal_rounds import NOW, turn
from tests.jobs.test_leases import HandClock

BUDGET = Allowance(size=1000, is_daily=True)


def policy(line: int) -> TablePolicy:
    return TablePolicy((Setting(PolicyKey.BUDGET, BUDGET, "1000b/day", "policy.toml", line, "table", "*", True),))


def test_what_a_budget_is_saved_for_ends_with_its_line() -> None:
    shared = SharedBudgets(HandClock(NOW))
    shared.give({"a": policy(1), "b": policy(2)})
    turns = [replace(turn(name, (math.inf, 900), (math.inf, 200)), is_by_goal=True) for name in ("a", "b")]
    shared.share_out(turns)
    saved = shared.saves_until("b")
    assert saved is not None and saved > NOW and shared.saves_until("a") == saved
    shared.give({"a": TablePolicy(), "b": policy(2)})
    assert shared.saves_until("b") == saved and shared.saves_until("a") is None
    shared.give({"a": policy(1), "b": policy(2)})
    assert shared.saves_until("b") == saved and shared.saves_until("a") is None, "the budget is a new one"
    again = shared.of("a")
    assert again is not None and again.left == 1000


def test_each_line_counts_what_other_services_took_for_its_tables() -> None:
    asked = list[tuple[bool, Collection[str] | None]]()

    def elsewhere(is_size: bool, names: Collection[str] | None) -> list[tuple[int, float]]:
        asked.append((is_size, names))
        return [(NOW, 100.0 * len(names or ()))]

    shared = SharedBudgets(HandClock(NOW), elsewhere=elsewhere)
    shared.give({"a": policy(1), "b": policy(1), "c": policy(2)})
    shared.share_out([replace(turn(name, (1.0, 1)), is_by_goal=True) for name in ("a", "c")])
    assert asked == [(True, {"a", "b"}), (True, {"c"})]
    first, second = shared.of("a"), shared.of("c")
    assert first is not None and second is not None and first is shared.of("b")
    assert (first.left, second.left) == (800, 900)
    own = Budget.of(BUDGET, HandClock(NOW))
    of_call = SharedBudgets(HandClock(NOW), own, elsewhere=elsewhere)
    of_call.give({"a": policy(1)})
    of_call.share_out([turn("a", (1.0, 1))])
    assert of_call.of("a") is own and asked[2:] == [(True, None)]


def divided(saved_for: WantedMerge, left: int) -> DividedBudget:
    """A budget of 1000 bytes a day of which `left` are left, saved for a merge of the table `first`."""
    budget = Budget.of(BUDGET, HandClock(NOW))
    budget.settle(budget.reserve(1000 - left), 1000 - left)
    return DividedBudget(budget, SavedFor(saved_for, "first", NOW - DAY_MILLIS, NOW + 1))


def test_what_is_saved_is_kept_from_merges_that_are_not_more_urgent() -> None:
    saved_for = WantedMerge(math.inf, 300, 9)
    for runs, says in ((8, "saved for first"), (9, "saved for first"), (10, "")):
        refusal = divided(saved_for, 310).refuses("other", WantedMerge(math.inf, 20, runs))
        assert says in refusal and bool(refusal) == bool(says), runs
        assert not divided(saved_for, 310).refuses("other", WantedMerge(math.inf, 10, runs)), "it is beyond what is saved"


def test_a_saving_goes_on_beside_merges_of_other_tables() -> None:
    """So that what is saved for it grows from round to round."""
    budget = Budget.of(BUDGET, HandClock(NOW))
    budget.settle(budget.reserve(700), 700)
    earlier = SavedFor(WantedMerge(math.inf, 500, 9), "first", NOW - 5_000_000, NOW + 1)
    hot, first = turn("hot", (math.inf, 10), runs=20), turn("first", (math.inf, 500), runs=9)
    saving = share_out([hot, first], budget, earlier, is_by_goal=True)
    assert (hot.granted, first.granted) == (10, 0)
    assert saving is not None and (saving.table, saving.since_millis) == ("first", NOW - 5_000_000)
    own, more = turn("first", (math.inf, 10), runs=20), turn("next", (math.inf, 500), runs=9)
    begun = share_out([own, more], budget, earlier, is_by_goal=True)
    assert begun is not None and (begun.table, begun.since_millis) == ("next", NOW), "it has had its merge"


def test_a_budget_stays_saved_while_its_table_does_not_ask_and_until_it_suffices() -> None:
    clock = HandClock(NOW)
    budget = Budget.of(BUDGET, clock)
    budget.settle(budget.reserve(690), 690)
    saving = SavedFor(WantedMerge(math.inf, 300, 9), "away", NOW - DAY_MILLIS, NOW + 1000)
    other = turn("other", (math.inf, 100), runs=1)
    assert share_out([other], budget, saving, is_by_goal=True) == saving
    assert other.granted == 0 and "300 B are saved for away" in other.budget_says
    clock.millis = NOW + 1000
    late = turn("other", (math.inf, 100), runs=1)
    assert share_out([late], budget, saving, is_by_goal=True) is None
    assert late.granted == 100 and not late.budget_says


def test_one_run_pays_for_all_that_did_not_fit_once_others_give_back() -> None:
    budget = Budget.of(Allowance(size=100), HandClock(NOW))
    first = turn("first", (0.0, 60))
    second = turn("second", (0.0, 50), (0.0, 101), (0.0, 30), (0.0, 45))
    share_out([first, second], budget, is_by_goal=False)
    assert (first.granted, second.granted) == (60, 30)
    assert [wanted.size for wanted in second.unpaid] == [50, 45], "what the whole budget never suffices for is not asked again"
    budget.settle(60, 0)
    second.top_up()
    assert second.granted == 80
