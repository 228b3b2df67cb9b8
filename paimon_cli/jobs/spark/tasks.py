"""What tasks on Spark and their driver share: how errors travel from one to the other, and how small tasks are put together.

Needs neither a SparkContext nor py4j, which a client of Spark Connect may lack.
"""

from __future__ import annotations

import gc
import hmac
import json
import os
import re
import secrets
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark import TaskContext

from paimon_cli import errors
from paimon_cli.errors import PaimonError
from paimon_cli.lsm.sorted_runs import shares
from paimon_cli.pieces import PIECES

T = TypeVar("T")
R = TypeVar("R")

TASK_END_SECONDS = 5
"""How long the Python process of a cancelled task may still run: Spark looks every two seconds for cancelled tasks, gives their
processes two seconds (`spark.python.task.killTimeout`), and kills them."""

TASK_ERROR = "paimon_cli.jobs.spark.tasks.TaskError: "
"""How Python's text of a `TaskError` begins."""
_CARRIED = re.compile(re.escape(TASK_ERROR) + r"([0-9a-f]{64}(?:,[0-9a-f]{64})*) ([^\n]*)$", re.MULTILINE)
_TAG = re.compile(r"paimon-cli-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
JOB_TAGS = "spark.job.tags"
"""Local property of all tasks of a job: the job's tags, for a client of Spark Connect within longer ones."""
HIDES_TRACEBACK = "SPARK_HIDE_TRACEBACK"


class TaskError(Exception):
    """Carries a `PaimonError` from a task to the driver in its message, because Spark transports only text."""


@dataclass(frozen=True)
class JobKey:
    """The tag of a Spark job, and a secret of the driver and the job's tasks. Tasks sign their errors with it.

    The text of a failed job quotes cells, names of files and messages of the user's functions, any of which may imitate an
    error of a task. Only signed ones are believed. The secret is a local property of the job, which reaches the tasks of every
    source and function in it, and is in no text: Spark hides the values of properties named `token`.
    """

    tag: str = field(default_factory=lambda: f"paimon-cli-{uuid.uuid4()}")
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    @property
    def property_name(self) -> str:
        """The local property with the secret; over Spark Connect a setting of the session, which becomes one."""
        return f"spark.paimon-cli.token.{self.tag}"

    @classmethod
    def of_task(cls) -> list[JobKey]:
        """The keys of the jobs of this task, as one may run within another; none outside of tasks, and in other jobs."""
        task = TaskContext.get()
        if task is None:
            return []
        keys = (cls(tag, "") for tag in sorted(set(_TAG.findall(task.getLocalProperty(JOB_TAGS) or ""))))
        found = ((key.tag, task.getLocalProperty(key.property_name)) for key in keys)
        return [cls(tag, secret) for tag, secret in found if secret]

    def error_in(self, text: str) -> PaimonError | None:
        """The error of a task that is carried in the text of Spark's exception; None if there is none with a valid signature."""
        for carried in _CARRIED.finditer(text):
            if any(hmac.compare_digest(signature, self.signature(carried[2])) for signature in carried[1].split(",")):
                content = json.loads(carried[2])
                error_class: type[PaimonError] = getattr(errors, content["class"])
                return error_class(content["what"], content["why"], content["hint"], **content["details"])
        return None

    def signature(self, text: str) -> str:
        return hmac.new(self.secret.encode(), text.encode(), "sha256").hexdigest()


def signed(error: PaimonError, keys: Sequence[JobKey]) -> TaskError:
    """The error as text that `JobKey.error_in` of each of these keys believes."""
    content = {
        "class": _known_class(error).__name__,
        "what": error.what,
        "why": error.why,
        "hint": error.hint,
        "details": error.details,
    }
    text = json.dumps(content, default=str)
    return TaskError(f"{','.join(key.signature(text) for key in keys)} {text}")


def _known_class(error: PaimonError) -> type[PaimonError]:
    """The class of the error, or the nearest base class that is in `paimon_cli.errors`."""
    return next(base for base in type(error).__mro__ if vars(errors).get(base.__name__) is base)


_modules_frozen = 0


def freeze_modules() -> None:
    """Exempt all imported modules from the garbage collector, which Spark runs after each call of a Python process."""
    global _modules_frozen
    if len(sys.modules) > _modules_frozen:
        gc.freeze()
        _modules_frozen = len(sys.modules)


@contextmanager
def called_by_spark() -> Iterator[None]:
    """In Python processes that Spark starts: a `PaimonError` becomes text, without a traceback, which would quote its causes.

    In a job of this package it is signed for the driver, which raises it again. In the user's own queries Spark shows its text
    and hint. Spark ends a Python process after an error, so the environment variable affects only this error.
    """
    freeze_modules()
    try:
        yield
    except PaimonError as error:
        os.environ[HIDES_TRACEBACK] = "1"
        if keys := JobKey.of_task():
            raise signed(error, keys) from None
        if error.hint:
            error.what, error.why = f"{error.message}\nhint: {error.hint}", ""
            error.set_hint("")  # Python 3.11 would print the hint once more, as a note of the exception
        raise


def shared_tasks(count: int, sizes: Sequence[int] | None) -> list[range]:
    """The numbers of tasks in shares, each for one Spark task. `sizes`: bytes that each task reads; None: nothing is shared."""
    if sizes is None:
        return [range(number, number + 1) for number in range(count)]
    return shares(sizes, PIECES.least_task_bytes, PIECES.shared_task_bytes)


def outcome_of(function: Callable[[T], R], task: T) -> R | PaimonError:
    try:
        return function(task)
    except PaimonError as error:
        return error
