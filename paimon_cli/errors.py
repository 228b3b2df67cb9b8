"""Every error that a user can see: what happened, why, what to do next, and the exit code that scripts rely on.

The classes follow the question "would the user act differently?" (`docs/exit-codes.md`). Anything that is not
a `PaimonError` is a bug of ours (exit 1).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

FINDINGS_EXIT_CODE = 4
"""A check or a comparison worked, and found something."""
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")


def in_python(text: str) -> str:
    """The text for callers of the library: `--retain-max` becomes `retain_max`; commands to be pasted stay as they are."""
    return text if "paimon-cli " in text else _FLAG.sub(lambda flag: flag[1].replace("-", "_"), text)


class PaimonError(Exception):
    """One line `what`, one line `why`, one line `hint`; `details` holds the same facts for `-o json`.

    They name options as on the command line; the exception's own text names the parameters of the library, which are called
    alike. The hint is a note of the exception, which tracebacks print below it (Python 3.11 and later; IPython). Picklable, so
    that a Spark task can raise it and the driver shows it unchanged.
    """

    code = "PC-INTERNAL"
    exit_code = 1

    def __init__(self, what: str, why: str = "", hint: str = "", **details: Any) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.details = details
        self.set_hint(hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.why, self.hint, self.details))

    def set_hint(self, hint: str) -> None:
        """Give the error this hint, for example where a job knows better than the step that failed."""
        self.hint = hint
        self.__notes__ = [f"hint: {in_python(hint)}"] if hint else []

    @property
    def message(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    def __str__(self) -> str:
        return in_python(self.message)


def _rebuild(kind: type[PaimonError], what: str, why: str, hint: str, details: dict[str, Any]) -> PaimonError:
    return kind(what, why, hint, **details)


@contextlib.contextmanager
def cleaning_up(failure: BaseException | None = None) -> Iterator[None]:
    """Context of a clean-up after a failure, or after a commit that succeeded.

    An error in the clean-up leaves orphans. It must not replace the original failure, which decides what the user has to do and
    whether the job tries again; it is added to the details of that failure, which `-o json` prints.
    """
    try:
        yield
    except PaimonError as second:
        if isinstance(failure, PaimonError):
            failure.details["clean_up_failed"] = str(second)


@contextlib.contextmanager
def undone_on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` when the block fails or is interrupted; if that fails too, the first error is the one that is raised."""
    try:
        yield
    except BaseException as failure:
        with cleaning_up(failure):
            undo()
        raise


class Unpublished(KeyboardInterrupt):
    """An interrupt at a time when this commit was certainly not published."""


class UsageError(PaimonError):
    """A bad option or argument, or something that exists already."""

    code, exit_code = "PC-USAGE", 2


class BadInput(PaimonError):
    """Input data that does not fit the table: names source, row and column. Nothing was committed."""

    code, exit_code = "PC-BAD-INPUT", 2


class NotFound(PaimonError):
    """A table, snapshot, tag or schema that is not there (or not any more)."""

    code, exit_code = "PC-NOT-FOUND", 3


class Conflict(PaimonError):
    """Another commit contradicts this one; the job must start again from the latest snapshot."""

    code, exit_code = "PC-CONFLICT", 5


class FilesConflict(Conflict):
    """A file to delete is gone, key ranges of a level overlap, or the bucket count changed (FORMAT.md, section 10.3)."""

    code = "PC-CONFLICT-FILE"


class BucketsConflict(FilesConflict):
    """Another commit gave keys to buckets after this job had read in which buckets keys are."""

    code = "PC-CONFLICT-BUCKETS"


class DataConflict(Conflict):
    """Another commit wrote where this job writes, after the snapshot that the job had read."""

    code = "PC-CONFLICT-DATA"


class StorageUnavailable(PaimonError):
    """The storage does not answer, a lock could not be acquired, or all retries of a commit are spent."""

    code, exit_code = "PC-UNAVAILABLE", 6


class Refused(PaimonError):
    """Refused as unsafe: no safe commit on this storage, or a confirmation is missing."""

    code, exit_code = "PC-REFUSED", 7


class NotSupported(PaimonError):
    """The table, type or request uses something that this version does not do."""

    code, exit_code = "PC-NOT-SUPPORTED", 8


class PartialSuccess(PaimonError):
    """Some buckets were done and committed, others failed."""

    code, exit_code = "PC-PARTIAL", 9


class DamagedFile(PaimonError):
    """A table file is missing or does not match its metadata."""

    code, exit_code = "PC-DAMAGED", 10


class CommitUnknown(PaimonError):
    """The storage gave no clear answer to the publication: it may have happened. Nothing was deleted."""

    code, exit_code = "PC-COMMIT-UNKNOWN", 11


def install_command(extra: str) -> str:
    """The command, as hints show it, that installs the packages of an extra of this one."""
    return f"pip install 'paimon-cli[{extra}]'"


@contextlib.contextmanager
def importing(what: str, extra: str, kind: type[PaimonError] = UsageError) -> Iterator[None]:
    """Around imports of optional packages: `kind` with `what` and the command that installs them, where one is missing."""
    try:
        yield
    except ImportError as missing:
        if (missing.name or "").startswith("paimon_cli"):
            raise
        raise kind(what, str(missing).split("\n", 1)[0], install_command(extra)) from None
