"""`history check`: looks for anomalies in metadata, then lets an engine compare the rows that are in question."""

from __future__ import annotations

import functools
from collections.abc import Callable

from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.anomalies import ANOMALY_RULES, BY_NAME, UNTOLD, Anomaly, anomaly
from paimon_cli.invariants.past_commits import PastCommits
from paimon_cli.invariants.past_questions import Question, answered, in_groups
from paimon_cli.invariants.past_rows import SharedKeys
from paimon_cli.invariants.past_vectors import IfHeld
from paimon_cli.jobs.engine import Engine, Progress, Work, phase
from paimon_cli.metadata.data_file import ManifestEntry
from paimon_cli.read.key_history import key_predicate
from paimon_cli.read.pruning import TableBounds
from paimon_cli.requests.integrity import HistoryCheckOptions
from paimon_cli.sql.predicate import Predicate

_ORDER = {rule.name: place for place, rule in enumerate(ANOMALY_RULES)}


def run_history_check(
    context: TableContext, request: HistoryCheckOptions, since_millis: int | None, engine: Engine, progress: Progress
) -> list[Anomaly]:
    """The findings, by snapshot; first what cannot be told. Raises `UsageError` for an unknown rule or key column."""
    wanted = request.rule or ()
    if unknown := [name for name in wanted if name not in BY_NAME]:
        raise UsageError(f"there is no rule '{unknown[0]}'", f"choose among {', '.join(BY_NAME)}")
    where = None if request.key is None else key_predicate(context, request.key)
    context = context.unread()
    past = PastCommits(context, wanted, since_millis)
    if where is not None:
        past.holds = _may_hold(context, where)
    found: list[Anomaly] = []
    questions: list[Question] = []
    with phase(progress, "Reading the history", None):
        for each in past.findings():
            if isinstance(each, Anomaly):
                found.append(each)
            else:
                questions.append(each)
    if request.level == "rows":
        found += _answers(context, where, in_groups(questions), engine, progress)
    else:
        found += _by_metadata(context, questions)
    return sorted(set(found), key=_place)


def _place(found: Anomaly) -> tuple[bool, tuple[int, ...], int, str]:
    return found.certainty != UNTOLD, found.snapshots, _ORDER[found.rule], found.message


def _may_hold(context: TableContext, where: Predicate) -> Callable[[ManifestEntry], bool]:
    bounds = TableBounds(context)
    return lambda entry: where.may_match(bounds.of_keys(entry.partition, entry.bucket, entry.file))


def _by_metadata(context: TableContext, questions: list[Question]) -> list[Anomaly]:
    """What metadata says about the questions: which key ranges overlap, and which rules only rows can decide."""
    hint = "--level rows compares them"
    known = [question for question in questions if isinstance(question, SharedKeys | IfHeld)]
    undecided = {rule for question in questions if not isinstance(question, SharedKeys | IfHeld) for rule in question.rules}
    found = [anomaly(rule, f"the rows of files were not compared: {hint}", certainty=UNTOLD) for rule in undecided]
    return found + [told for question in known for told in question.untold(context, hint)]


def _answers(
    context: TableContext, where: Predicate | None, questions: list[Question], engine: Engine, progress: Progress
) -> list[Anomaly]:
    if not questions:
        return []
    sizes = [sum(file.file_size for file in question.files) for question in questions]
    engine.prepare(Work(sum(sizes), 1), progress)  # bytes decide: the many small files of a long history are no work for Spark
    with phase(progress, "Comparing rows", len(questions)) as done:
        answers = engine.run_tasks(functools.partial(answered, context, where), questions, done, sizes)
    return [found for each in answers for found in each]
