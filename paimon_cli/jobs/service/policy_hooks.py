"""Which hooks of the user's policy a service tells: one that cannot be used is left out, and the others are told all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from paimon_cli.catalog.warehouse_policy import own_hooks
from paimon_cli.errors import UsageError
from paimon_cli.jobs.service.commit_hook import HookTarget
from paimon_cli.maintain.policy import Policy, PolicyKey
from paimon_cli.maintain.policy_effect import Effect, JudgedSetting


def targets_of(own: Policy, of_all: str | None, warn: Callable[[str], None]) -> list[tuple[HookTarget, Callable[[str], bool]]]:
    """The hooks of the user's policy, each with the function that says which tables it is about, without that `of_all` tables.

    One that cannot be used is left out, with a warning that names its lines: the tables of other lines are served all the same.
    """
    found = []
    for hook, about in own_hooks(own).items():
        if hook == of_all:
            continue
        try:
            found.append((HookTarget.parse(hook), about))
        except UsageError as error:
            places = [line.place for line in own.settings if line.key == PolicyKey.HOOKS and hook in line.value]
            warn(f"the hook of {', '.join(places)} is left out: {error.why}")
    return found


def with_hooks_judged(judged: Iterable[JudgedSetting]) -> list[JudgedSetting]:
    """The lines, of which those about hooks say which hooks are left out, and why. A line has no effect if it has no other."""
    return [
        _with_hooks(each) if each.setting.key == PolicyKey.HOOKS and each.effect == Effect.IN_FORCE else each for each in judged
    ]


def _with_hooks(judged: JudgedSetting) -> JudgedSetting:
    hooks = judged.setting.value
    left_out = [f"hook {number}: {why}" for number, hook in enumerate(hooks, 1) if (why := _why_left_out(hook))]
    if not left_out:
        return judged
    said = left_out[0].partition(": ")[2] if len(hooks) == 1 else "; ".join(left_out)
    return replace(judged, effect=Effect.WITHOUT if len(left_out) == len(hooks) else judged.effect, why=f"left out: {said}")


def _why_left_out(hook: str) -> str:
    try:
        HookTarget.parse(hook)
    except UsageError as error:
        return error.why
    return ""
