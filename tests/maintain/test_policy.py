"""Policies: which line counts for a table, what a warehouse may not set, and that it can only lengthen retention."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.maintain.policy import Policy, PolicyKey, TablePolicy
from paimon_cli.maintain.policy_effect import Effect, changed_options, judged_for, judged_settings, tag_retention
from paimon_cli.maintain.policy_text import read_policy_text
from paimon_cli.maintain.tags import create_tag
from paimon_cli.options.table_options import TableOptions
from tests.tables import make_table, write

DAY = 86_400_000
TEXT = b"""\
tables:
  "shop.ord*":
    caps: {runs: 3}
  shop.orders:
    caps: {bytes: 1 GB}
databases:
  shop:
    caps: {runs: 10, bytes: 2 GB}
  "st?ging": {windows: sat}
catalog:
  windows: nights
"""


def of_warehouse(text: str) -> Policy:
    return Policy.read(text.encode(), "policy.yaml")


def of_user(text: str) -> Policy:
    return Policy.of(read_policy_text(text.encode(), "config.yaml"), "config.yaml", is_own=True)


def met(*policies: Policy, table: str = "shop.orders") -> TablePolicy:
    database, _, name = table.partition(".")
    return TablePolicy(tuple(setting for policy in policies for setting in policy.about(database, name).settings))


def test_the_last_line_that_meets_a_table_counts() -> None:
    policy = Policy.read(TEXT, "policy.yaml")
    orders, other = met(policy), met(policy, table="shop.items")
    assert (orders.value(PolicyKey.RUNS), orders.value(PolicyKey.ROUND_BYTES)) == (3, 1 << 30)
    assert (other.value(PolicyKey.RUNS), other.value(PolicyKey.ROUND_BYTES)) == (10, 2 << 30)
    assert [(s.place, s.level, s.pattern) for s in orders.met if s.key == PolicyKey.RUNS] == [
        ("policy.yaml:8", "databases", "shop"),
        ("policy.yaml:3", "tables", "shop.ord*"),
    ]
    assert met(policy, table="staging.x").settings[PolicyKey.WINDOWS].text == "sat"
    assert met(policy, table="stging.x").settings[PolicyKey.WINDOWS].text == "nights"


def test_the_user_counts_after_the_warehouse() -> None:
    policy = met(of_warehouse("tables: {shop.orders: {caps: {runs: 3}}}"), of_user("catalog: {caps: {runs: 30}}"))
    assert policy.value(PolicyKey.RUNS) == 30


def test_of_several_lines_about_a_retention_the_last_one_counts() -> None:
    """Also where an earlier line asks for more."""
    lines = "catalog: {retention: {snapshots: 90 d, tags: 90 d}}\ntables: {shop.orders: {retention: {snapshots: 7 d, tags: 7 d}}}"
    for policy in (met(of_warehouse(lines)), met(of_user(lines)), met(of_warehouse("catalog: {goal: balanced}"), of_user(lines))):
        assert changed(policy)["snapshot.time-retained"] == f"{7 * DAY} ms" and tag_retention(policy, DAY) == 7 * DAY
    both = met(
        of_warehouse(lines), of_user("catalog: {retention: {snapshots: 2 d}}\ndatabases: {shop: {retention: {snapshots: 3 d}}}")
    )
    assert changed(both)["snapshot.time-retained"] == f"{3 * DAY} ms"


def test_lines_about_some_table_of_a_database() -> None:
    policy = of_warehouse(
        'databases: {"sh*": {goal: balanced}}\ntables: {"shop.a*": {goal: balanced}, "web.x": {goal: balanced}}'
    )
    assert [(rule.level, rule.pattern) for rule in policy.about("shop", None).rules] == [
        ("databases", "sh*"),
        ("tables", "shop.a*"),
    ]
    assert [rule.pattern for rule in policy.about("web", None).rules] == ["web.x"]


def test_brackets_are_no_patterns() -> None:
    policy = of_warehouse("tables: {'shop.[a-z]*': {caps: {runs: 3}}}")
    assert met(policy).value(PolicyKey.RUNS) is None and met(policy, table="shop.[a-z]x").value(PolicyKey.RUNS) == 3


def test_a_warehouse_starts_no_program_and_names_no_host() -> None:
    policy = of_warehouse("catalog:\n  hooks: https://evil.example/token/abc\n  hosts: [evil.example]\n  caps: {runs: 3}")
    assert [(s.key, s.text) for s in policy.refused] == [("hooks", "https://evil.example"), ("hosts", "evil.example")]
    assert met(policy).value(PolicyKey.HOOKS) is None and met(policy).value(PolicyKey.RUNS) == 3
    assert met(of_user("catalog: {hooks: [notify -v, https://x.example/y]}")).value(PolicyKey.HOOKS) == (
        "notify -v",
        "https://x.example/y",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("catalgo: {}", "policy.yaml:1: unknown key 'catalgo'"),
        ("catalog:\n  gaol: x", "policy.yaml:2: unknown key 'gaol'"),
        ("catalog:\n  caps.runs: 3", "policy.yaml:2: unknown key 'caps.runs'"),
        ("catalog:\n  caps:\n    rnus: 3", "policy.yaml:3: unknown key 'rnus'"),
        ("catalog:\n  <<: {caps: {runs: 3}}", "policy.yaml:2: unknown key '<<'"),
        ("catalog: {caps: 3}", "'caps' is no mapping"),
        ("catalog: {caps: {runs: 0}}", "caps.runs: '0' is no number from 1"),
        ("catalog: {caps: {runs: [1, 2]}}", "caps.runs has no value that can be taken"),
        ("catalog: {caps: {runs: }}", "caps.runs has no value that can be taken"),
        ("catalog: {caps: {bytes: many}}", "caps.bytes: cannot parse the size 'many'"),
        ("catalog: {goal: latncy}", "goal: 'latncy' is no goal"),
        ("catalog: {goal: [cost]}", "goal has no value that can be taken"),
        ("catalog: [1, 2]", "'catalog' is no mapping"),
        ("catalog: {budget: 25h/day}", "budget: '25h/day' is no budget: a day has 24 h"),
        ("catalog: {budget: 10GB}", "budget: '10GB' is no budget of a day"),
        ("catalog: {budget: lots/day}", "budget: 'lots/day' is no budget: it is neither a time nor a size with a unit"),
        ("catalog: {budget: 0B/day}", "budget: '0B/day' is no budget: nothing could be done with it"),
        ("catalog: {windows: night}", "windows: 'night' is no window of time"),
        ("catalog: {windows: []}", "windows: there is no window"),
        ("catalog: {timezone: Nowhere}", "timezone: 'Nowhere' is no time zone"),
        ("catalog: {timezone: localtime}", "timezone: 'localtime' is no time zone"),
        ("catalog: {retention: {snapshots: 7}}", "retention.snapshots: '7' is a time without a unit"),
        ("databases: {shop.orders: {}}", "'shop.orders' is no pattern of databases"),
        ("tables: {orders: {}}", "'orders' is no pattern of tables"),
        (f"tables: {{s.{'a' * 300}: {{}}}}", "is too long: it has 302 characters, and at most 200 are taken"),
        ("tables: {a.b.c: {}}", "'a.b.c' is no pattern of tables"),
    ],
)
def test_mistakes_are_named_with_their_lines(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        of_warehouse(text)
    assert said in refused.value.message


def test_all_mistakes_are_named_at_once_and_only_so_many() -> None:
    with pytest.raises(UsageError) as refused:
        of_warehouse("catalog:\n" + "".join(f"  key{number}: 1\n" for number in range(5000)))
    assert "5000 mistakes" in refused.value.message and "policy.yaml:21:" in refused.value.message
    assert "policy.yaml:22:" not in refused.value.message and "and 4,980 more" in refused.value.message


def changed(policy: TablePolicy, options: dict[str, str] | None = None, given: dict[str, str] | None = None) -> dict[str, str]:
    return changed_options(policy, TableOptions({**(options or {}), **(given or {})}), given or {})


def test_a_warehouse_lengthens_retention() -> None:
    week = met(of_warehouse("catalog: {retention: {snapshots: 7 d, snapshots-min: 20, partitions: 30 d}}"))
    assert changed(week) == {"snapshot.time-retained": f"{7 * DAY} ms", "snapshot.num-retained.min": "20"}
    longer = {"snapshot.time-retained": "30 d", "snapshot.num-retained.min": "50", "partition.expiration-time": "90 d"}
    assert changed(week, longer) == {}
    assert changed(week, {"partition.expiration-time": "3 d"})["partition.expiration-time"] == f"{30 * DAY} ms"


def test_no_number_ends_the_time_that_a_warehouse_asks_for() -> None:
    week = met(of_warehouse("catalog: {retention: {snapshots: 7 d}}"))
    assert changed(week, {"snapshot.num-retained.max": "10"})["snapshot.num-retained.max"] == str(2**31 - 1)
    both = met(of_warehouse("catalog: {retention: {snapshots: 7 d, snapshots-max: 100}}"))
    assert changed(both, {"snapshot.num-retained.max": "10"})["snapshot.num-retained.max"] == "100"


def test_the_greatest_number_is_never_below_the_least_that_a_warehouse_asks_for() -> None:
    """An expiry would refuse the table, or keep fewer."""
    twenty = met(of_warehouse("catalog: {retention: {snapshots-min: 20}}"))
    wanted = {"snapshot.num-retained.min": "20", "snapshot.num-retained.max": "20"}
    assert changed(twenty, {"snapshot.num-retained.max": "12"}) == wanted


def test_a_line_that_would_shorten_retention_overrides_no_other() -> None:
    text = "catalog: {retention: {snapshots: 3 d}}\ntables: {'*.orders': {retention: {snapshots: 10 min}}}\n"
    both = met(of_warehouse(text))
    assert changed(both, {"snapshot.time-retained": "1 h"})["snapshot.time-retained"] == f"{3 * DAY} ms"
    assert changed(both, {"snapshot.time-retained": "1 min"})["snapshot.time-retained"] == "600000 ms"


def test_the_user_may_shorten_retention() -> None:
    longer = of_warehouse("catalog: {retention: {snapshots: 7 d, tags: 90 d}}")
    day = met(longer, of_user("catalog: {retention: {snapshots: 1 d, snapshots-max: 5, partitions: 30 d, tags: 2 d}}"))
    assert changed(day, {"snapshot.time-retained": "3 d"}) == {
        "snapshot.time-retained": f"{DAY} ms",
        "snapshot.num-retained.max": "10",  # never below the least number, which is 10 by default
        "partition.expiration-time": f"{30 * DAY} ms",
    }
    assert (tag_retention(day, 5 * DAY), tag_retention(met(longer), 5 * DAY), tag_retention(met(longer), 99 * DAY)) == (
        2 * DAY,
        90 * DAY,
        99 * DAY,
    )


def test_what_the_call_gives_counts_more() -> None:
    week = met(of_warehouse("catalog: {retention: {snapshots: 7 d}}"))
    assert changed(week, given={"snapshot.time-retained": "1 h"}) == {}


def test_a_cap_on_runs_lowers_the_trigger_and_keeps_the_levels() -> None:
    capped = met(of_warehouse("catalog: {caps: {runs: 3}}"))
    assert changed(capped) == {"num-sorted-run.compaction-trigger": "3", "num-levels": "6"}
    assert changed(capped, {"num-sorted-run.compaction-trigger": "2"}) == {}


def test_tags_are_judged_by_how_long_the_table_keeps_them() -> None:
    warehouse = of_warehouse("catalog: {retention: {tags: 1 s}}")
    (judged,) = judged_settings(met(warehouse), TableOptions({"tag.default-time-retained": "7 d"}))
    assert judged.is_shorter and judged.why.startswith("tag.default-time-retained of the table is 7 d")
    for options in ({}, {"tag.default-time-retained": "1 s"}):
        assert judged_settings(met(warehouse), TableOptions(options))[0].effect == Effect.IN_FORCE


def test_each_line_is_judged() -> None:
    warehouse = of_warehouse("catalog: {retention: {snapshots: 1 s, partitions: 9 d, tags: 3 d}, caps: {runs: 9}}")
    found = {each.setting.key: each for each in judged_settings(met(warehouse), TableOptions({}))}
    assert {key: each.effect for key, each in found.items()} == {
        PolicyKey.SNAPSHOTS: Effect.WITHOUT,
        PolicyKey.PARTITIONS: Effect.WITHOUT,
        PolicyKey.TAGS: Effect.IN_FORCE,
        PolicyKey.RUNS: Effect.WITHOUT,
    }
    assert [key for key, each in found.items() if each.is_shorter] == [PolicyKey.SNAPSHOTS, PolicyKey.PARTITIONS]
    both = judged_settings(met(warehouse, of_user("catalog: {retention: {snapshots: 1 s}}")), TableOptions({}))
    assert [(each.effect, each.why) for each in both if each.setting.key == PolicyKey.SNAPSHOTS] == [
        (Effect.OVERRIDDEN, "by config.yaml:1"),
        (Effect.IN_FORCE, ""),
    ]


OPTION_VALUES = {
    "snapshots": ("snapshot.time-retained", "2 d", "3 d", "4 d"),
    "snapshots-min": ("snapshot.num-retained.min", "12", "13", "14"),
    "snapshots-max": ("snapshot.num-retained.max", "22", "23", "24"),
    "partitions": ("partition.expiration-time", "32 d", "33 d", "34 d"),
    "tags": ("tag.default-time-retained", "42 d", "43 d", "44 d"),
}


@pytest.mark.parametrize("key", OPTION_VALUES)
def test_a_retention_of_the_warehouse_is_judged_by_the_option_of_the_same_name(key: str) -> None:
    """A shorter one is without effect, unless the user asks for it; one of the same length counts, and the last of several."""
    option, shorter, same, longer = OPTION_VALUES[key]
    options = TableOptions({of: value for of, _, value, _ in OPTION_VALUES.values()})

    def judged(*policies: Policy) -> list[tuple[str, str, bool]]:
        found = judged_settings(met(*policies), options)
        return [(each.effect, each.why, each.is_shorter) for each in found]

    def line(value: str) -> str:
        return f"catalog: {{retention: {{{key}: {value}}}}}"

    counts, why = (
        (Effect.IN_FORCE, "", False),
        f"{option} of the table is {same}, and the policy of a warehouse may only lengthen",
    )
    assert judged(of_warehouse(line(shorter))) == [(Effect.WITHOUT, f"{why} retention", True)]
    assert judged(of_warehouse(line(same))) == judged(of_warehouse(line(longer))) == judged(of_user(line(shorter))) == [counts]
    two = f"{line(longer)}\ntables: {{'*.orders': {{retention: {{{key}: {same}}}}}}}"
    assert judged(of_warehouse(two)) == [(Effect.OVERRIDDEN, "by policy.yaml:2", False), counts]
    assert judged(of_warehouse(line(longer)), of_user(line(shorter))) == [(Effect.OVERRIDDEN, "by config.yaml:1", False), counts]
    assert [each.effect for each in judged_settings(met(of_warehouse(line(shorter))), None)] == [Effect.IN_FORCE]


def test_a_table_without_partitions_has_none_that_expire() -> None:
    both = met(of_user("catalog: {retention: {partitions: 1 d, snapshots: 1 d}}"))
    for has_partitions, effect in ((True, Effect.IN_FORCE), (False, Effect.WITHOUT)):
        found = judged_settings(both, TableOptions({}), has_partitions=has_partitions)
        assert [each.effect for each in found] == [effect, Effect.IN_FORCE]


def test_the_longest_limit_of_a_tag_counts_and_a_damaged_tag_has_none(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    write(context, [{"k": 1}])
    for days in (1, 9, None):
        create_tag(context, f"of-{days}", None, days and days * DAY)
    context.storage.overwrite(context.layout.tag("damaged"), b"{")
    for days, effect in ((8, Effect.WITHOUT), (9, Effect.IN_FORCE)):
        policy = met(of_warehouse(f"catalog: {{goal: balanced, retention: {{tags: {days} d}}}}"))
        found = {each.setting.key: each for each in judged_for(policy, context)}
        assert (found[PolicyKey.TAGS].effect, found[PolicyKey.GOAL].effect) == (effect, Effect.IN_FORCE)
        assert ("a tag of the table has a limit of 9 d" in found[PolicyKey.TAGS].why) == (days == 8)


def test_a_cap_on_runs_has_an_effect_only_below_the_trigger() -> None:
    """It shortens no retention, so a warehouse may set any; the user's own line overrides it."""
    for runs, effect in ((4, Effect.IN_FORCE), (5, Effect.WITHOUT), (6, Effect.WITHOUT)):
        (judged,) = judged_settings(met(of_warehouse(f"catalog: {{caps: {{runs: {runs}}}}}")), TableOptions({}))
        why = "" if runs == 4 else "num-sorted-run.compaction-trigger of the table is 5"
        assert (judged.effect, judged.why, judged.is_shorter) == (effect, why, False)
    both = met(of_warehouse("catalog: {caps: {runs: 3}}"), of_user("catalog: {caps: {runs: 4}}"))
    assert [each.effect for each in judged_settings(both, TableOptions({}))] == [Effect.OVERRIDDEN, Effect.IN_FORCE]
    assert changed(both)["num-sorted-run.compaction-trigger"] == "4"
