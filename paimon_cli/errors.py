"""Every error that a user can see: what happened, why, what to do next, and the exit code that scripts rely on.

The classes follow the question "would the user act differently?" (`docs/exit-codes.md`). Anything that is not
a `PaimonError` is a bug in paimon-cli (exit 1).
"""

from __future__ import annotations

import contextlib
import errno
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from paimon_cli.installation import install_command

FINDINGS_EXIT_CODE = 4
"""Exit code of a check or comparison that ran to its end and has findings."""
_FLAG = re.compile(r"(?<![\w-])(?:--([a-z][a-z-]*)|-C\b)(?: (?=[A-Z]{3,}\b))?")
_SETTING = re.compile(
    r"--(?:(?P<engine>engine) (?P<kind>local|spark|auto)\b"
    r"|(?P<master>master|remote) '?(?P<url>[\w.-]+(?:\[[\w*]+\]|://[\w.:-]*\w)|yarn\b)'?"
    r"|spark-conf (?P<key>spark\.[\w.]+)=(?P<value>\w+)"
    r"|param (?P<parameter>\w+)=VALUE)"
)
"""Options with a value: settings of Spark (in the library arguments of `Table.open` and `Catalog`), and parameters of SQL."""
COMMAND = re.compile(r"(?P<quote>`?)paimon-cli (?P<words>[a-z](?:'[^'\n]*'|[^`\n;])*)(?P=quote)")
METHODS = {
    **{name: name for name in ("advise", "compact", "describe", "doctor", "rescale", "verify")},
    **{f"{name} ls": name for name in ("buckets", "compactions", "files", "manifests", "partitions", "schemas", "snapshots")},
    **{f"{name} ls": f"{name}.ls" for name in ("branches", "consumers", "tags")},
    **{f"tags {name}": f"tags.{name}" for name in ("replace", "create")},
    "branches create": "branches.create",
    "compact-manifests": "compact_manifests",
    "analyze": "analyze",
    "health": "health",
    "repair": "plan_repair",
}
"""Methods of `Table` by the command that does the same with a table and options that have the names of parameters.

Commands that discard something ask, and calls do not: they are not among these.
"""
NAMES_ONE = ("tags replace", "tags create", "branches create")
"""Those with a name after the table."""
OPENS, NO_ARGUMENTS = ("--warehouse", "--branch"), ("--option", "--profile", "--trace")
"""Options that are arguments of `Table.open`, and those of which one word is not a whole argument of a call."""
METHODS_OF_CATALOG = {"tables ls": "tables", "db ls": "databases", "db create": "create_database", "tables clone": "clone_table"}
METHODS_OF_CATALOG |= {"undrop": "undrop", "compare": "compare"}
"""Methods of `Catalog` by the command that does the same, with names and a warehouse."""
MOST_NAMES = {"tables ls": 1, "db ls": 0, "db create": 1, "tables clone": 2, "undrop": 1, "compare": 2}
CALLS = {"create": "Table.create", "compact": "Table.compact", "delete": "Table.delete", "rescale": "Table.rescale"}
CALLS |= {"tables ls": "Catalog.tables", "db ls": "Catalog.databases", "alter": "Table.alter", "repair": "Table.plan_repair"}
"""What texts for callers of the library name instead of commands without arguments."""


def in_python(text: str) -> str:
    """The text for callers of the library: `--retain-max` becomes `retain_max`, `--warehouse URI` becomes `warehouse=URI`, and
    `--engine local` becomes `engine='local'`.

    A command to paste becomes a call of the library if `METHODS` has it; a text with another command is unchanged.
    """
    text = COMMAND.sub(lambda command: _call(command["words"]) or command[0], text)
    return text if "paimon-cli " in text else _FLAG.sub(_parameter, _SETTING.sub(_setting, text))


def _setting(setting: re.Match[str]) -> str:
    if setting["engine"]:
        return f"engine={setting['kind']!r}"
    if setting["master"]:
        return f"master={setting['url']!r}"
    if setting["parameter"]:
        return f"params={{{setting['parameter']!r}: ...}}"
    return f"spark_conf={ {setting['key']: setting['value']}!r}"


def _parameter(flag: re.Match[str]) -> str:
    return (flag[1] or "columns").replace("-", "_") + ("=" if flag[0].endswith(" ") else "")


def _call(command: str) -> str | None:
    """The call that does what a command does; None if the library has no such call, or its arguments are others."""
    if command.rstrip() in CALLS:
        return CALLS[command.rstrip()]
    try:
        words = [word for word in shlex.split(command, comments=True) if word != "--yes"]  # the library asks no questions
    except ValueError:
        return None
    if words[0] == "alter":
        return _alteration(words[1:])
    if words[0] == "create":
        return _creation(words[1:])
    for size in (2, 1):
        if (name := " ".join(words[:size])) in METHODS_OF_CATALOG:
            return _call_of_catalog(name, words[size:])
    size = next((size for size in (2, 1) if len(words) > size and " ".join(words[:size]) in METHODS), 0)
    if not size or words[size].startswith("-"):
        return None
    command = " ".join(words[:size])
    names = 1 if command in NAMES_ONE and len(words) > size + 1 else 0
    arguments, rest = [repr(name) for name in words[size + 1 : size + 1 + names]], words[size + 1 + names :]
    method, opening = METHODS[command], [repr(words[size])]
    if "--apply" in rest:
        rest, method = [word for word in rest if word != "--apply"], method.removeprefix("plan_")
    while rest:
        flag, *values = rest[: 2 if len(rest) > 1 and not rest[1].startswith("-") else 1]
        if not flag.startswith("--") or "=" in flag:
            return None
        if flag in NO_ARGUMENTS:
            return None
        value = True if not values else int(values[0]) if values[0].isdecimal() else values[0]
        argument = f"{flag.removeprefix('--').replace('-', '_')}={value!r}"
        (opening if flag in OPENS else arguments).append(argument)
        rest = rest[1 + len(values) :]
    return f"Table.open({', '.join(opening)}).{method}({', '.join(arguments)})"


def _creation(words: list[str]) -> str | None:
    """The call that creates a table with columns; None if the command has other options, or no columns."""
    table, *rest = words
    if table.startswith("-") or not rest or len(rest) % 2 or any(flag != "-C" for flag in rest[::2]):
        return None
    return f"Table.create({table!r}, columns={rest[1::2]!r})"


def _call_of_catalog(name: str, words: list[str]) -> str | None:
    """The call that does the same with a catalog; None if the command has other options."""
    at = words.index("--warehouse") if "--warehouse" in words[:-1] else len(words)
    places, url = words[:at], words[at + 1 : at + 2]
    if words[at + 2 :] or len(places) > MOST_NAMES[name] or any(place.startswith("-") for place in places):
        return None
    return f"Catalog({', '.join(map(repr, url))}).{METHODS_OF_CATALOG[name]}({', '.join(map(repr, places))})"


def _alteration(words: list[str]) -> str | None:
    """The call that sets or removes options or adds a column, as `alter TABLE set|unset|add-column ...` does; None for other
    changes and for flags.
    """
    if len(words) < 3 or words[1] not in ("set", "unset", "add-column") or any(word.startswith("-") for word in words):
        return None
    table, kind, *options = words
    if kind == "add-column":
        return f"Table.open({table!r}).alter.add_column({options[0]!r})" if len(options) == 1 else None
    pairs = dict(option.partition("=")[::2] for option in options)
    arguments = repr(pairs) if kind == "set" else ", ".join(map(repr, options))
    return f"Table.open({table!r}).alter.{kind}({arguments})"


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
