"""Every error that a user can see: what happened, why, what to do next, and the exit code that scripts rely on.

The classes follow the question "would the user act differently?" (`docs/exit-codes.md`). Anything that is not
a `PaimonError` is a bug in paimon-cli (exit 1).
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Callable, Iterator
from typing import Any

from paimon_cli.command_texts import in_python
from paimon_cli.installation import install_command

FINDINGS_EXIT_CODE = 4
"""Exit code of a check or comparison that ran to its end and has findings."""
_NEXT_LINE = re.compile(r"\n(?! )")


def _indented(text: str) -> str:
    """The text with further lines indented: after a line break, data must not look like a line of ours, such as a hint."""
    return _NEXT_LINE.sub("\n  ", text)


class PaimonError(Exception):
    """One line `what`, one line `why`, one line `hint`; `details` holds the same facts for `-o json`.

    They name options as on the command line; `str()` of the exception names the corresponding parameters of the library. The hint
    is a note of the exception, which tracebacks print below it (Python 3.11 and later; IPython). Errors can be pickled, so that
    they can be outcomes of Spark tasks.
    """

    code = "PC-INTERNAL"
    exit_code = 1
    committed: tuple[Any, ...] = ()
    """The snapshots that the commit had published before this error: the first one of two."""

    def __init__(self, what: str, why: str = "", hint: str = "", **details: Any) -> None:
        super().__init__(what)
        self.what = _indented(what)
        self.why = _indented(why)
        self.details = details
        self.set_hint(hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.why, self.hint, self.details))

    def set_hint(self, hint: str) -> None:
        """Give the error this hint, for example where a job knows better than the step that failed."""
        self.hint = _indented(hint)
        self.__notes__ = [f"hint: {in_python(self.hint)}"] if hint else []

    def extend_why(self, text: str) -> None:
        """Add lines to the reason, such as what was done before."""
        self.why = _indented(f"{self.why}\n{text}" if self.why else text)

    @property
    def message(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    @property
    def path(self) -> str | None:
        """The file that cannot be used; None if the error is not about one file."""
        return self.details.get("path")

    def __str__(self) -> str:
        return in_python(self.message)


def _rebuild(error_class: type[PaimonError], what: str, why: str, hint: str, details: dict[str, Any]) -> PaimonError:
    return error_class(what, why, hint, **details)


def class_of_code(error: PaimonError) -> type[PaimonError]:
    """The class for an error about several ones like this: its own, unless that holds facts of one table, as `BadOption` does."""
    kinds = (kind for kind in type(error).__mro__ if issubclass(kind, PaimonError))
    return next(kind for kind in kinds if kind.__init__ is PaimonError.__init__)


@contextlib.contextmanager
def cleaning_up(failure: BaseException | None = None) -> Iterator[None]:
    """Context manager for a clean-up after a failure, or after a successful commit: suppresses `PaimonError`.

    A failed clean-up leaves orphan files. Its error must not replace the original failure, which decides what the user has to
    do and whether the job retries; it is added to the details of that failure, which `-o json` prints.
    """
    try:
        yield
    except PaimonError as second:
        if isinstance(failure, PaimonError):
            failure.details["clean_up_failed"] = str(second)


@contextlib.contextmanager
def undone_on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the block fails or is interrupted. If `undo` fails too, the error of the block is raised."""
    try:
        yield
    except BaseException as failure:
        with cleaning_up(failure):
            undo()
        raise


