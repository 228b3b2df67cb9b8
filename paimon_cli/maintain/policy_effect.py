"""What a policy changes of a table: its retention and its compaction trigger, as options of the call, and its tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.policy import PolicyKey, Setting, TablePolicy
from paimon_cli.options.option_text import duration_text
from paimon_cli.options.table_options import TableOptions

_TIME_RETAINED, _MIN_RETAINED, _MAX_RETAINED = "snapshot.time-retained", "snapshot.num-retained.min", "snapshot.num-retained.max"
_EXPIRATION_TIME, _TRIGGER, _LEVELS = "partition.expiration-time", "num-sorted-run.compaction-trigger", "num-levels"
_MOST = 2**31 - 1
OPTION_OF_KEY = {
    PolicyKey.SNAPSHOTS: _TIME_RETAINED,
    PolicyKey.SNAPSHOTS_MIN: _MIN_RETAINED,
    PolicyKey.SNAPSHOTS_MAX: _MAX_RETAINED,
    PolicyKey.PARTITIONS: _EXPIRATION_TIME,
    PolicyKey.TAGS: "tag.default-time-retained",
    PolicyKey.RUNS: _TRIGGER,
}
"""The option of Paimon that a key changes for one run, or for tags, that says how long they are kept."""


class Effect:
    """What became of a line of a policy."""

    IN_FORCE = "in force"
    OVERRIDDEN = "overridden"
    WITHOUT = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True)
class JudgedSetting:
    """A line that meets a table, what became of it, and why, if it does not count. `is_shorter`: the warehouse asks for a shorter
    retention than the table has, which only the user may set.
    """

    setting: Setting
    effect: str
    why: str = ""
    is_shorter: bool = False


def under_policy(context: TableContext, policy: TablePolicy) -> TableContext:
    """The table with the retention and the trigger of its policy. What the call itself gives, `--option`, counts more."""
    changed = changed_options(policy, context.options, context.given) if policy.met else {}
    return context.with_options(changed) if changed else context


def changed_options(policy: TablePolicy, options: TableOptions, given: Mapping[str, str]) -> dict[str, str]:
    """The options of the table that its policy changes, as texts; those that are `given` stay."""
    times, (least, _), (most, by_most) = (
        policy.kept(PolicyKey.SNAPSHOTS, options.snapshot_time_retained),
        policy.kept(PolicyKey.SNAPSHOTS_MIN, options.snapshot_num_retained_min),
        policy.kept(PolicyKey.SNAPSHOTS_MAX, options.snapshot_num_retained_max),
    )
    own_time, of_warehouse = policy.last_of(PolicyKey.SNAPSHOTS, options.snapshot_time_retained)
    if own_time is None and of_warehouse is not None and by_most is None:
        most = _MOST  # no number ends the time that the warehouse asks for
    wanted: dict[str, int | None] = {
        _TIME_RETAINED: times[0],
        _MIN_RETAINED: least,
        _MAX_RETAINED: max(most, least),
        _EXPIRATION_TIME: _expiration(policy, options.partition_expiration_time),
        _TRIGGER: _trigger(policy, options),
    }
    now: dict[str, int | None] = {
        _TIME_RETAINED: options.snapshot_time_retained,
        _MIN_RETAINED: options.snapshot_num_retained_min,
        _MAX_RETAINED: options.snapshot_num_retained_max,
        _EXPIRATION_TIME: options.partition_expiration_time,
        _TRIGGER: options.compaction_trigger,
    }
    asks = {OPTION_OF_KEY[setting.key] for setting in policy.met if setting.key in OPTION_OF_KEY}
    if asks & {_TIME_RETAINED, _MIN_RETAINED}:
        asks.add(_MAX_RETAINED)
    units = {_TIME_RETAINED: " ms", _EXPIRATION_TIME: " ms"}
    changed = {
        key: f"{value}{units.get(key, '')}"
        for key, value in wanted.items()
        if key in asks and key not in given and value is not None and value != now[key]
    }
    if _TRIGGER in changed:
        changed[_LEVELS] = str(options.num_levels)  # by default it follows from the trigger, and files may be at all of them
    return changed


def _expiration(policy: TablePolicy, of_table: int | None) -> int | None:
    """The age at which partitions expire. The warehouse cannot begin that: a table without an age keeps them for good."""
    if of_table is not None:
        return policy.kept(PolicyKey.PARTITIONS, of_table)[0]
    own, _ = policy.last_of(PolicyKey.PARTITIONS)
    return None if own is None else own.value


def _trigger(policy: TablePolicy, options: TableOptions) -> int:
    cap = policy.value(PolicyKey.RUNS)
    return options.compaction_trigger if cap is None else min(cap, options.compaction_trigger)


def tag_retention(policy: TablePolicy, of_tag: int) -> int:
    """For how long a tag with a time limit is kept, in milliseconds. Tags without one are kept for good."""
    return policy.kept(PolicyKey.TAGS, of_tag)[0]


def judged_for(policy: TablePolicy, context: TableContext) -> list[JudgedSetting]:
    """The same as `judged_settings` for a table with its tags, which are read only if a line is about them. Damaged ones have
    no limit here.
    """
    tags = context.tags.all(lambda error: None) if any(each.key == PolicyKey.TAGS for each in policy.met) else {}
    limits = [tag.retained_millis for tag in tags.values() if tag.retained_millis is not None]
    return judged_settings(policy, context.options, max(limits, default=None), bool(context.schema.partition_keys))


def judged_settings(
    policy: TablePolicy, options: TableOptions | None, longest_tag: int | None = None, has_partitions: bool = True
) -> list[JudgedSetting]:
    """Each line that meets the table, and what became of it. `options`: of the table; None for no table in particular.
    `longest_tag`: the longest time limit of its tags (millis).
    """
    return [
        JudgedSetting(setting, Effect.WITHOUT, "the table has no partitions")
        if setting.key == PolicyKey.PARTITIONS and not has_partitions
        else _judged(policy, setting, options, longest_tag)
        for setting in policy.met
    ]


def _judged(policy: TablePolicy, setting: Setting, options: TableOptions | None, longest_tag: int | None) -> JudgedSetting:
    key, of_table = setting.key, None if options is None else _of_table(setting.key, options)
    own, other = policy.last_of(key, None if key == PolicyKey.RUNS else of_table)
    counts = own if own is not None else other
    option = OPTION_OF_KEY.get(key)
    if options is not None and option is not None and not setting.is_own and own is None:
        lengthens = "the policy of a warehouse may only lengthen retention"
        if of_table is None and key == PolicyKey.PARTITIONS:
            return JudgedSetting(setting, Effect.WITHOUT, f"the table keeps partitions for good, and {lengthens}", True)
        if key != PolicyKey.RUNS and of_table is not None and setting.value < of_table:
            is_number = key in (PolicyKey.SNAPSHOTS_MIN, PolicyKey.SNAPSHOTS_MAX)
            shown = of_table if is_number else duration_text(of_table)
            return JudgedSetting(setting, Effect.WITHOUT, f"{option} of the table is {shown}, and {lengthens}", True)
        if key == PolicyKey.TAGS and longest_tag is not None and setting.value < longest_tag:
            why = f"a tag of the table has a limit of {duration_text(longest_tag)}, and {lengthens}"
            return JudgedSetting(setting, Effect.WITHOUT, why, True)
    if counts is not None and setting is not counts:
        return JudgedSetting(setting, Effect.OVERRIDDEN, f"by {counts.place}")
    if key == PolicyKey.RUNS and not setting.is_own and of_table is not None and setting.value >= of_table:
        return JudgedSetting(setting, Effect.WITHOUT, f"{option} of the table is {of_table}")
    return JudgedSetting(setting, Effect.IN_FORCE)


def _of_table(key: str, options: TableOptions) -> int | None:
    """What the options of the table say about a setting; None if they say nothing."""
    return {
        PolicyKey.SNAPSHOTS: options.snapshot_time_retained,
        PolicyKey.SNAPSHOTS_MIN: options.snapshot_num_retained_min,
        PolicyKey.SNAPSHOTS_MAX: options.snapshot_num_retained_max,
        PolicyKey.PARTITIONS: options.partition_expiration_time,
        PolicyKey.TAGS: options.tag_default_time_retained,
        PolicyKey.RUNS: options.compaction_trigger,
    }.get(key)
