"""Runs rules over a table. A rule that cannot be checked, because something is damaged or it has a bug, becomes a finding."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from paimon_cli.catalog.option_values import check_listed_value
from paimon_cli.errors import (
    BadOption,
    BeingDropped,
    NotFound,
    NotSupported,
    PaimonError,
    TookTooLong,
    UnsupportedOption,
    UsageError,
)
from paimon_cli.inspect.findings import bucket_rules, compaction_rules, history_rules, option_rules, topology_rules
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import (
    ADVICE_CODES,
    ERROR,
    LISTING,
    METADATA,
    SEVERITIES,
    TOPICS,
    WARNING,
    Code,
    Finding,
    Rule,
    is_at_least,
)
from paimon_cli.inspect.findings.option_rules import is_of_option, unreadable_option
from paimon_cli.options.option_text import counted, shortened
from paimon_cli.storage.catalog_options import TABLE_TIMEOUT

_MODULES = (history_rules, compaction_rules, bucket_rules, option_rules, topology_rules)
RULES: tuple[Rule[ExaminedTable], ...] = tuple(
    found for module in _MODULES for found in vars(module).values() if isinstance(found, Rule)
)
"""All rules, in the order of their modules."""
ALL_CODES = tuple(dict.fromkeys(code for rule in RULES for code in rule.codes))
"""The codes of what they may find."""
_OF_ALL = {
    Code.DROPPED: "no drop is under way",
    Code.UNREADABLE: "everything can be read",
    Code.NO_ANSWER: "the table answers in time",
    Code.FAILED: "every check can run",
    Code.POLICY: "the policy of the warehouse can be read, and asks only for what it may",
}
"""The codes of findings that belong to no single rule."""
NAMED_CHECKS = 3
"""The most rules that the finding about a damaged file names."""


def findings_of(
    table: ExaminedTable,
    least: str = WARNING,
    topics: Collection[str] = TOPICS,
    costs: Collection[str] = (METADATA, LISTING),
) -> list[Finding]:
    """The findings of at least this severity, on these topics, of rules with these costs."""
    found: list[Finding] = []
    stopped_by: dict[str, Finding] = {}
    failed: dict[str, list[Rule[ExaminedTable]]] = {}
    drop: BeingDropped | None = None
    for rule in RULES:
        if rule.topic not in topics or rule.cost not in costs:
            continue
        try:
            found += [replace(finding, topic=rule.topic) for finding in rule.check(table)]
        except BeingDropped as error:
            drop = error
        except PaimonError as error:
            if is_of_option(error):
                known = stopped_by.setdefault(error.key, unreadable_option(table.argument, error))
                stopped_by[error.key] = replace(known, prevents=(*known.prevents, *rule.codes))
            else:
                failed.setdefault(table.note_damage(error), []).append(rule)
        except Exception as error:  # a bug of one rule must not hide what the others find
            found.append(replace(_of_bug(table, rule, error), topic=rule.topic))
    said = {key: number for number, finding in enumerate(found) if (key := finding.figures.get("option")) is not None}
    for key, finding in stopped_by.items():
        if key in said:
            found[said[key]] = replace(found[said[key]], prevents=finding.prevents)
        else:
            found.append(finding)
    damage: dict[str, tuple[PaimonError, list[Rule[ExaminedTable]]]] = {}
    for cause, first in table.damage.items():
        _, stopped = damage.setdefault(first.message, (first, []))
        stopped += failed.get(cause, [])
    if drop is not None:
        found.append(_dropping(table.argument, drop))
    return [finding for finding in (*found, *_of_damage(table, damage.values())) if is_at_least(finding, least)]


def finding_about(table: ExaminedTable, error: PaimonError) -> Finding:
    """What the findings say about an error that keeps a command from judging the table."""
    if is_of_option(error):
        return unreadable_option(table.argument, error)
    return next(_of_damage(table, [(error, [])]))


def _of_damage(table: ExaminedTable, damage: Iterable[tuple[PaimonError, list[Rule[ExaminedTable]]]]) -> Iterator[Finding]:
    """The findings about errors, each with the checks that it has stopped."""
    for error, rules in damage:
        names = [rule.name for rule in rules]
        left = f" and {len(names) - NAMED_CHECKS} more" if len(names) > NAMED_CHECKS else ""
        lost = f"; {counted(len(names), 'check')} could not run: {', '.join(names[:NAMED_CHECKS])}{left}" if names else ""
        figures = {"checks": len(names)}
        is_met = any(error is table.damage[cause] for cause in table.met)
        subject = "files" if is_met else "metadata"
        command = f"paimon-cli verify {table.argument} --level files" if is_met else _looked_into(error, table.argument)
        prevents = tuple(code for rule in rules for code in rule.codes)
        yield Finding(Code.UNREADABLE, ERROR, subject, f"{_named(error)}{lost}", command, figures=figures, prevents=prevents)


def _named(error: PaimonError) -> str:
    """The error; of what this version does not support also what can be done, because there is no damage to look into."""
    return f"not supported: {error.message}; {error.hint}" if isinstance(error, NotSupported) else error.message


def _looked_into(error: PaimonError, argument: str) -> str:
    """The command that says what is damaged. It ends like this one in a table that is not supported."""
    return "" if isinstance(error, NotSupported) else f"paimon-cli verify {argument} --all-snapshots"


def _of_bug(table: ExaminedTable, rule: Rule[ExaminedTable], error: Exception) -> Finding:
    """The finding about a check that fails as none should; `--trace` shows where."""
    table.context.trace.step("check-failed", check=rule.name, traceback="".join(traceback.format_exception(error)))
    what = shortened(f"{type(error).__name__}: {error}")
    message = f"this check failed: {what}; this is a bug of paimon-cli, and --trace shows where"
    command = f"paimon-cli health {table.argument} --trace"
    return Finding(Code.FAILED, ERROR, f"check '{rule.name}'", message, command, prevents=rule.codes)


def meanings(costs: Collection[str], least: str = WARNING) -> dict[str, str]:
    """What the rules with these costs demand, by the codes of their findings of at least this severity, for reports."""
    names: dict[str, list[str]] = {}
    for rule in RULES:
        for code in rule.codes if rule.cost in costs else ():
            if least != WARNING or not code.startswith(ADVICE_CODES):
                names.setdefault(code, []).append(rule.name)
    return {code: ", ".join(names[code]) for code in sorted(names)} | _OF_ALL


def counted_findings(findings: Collection[Finding]) -> dict[tuple[str, str], int]:
    """The number of findings by severity and code, for monitoring: as many entries as there are codes, at most."""
    return dict(Counter((finding.severity, finding.code) for finding in findings))


def by_topic(findings: Collection[Finding]) -> list[Finding]:
    """The findings by topic; within a topic the gravest first, and what is well last."""
    return sorted(findings, key=lambda finding: (TOPICS.index(finding.topic), -SEVERITIES.index(finding.severity)))


def _dropping(argument: str, drop: BeingDropped) -> Finding:
    """The finding about a drop of the table or of one of its branches. The command asks: pasted late, it would delete a new one
    of the same name.
    """
    what = "table" if drop.branch_command is None else "branch"
    message = f"{drop.message}; if no drop is running any more, the command deletes the rest of the {what}"
    return Finding(Code.DROPPED, ERROR, what, message, drop.branch_command or f"paimon-cli drop {argument}", prevents=ALL_CODES)


def is_of_call(error: PaimonError) -> bool:
    """Whether a table was not opened because of how it was named: there is none, or the call cannot mean one."""
    if isinstance(error, UsageError):
        return not is_of_option(error)
    return isinstance(error, NotFound) and not isinstance(error, BeingDropped)


def unopened(argument: str, error: PaimonError) -> Finding:
    """The finding about a table that cannot be opened, or gave no answer in time: it prevents all checks."""
    return replace(_unopened(argument, error), prevents=ALL_CODES)


def _unopened(argument: str, error: PaimonError) -> Finding:
    if isinstance(error, TookTooLong):
        again = f"paimon-cli health {argument} --option {TABLE_TIMEOUT}=10min"
        return Finding(Code.NO_ANSWER, ERROR, "table", error.message, again)
    if isinstance(error, BeingDropped):
        return _dropping(argument, error)
    error = _of_bad_value(error, argument) or error
    if is_of_option(error):
        return unreadable_option(argument, error)
    return Finding(Code.UNREADABLE, ERROR, "table", f"it cannot be opened: {_named(error)}", _looked_into(error, argument))


def _of_bad_value(error: PaimonError, argument: str) -> BadOption | None:
    """What is wrong with the value of an option for which a table is refused, if no engine could read it."""
    if not isinstance(error, UnsupportedOption):
        return None
    try:
        check_listed_value(error.option, error.value)
    except BadOption as bad:
        bad.blame(table=argument)
        return bad
    return None


def of_damaged_entry(error: PaimonError) -> Finding:
    """The finding about an entry of a catalog that names no table."""
    return Finding(Code.UNREADABLE, ERROR, "catalog", f"{error.message}; {error.hint}", prevents=ALL_CODES)
