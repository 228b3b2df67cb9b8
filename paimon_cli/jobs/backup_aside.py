"""What the copy of a backup has and its table has no more, or has otherwise, becomes a branch of the copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.lineage import follows
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.copy_plan import CopiedVersion
from paimon_cli.jobs.table_copy import TableCopy
from paimon_cli.metadata.table_layout import MAIN_BRANCH, SCHEMA_PREFIX, SNAPSHOT_PREFIX, TAG_PREFIX

ROLLED_BACK, WRITTEN_HERE = "rolled-back-", "written-here-"
"""How the names of the branches begin that hold what the table has no more, and what others have written into the copy."""


@dataclass(frozen=True)
class SetAside:
    """A `branch` of the copy that holds what the table has otherwise, and what has happened, as a sentence."""

    branch: str
    cause: str


@dataclass(frozen=True)
class RunOfCopy:
    """A run of a backup. `destination`: its name without secrets; `branches`: those that the table has."""

    number: int
    destination: str
    branches: Sequence[str]


def set_aside_what_differs(
    copy: TableCopy, history: TableContext, there: Sequence[int], head: int | None, run: RunOfCopy
) -> Iterator[SetAside]:
    """Move snapshots and schemas of the copy that the table has no more, or has otherwise, into a branch of the copy. `head`: the
    newest snapshot that the last run had copied, if that is known.
    """
    differing, schemas = _differing(copy, history, there), _differing_schemas(copy, history)
    if not (differing or schemas):
        return
    is_written = head is not None and bool(differing) and differing[0] > head
    wanted = f"{WRITTEN_HERE if is_written else ROLLED_BACK}{run.number}"
    wanted += "" if history.branch == MAIN_BRANCH else f"-{history.branch}"
    branch = _free_name(copy, history, wanted, run.branches)
    _move_aside(copy, history, differing, schemas, branch)
    of = "" if history.branch == MAIN_BRANCH else f"branch {history.branch} of "
    table = copy.source.name
    if is_written:
        cause = f"another command has written {_named(differing)} into {of}{run.destination}, which no backup has copied"
    elif schemas:
        cause = f"schema {schemas[0]} of the copy is not that of {of}{table}: it was made again, or the copy was altered"
    else:
        cause = f"{of}{table} does not have {_named(differing)} of the copy: it was rolled back, or files of it were lost"
        cause += ", or another command has written into the copy" if head is None else ""
    yield SetAside(branch, f"{cause}; what the copy had is now its branch {branch}")


def _named(snapshots: Sequence[int]) -> str:
    return f"snapshot {snapshots[0]}" if len(snapshots) == 1 else f"snapshots {snapshots[0]} to {snapshots[-1]}"


def _free_name(copy: TableCopy, history: TableContext, wanted: str, taken: Sequence[str]) -> str:
    """The name of a branch that holds nothing else. What a run that was killed has begun to move there is continued: the table
    may have become another one since, and the next run has the same number.
    """
    return next(
        name
        for number in count(1)
        if (name := wanted if number == 1 else f"{wanted}-{number}") not in taken and _fits(copy, history, name)
    )


def _fits(copy: TableCopy, history: TableContext, branch: str) -> bool:
    """Whether all that the copy has of a history can be put into a branch of it: what is there already is the same."""
    return all(
        copy.storage.read_bytes(source) == copy.storage.read_bytes(target)
        for source, target in _moves(copy, history, branch)
        if target.rpartition("/")[2] in copy.names(target.rpartition("/")[0])
    )


def _moves(copy: TableCopy, history: TableContext, branch: str, *, with_tags: bool = True) -> Iterator[tuple[str, str]]:
    """The schemas, snapshots and tags of a history of the copy, and where they are put."""
    layout, keeper = copy.layout.of_branch(history.branch), copy.layout.of_branch(branch)
    for number in copy.numbers(layout.schema_directory, SCHEMA_PREFIX):
        yield layout.schema(number), keeper.schema(number)
    for number in copy.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX):
        yield layout.snapshot(number), keeper.snapshot(number)
    for name in copy.names(layout.tag_directory) if with_tags else ():
        yield f"{layout.tag_directory}/{name}", keeper.tag(name.removeprefix(TAG_PREFIX))


def is_equal(copy: TableCopy, there: str, here: str) -> bool:
    """Whether a file of the copy and one of the table are the same; False if the table has none."""
    try:
        return copy.storage.read_bytes(there) == copy.source.storage.read_bytes(here)
    except FileNotFoundError:
        return False


def _differing(copy: TableCopy, history: TableContext, there: Sequence[int]) -> list[int]:
    """The snapshots of the copy that are not those of the table. Raises `DamagedFile` if the table has lost the newest one.

    Expired ones are older than all that the table has. What was rolled back is newer, or was replaced by other commits.
    """
    layout = copy.layout.of_branch(history.branch)
    held = copy.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX)
    common = sorted(set(held).intersection(there))
    while common and not is_equal(copy, layout.snapshot(common[-1]), history.layout.snapshot(common[-1])):
        common.pop()
    last = common[-1] if common else 0
    if not common and held and there and held[-1] < there[0] and not _is_of_another_history(copy, history, held[-1], there[0]):
        last = held[-1]
    differing = [number for number in held if number > last]
    if differing and (hint := history.snapshots.latest_hint()) in differing:
        _expect_not_lost(history, hint)
    return differing


def _differing_schemas(copy: TableCopy, history: TableContext) -> list[int]:
    """The schemas of the copy that are not those of the table: of a branch that was deleted, made again and altered. Schemas are
    never changed, so those below one that is the same are, too.
    """
    layout = copy.layout.of_branch(history.branch)
    held = copy.numbers(layout.schema_directory, SCHEMA_PREFIX)
    same = next((n for n in reversed(held) if is_equal(copy, layout.schema(n), history.layout.schema(n))), -1)
    return [number for number in held if number > same]


def _is_of_another_history(copy: TableCopy, history: TableContext, newest: int, oldest: int) -> bool:
    """Whether the copy has other schemas, or its newest snapshot has the number before the oldest one of the table, which was
    built on another: after a rollback or a fast-forward, and an expiry that no consumer has stopped. Its changes alone would
    leave files out.
    """
    if _differing_schemas(copy, history):
        return True
    if oldest != newest + 1:
        return False
    held = TableContext.open(copy.layout.root, storage=copy.storage, clock=history.clock).seen_from(history.branch)
    before, snapshot = held.snapshots.find(newest), history.snapshots.find(oldest)
    with suppress(DamagedFile, NotFound):
        return before is not None and snapshot is not None and not follows(held, before, history, snapshot)
    return True


def _expect_not_lost(history: TableContext, hinted: int) -> None:
    """Raise `DamagedFile` if there is no such snapshot, although the hint names it: a rollback lowers the hint first."""
    path = history.layout.snapshot(hinted)
    if not history.storage.exists(path) and history.snapshots.latest_hint() == hinted:
        why = f"{history.layout.latest_hint} names it, and the copy has it"
        hint = f"restore the backup into a new table, or go on with what is left: paimon-cli repair {history.layout.argument}"
        raise DamagedFile(f"{path} is missing", why, hint, path=path)


def _move_aside(copy: TableCopy, history: TableContext, differing: Sequence[int], schemas: Sequence[int], branch: str) -> None:
    """Make a branch of what the copy has of a history, and remove from that what differs."""
    layout = copy.layout.of_branch(history.branch)
    is_all = len(differing) == len(copy.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX))
    for source, target in list(_moves(copy, history, branch, with_tags=is_all or bool(schemas))):
        copy.put(target, copy.storage.read_bytes(source))
    copy.write_hints(branch)
    if is_all and history.branch != MAIN_BRANCH:  # a new branch with the name of another one
        copy.storage.delete_directory(layout.version_root)
        copy.forget()
        return
    for name in sorted(copy.names(layout.tag_directory)):  # the schema of a tag is the one with its number
        path = f"{layout.tag_directory}/{name}"
        if (version := CopiedVersion.read(copy.storage, path)) is not None and version.snapshot.schema_id in schemas:
            copy.remove(path)
    for number in reversed(differing):
        copy.remove(layout.snapshot(number))
    copy.write_hints(history.branch)
    for number in reversed(schemas):
        copy.remove(layout.schema(number))
