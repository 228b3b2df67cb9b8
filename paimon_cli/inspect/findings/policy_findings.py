"""Findings about the policy of a warehouse: it cannot be read, or asks for what only the user's own configuration may set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.finding import ERROR, WARNING, Code, Finding, Topic
from paimon_cli.maintain.policy import Setting, TablePolicy
from paimon_cli.maintain.policy_effect import JudgedSetting, judged_for
from paimon_cli.options.option_text import counted, printable

SHOWN_LINES = 3


def unreadable_policy(error: PaimonError, command: str) -> Finding:
    """The finding about a policy that cannot be read. `command`: shows it."""
    first, *others = (line.strip() for line in error.message.splitlines())
    message = f"{' '.join([first, '; '.join(others)]).rstrip()}; maintain changes nothing while it cannot be read"
    return Finding(Code.POLICY, ERROR, "policy", message, command, Topic.OPTIONS)


def refused_settings(settings: Sequence[Setting], command: str) -> list[Finding]:
    """The finding about lines that do not count; none without such lines."""
    if not settings:
        return []
    shown = _shown(f"{setting.key} ({setting.place})" for setting in settings)
    what = f"{counted(len(settings), 'line')} of the policy may stand only in the user's own configuration: {shown}"
    figures = {"lines": len(settings)}
    return [Finding(Code.POLICY, WARNING, "policy", what, command, Topic.OPTIONS, figures, threshold="0 lines")]


def shorter_retention(judged: Iterable[JudgedSetting], command: str) -> list[Finding]:
    """The finding about a table for which the warehouse asks a shorter retention than its own; none if it does not."""
    shorter = [each for each in judged if each.is_shorter]
    if not shorter:
        return []
    shown = _shown(f"{each.setting.key} {each.setting.text} ({each.setting.place}): {each.why}" for each in shorter)
    figures = {"lines": len(shorter)}
    message = f"the policy of the warehouse cannot shorten retention: {shown}"
    return [Finding(Code.POLICY, WARNING, "policy", message, command, Topic.OPTIONS, figures, threshold="0 lines")]


def findings_of_policy(policy: TablePolicy, context: TableContext, command: str) -> list[Finding]:
    """The findings about the lines that meet a table. `context`: the table with its own options. `command`: shows the lines."""
    judged = judged_for(policy, context) if policy.met else []
    return [*refused_settings(policy.refused, command), *shorter_retention(judged, command)]


def _shown(texts: Iterable[str]) -> str:
    found = [*texts]
    more = f"; and {len(found) - SHOWN_LINES} more" if len(found) > SHOWN_LINES else ""
    return printable("; ".join(found[:SHOWN_LINES])) + more