class Unpublished(KeyboardInterrupt):
    """An interrupt before the commit was published: the table is unchanged, but for the first half of a commit of two.

    `details`, `committed`: as those of a `PaimonError`.
    """

    committed: tuple[Any, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.details: dict[str, Any] = {}


class UsageError(PaimonError):
    """A bad option or argument, or an object to be created that exists already."""

    code, exit_code = "PC-USAGE", 2


class BadOption(UsageError):
    """The value of an option cannot be read. `of_call`: it was given for one call. `of_table`: the table that has it, as an
    argument of commands.
    """

    def __init__(self, what: str, why: str = "", hint: str = "", *, key: str, value: str, **details: Any) -> None:
        super().__init__(what, why, hint, key=key, value=value, **details)
        self.key, self.value = key, value
        self.of_call: bool = details.get("of_call", False)
        self.of_table: str = details.get("of_table", "")

    def blame(self, *, call: bool = False, table: str = "") -> None:
        """Say who has the option: the call, or a table."""
        self.of_call, self.of_table = call, table
        self.details |= {"of_call": True} if call else {"of_table": table}


class AlreadyExists(UsageError):
    """A table, database, tag, branch or column that is to be created exists already."""


class BadInput(PaimonError):
    """Input data that does not fit the table; the message names source, row and column. Nothing was committed."""

    code, exit_code = "PC-BAD-INPUT", 2


class NotFound(PaimonError):
    """A table, snapshot, tag or schema does not exist, or no longer exists."""

    code, exit_code = "PC-NOT-FOUND", 3

    @property
    def is_about_a_name(self) -> bool:
        """Whether the hint says which table was meant, or lists the tables of the catalog."""
        return bool({"did_you_mean", "unknown_table", "unknown_database"} & self.details.keys())


class TableNotFound(NotFound):
    """There is no such table."""


class UnfinishedCopy(TableNotFound):
    """A restore or copy is making the table, or was killed; there is no table before it is whole."""


class SnapshotNotFound(NotFound):
    """There is no such snapshot, or it has expired."""


class BeingDropped(NotFound):
    """The table or branch is being dropped, or was dropped while the command ran. A commit that reports this was not made."""

    code = "PC-DROPPED"

    @property
    def branch_command(self) -> str | None:
        """The command that deletes the rest of a branch; None if the table itself is being dropped."""
        return self.details.get("command")


class Conflict(PaimonError):
    """Another commit conflicts with this one; the job must start again from the latest snapshot."""

    code, exit_code = "PC-CONFLICT", 5


class FilesConflict(Conflict):
    """A file to delete is gone, key ranges of a level overlap, or the bucket count changed (FORMAT.md, section 10.3)."""

    code = "PC-CONFLICT-FILE"


class BucketsConflict(FilesConflict):
    """Another commit assigned keys to buckets after this job had read the bucket of each key."""

    code = "PC-CONFLICT-BUCKETS"


class CountConflict(FilesConflict):
    """The bucket count of a partition has changed since this job planned: its files are in buckets of the earlier count."""

    code = "PC-CONFLICT-COUNT"


class SnapshotExpired(Conflict):
    """The snapshot at which this job was planned has expired, and files that it needs were deleted with it."""

    code = "PC-CONFLICT-EXPIRED"


class DataConflict(Conflict):
    """Another commit, newer than the snapshot that this job has read, wrote to the same partition, bucket, key range or keys."""

    code = "PC-CONFLICT-DATA"


class StorageUnavailable(PaimonError):
    """The storage or Spark does not answer, a job was cancelled, no lock was acquired, or a commit has used up its retries."""

    code, exit_code = "PC-UNAVAILABLE", 6


class RequestRefused(StorageUnavailable):
    """The storage answered, and refused what was asked of one file, such as to delete a locked one. It may do so for others."""


class NoAccess(RequestRefused):
    """The user may not read or write a file or directory. Trying again does not help."""

    code, exit_code = "PC-NO-ACCESS", 2


class FilesLeft(StorageUnavailable):
    """The storage refused to delete some of several files. The others, `deleted`, are gone; `refused` ones are left."""

    def __init__(self, what: str, why: str = "", hint: str = "", *, deleted: int, refused: int, **details: Any) -> None:
        super().__init__(what, why, hint, deleted=deleted, refused=refused, **details)
        self.deleted, self.refused = deleted, refused


class TookTooLong(StorageUnavailable):
    """A look at the metadata of one table of several has used up its time, and was given up."""

    code = "PC-TIMEOUT"


NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
ASK_FOR_ACCESS = "check the permissions of the file, and of the directories above it"


class Refused(PaimonError):
    """Refused as unsafe: no safe commit on this storage, or a confirmation is missing."""

    code, exit_code = "PC-REFUSED", 7


class NotSupported(PaimonError):
    """The table, type or request needs a feature that this version does not have."""

    code, exit_code = "PC-NOT-SUPPORTED", 8


class UnsupportedOption(NotSupported):
    """A table has an option that this version does not honour."""

    def __init__(self, what: str, why: str = "", hint: str = "", *, option: str, value: str, **details: Any) -> None:
        super().__init__(what, why, hint, option=option, value=value, **details)
        self.option, self.value = option, value


class PartialSuccess(PaimonError):
    """A part was done and committed, such as some buckets or the rows before their compaction; the rest failed."""

    code, exit_code = "PC-PARTIAL", 9


class DamagedFile(PaimonError):
    """A table file is missing or does not match its metadata."""

    code, exit_code = "PC-DAMAGED", 10


class CommitUnknown(PaimonError):
    """The storage gave no clear answer when the snapshot was published: it may be committed. Nothing was deleted."""

    code, exit_code = "PC-COMMIT-UNKNOWN", 11


def if_damaged(table: str) -> str:
    """The one hint about damaged files of a table, by its argument: `verify` says what else is, and what to do next."""
    return f"restore the file, or see what is damaged and what can be done: paimon-cli verify {table} --all-snapshots"


@contextlib.contextmanager
def importing(what: str, extra: str, error_class: type[PaimonError] = UsageError) -> Iterator[None]:
    """Context manager for imports of optional packages: if one is missing, raises an error with the command to install it."""
    try:
        yield
    except ImportError as missing:
        if (missing.name or "").startswith("paimon_cli"):
            raise
        raise error_class(what, str(missing).split("\n", 1)[0], install_command(extra)) from None


def of_system(error: OSError) -> StorageUnavailable:
    """The error for a failed call of the operating system, such as a full disk. A commit before it stays valid."""
    where = error.filename or "the output, or a temporary file"
    if error.errno in NO_ACCESS:
        return NoAccess(f"cannot write or read {where}", error.strerror or str(error), ASK_FOR_ACCESS)
    return StorageUnavailable(f"cannot write or read {where}", error.strerror or str(error))


def as_paimon_error(error: Exception) -> PaimonError:
    """The error itself, that of the operating system in our words, or else one that calls it a bug, with its cause."""
    if isinstance(error, PaimonError):
        return error
    if isinstance(error, OSError) and error.strerror:
        return of_system(error)
    what = f"{type(error).__name__}: {error}".split("\n")[0]
    bug = PaimonError(what, "this is a bug of paimon-cli", "--trace for details")
    bug.__cause__ = error
    return bug
