"""Examines directories: before a table or output files are created in them, and to explain why one is not a table."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Sequence

from paimon_cli.catalog.metastore.metastore import DATABASE_SUFFIX
from paimon_cli.commit.commit_records import is_record
from paimon_cli.errors import DamagedFile, StorageUnavailable, UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_directory import is_table, recognised_table
from paimon_cli.metadata.table_layout import SCHEMA_PREFIX, TableLayout
from paimon_cli.options.option_text import nearest
from paimon_cli.storage.capabilities import directories_of, first_entries
from paimon_cli.storage.directories import MAX_EXAMINED, MAX_SIMILAR, ancestors
from paimon_cli.storage.guarded_storage import PROBE_PREFIX
from paimon_cli.storage.storage import FileStatus, Storage

_OF_VERSIONS = {"snapshot", "tag", "changelog", "branch"}
MAX_NAMED = 5
"""The most directory entries that a message names."""
_DEPTH_OF_TABLES = 3
"""How many directories below that of a table a path may lead, to be recognised as one inside of it."""


def check_site(storage: Storage, root: str) -> list[str]:
    """Check `root` before a table is created there; returns warnings about parent directories that could not be examined.

    Raises `UsageError` if `root` is not empty, or is inside a table.
    """
    entries = _foreign_entries(storage, root)
    if entries and all(_is_of_late_commit(storage, root, entry) for entry in entries):
        for entry in entries:
            storage.delete_directory(entry.path)
    elif entries:
        raise UsageError(
            f"{root} is not empty", _content(storage, root, entries), "choose another path: a table needs its own directory"
        )
    if is_file(storage, root):
        raise UsageError(f"{root} is a file", "a table is a directory", "choose another path")
    return _check_parents(storage, root)


def check_output_path(storage: Storage, path: str) -> None:
    """Check `path` before output is written to it. Raises `UsageError` inside a table, whose files could be overwritten."""
    for directory in ancestors(path):
        with contextlib.suppress(StorageUnavailable):
            if is_table(storage, directory):
                raise UsageError(
                    f"{path} is inside the table {directory}",
                    "other files there would be orphans, or overwrite files of the table",
                    "choose a path outside of it",
                )


def check_not_dropping(storage: Storage, root: str) -> None:
    """Raise `UsageError` if a drop has begun at `root`, so that what looks like a table is no longer one."""
    if SnapshotHistory(storage, TableLayout(root)).is_ended():
        rest = f"delete the rest: paimon-cli drop {shlex.quote(root)}"
        raise UsageError(f"{root} is not empty", "it is a table whose drop was interrupted, or is still running", rest)


def recognised_content(storage: Storage, root: str) -> str | None:
    """What a path contains instead of a table, such as `it is a Delta Lake table (_delta_log)`; None if not recognised."""
    if is_file(storage, root):
        return "it is a file"
    return _recognised(storage, root, first_entries(storage, root, MAX_EXAMINED))


def within(storage: Storage, root: str, name: str) -> tuple[str, str]:
    """What helps somebody who named a warehouse or a database directory as a table: a hint, and the name if it is a warehouse."""
    directories = {entry.name for entry in first_entries(storage, root, MAX_EXAMINED) if entry.is_directory}
    databases, tables = _held(storage, root, directories)
    listing = f"list its tables: paimon-cli ls {shlex.quote(name)}"
    if databases:
        return listing, name
    if len(tables) == 1:
        return f"did you mean {name.rstrip('/')}/{tables[0]}?", ""
    return (listing if tables else "give the path of a Paimon table"), ""


def _held(storage: Storage, root: str, directories: Collection[str]) -> tuple[list[str], list[str]]:
    """The databases in a directory; if there are none, the first tables."""
    databases = sorted(name.removesuffix(DATABASE_SUFFIX) for name in directories if name.endswith(DATABASE_SUFFIX))
    if databases:
        return databases, []
    return [], [name for name in sorted(directories)[: 2 * MAX_NAMED] if is_table(storage, f"{root}/{name}")]


def similar_table(storage: Storage, root: str, name: str) -> str | None:
    """The table whose path is similar to `root`, where there is none, in the words of `name`; None if there is no such table.

    The path leads into the table, `.db` is missing (`wh/shop/orders`), a dot stands for a slash (`wh/shop.orders`), or the last
    directory was mistyped or the one before it.
    """
    for directory in ancestors(root):
        with contextlib.suppress(StorageUnavailable, DamagedFile):
            depth = root.count("/") - directory.count("/")
            if depth <= _DEPTH_OF_TABLES and is_table(storage, directory):
                return name.rsplit("/", depth)[0] if name.count("/") >= depth else directory
    for respelled in (_with_suffix, _with_slash):
        if (meant := respelled(root)) is not None:
            in_words = respelled(name) or meant
            with contextlib.suppress(StorageUnavailable, DamagedFile):
                found = in_words if is_table(storage, meant) else _similar(storage, meant, in_words)
                if found is not None:
                    return found
    return _similar(storage, root, name)


def _with_suffix(path: str) -> str | None:
    """`wh/shop.db/orders` for `wh/shop/orders`."""
    above, slash, table = path.rpartition("/")
    return f"{above}{DATABASE_SUFFIX}/{table}" if slash and above and not above.endswith((DATABASE_SUFFIX, "/", ".")) else None


def _with_slash(path: str) -> str | None:
    """`wh/shop.db/orders` for `wh/shop.orders`."""
    above, slash, last = path.rpartition("/")
    database, dot, table = last.partition(".")
    return f"{above}{slash}{database}{DATABASE_SUFFIX}/{table}" if dot and database and table else None


def _similar(storage: Storage, root: str, name: str) -> str | None:
    for levels in (1, 2):
        *above, wrong = root.rsplit("/", levels)[:2]
        below = root.rsplit("/", levels)[2:]
        with contextlib.suppress(StorageUnavailable, DamagedFile):
            known = [entry.name for entry in first_entries(storage, above[0], MAX_SIMILAR) if entry.is_directory]
            found = nearest(wrong, known)
            if found is not None and is_table(storage, "/".join([above[0], found, *below])):
                return "/".join([*name.rsplit("/", levels)[:-levels], found, *below])
    return None


def _foreign_entries(storage: Storage, root: str) -> list[FileStatus]:
    """The entries that an earlier attempt to create the table cannot have left (probes, and a `schema/` without a schema)."""
    entries = [entry for entry in first_entries(storage, root, MAX_EXAMINED) if not entry.name.startswith(PROBE_PREFIX)]
    schema_directory = TableLayout(root).schema_directory
    if [entry.path for entry in entries] != [schema_directory]:
        return entries
    schema_entries = first_entries(storage, schema_directory, MAX_EXAMINED)
    is_unfinished = all(entry.is_temporary(SCHEMA_PREFIX) for entry in schema_entries)
    return [] if is_unfinished else entries


def _is_of_late_commit(storage: Storage, root: str, entry: FileStatus) -> bool:
    """Whether a commit just before a drop has written these files after it: its hint, or its record.

    A table created over the hint would look damaged.
    """
    layout = TableLayout(root)
    if not entry.is_directory or entry.path not in (layout.snapshot_directory, layout.commit_user_directory):
        return False
    below = first_entries(storage, entry.path, MAX_EXAMINED)
    if entry.path == layout.commit_user_directory:
        return all(is_record(file.name) for file in below)
    return {file.path for file in below} <= {layout.latest_hint, layout.earliest_hint}


def _content(storage: Storage, root: str, entries: Sequence[FileStatus]) -> str:
    recognised = _recognised(storage, root, entries)
    names = sorted(f"{entry.name}/" if entry.is_directory else entry.name for entry in entries)
    at_least = "at least " if len(entries) == MAX_EXAMINED else ""
    more = f" and {at_least}{len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    listed = f"it contains {', '.join(names[:MAX_NAMED])}{more}"
    return f"{recognised}; {listed}" if recognised else listed


def _recognised(storage: Storage, root: str, entries: Sequence[FileStatus]) -> str | None:
    directories = {entry.name for entry in entries if entry.is_directory}
    if "backup" in directories and (unfinished := SchemaHistory(storage, TableLayout(root)).unfinished_copy()) is not None:
        return f"{unfinished.why} (run it again to finish it)"
    if "snapshot" in directories and SnapshotHistory(storage, TableLayout(root)).is_ended():
        return f"it is a table whose drop was interrupted (delete the rest: paimon-cli drop {shlex.quote(root)})"
    if (found := recognised_table(storage, root, entries)) is not None:
        return f"it is {found}"
    if directories & _OF_VERSIONS and (left := SchemaHistory(storage, TableLayout(root)).left_without_schema()) is not None:
        return f"it is a table whose schema files are lost: {left} is there (restore them from a backup)"
    databases, tables = _held(storage, root, directories)
    if databases:
        return f"it is a warehouse with {_listed('database', databases)}"
    return f"it is a database directory with {_listed('table', tables)}" if tables else None


def _listed(noun: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMED])
    return f"the {noun} {shown}" if len(names) == 1 else f"the {noun}s {shown}{', ...' if len(names) > MAX_NAMED else ''}"


def is_file(storage: Storage, path: str) -> bool:
    """Whether the path is a file, and no directory."""
    try:
        with storage.open_input(path):
            return True
    except (FileNotFoundError, DamagedFile, StorageUnavailable):  # missing, or a directory that the store cannot open
        return False


def _check_parents(storage: Storage, root: str) -> list[str]:
    warnings = []
    has_directories = directories_of(storage) is not None  # elsewhere an object may be called like the beginning of others
    for directory in ancestors(root):
        if has_directories and is_file(storage, directory):
            raise UsageError(f"{directory} is a file", f"{root} would be inside of it", "choose another path")
        try:
            is_inside = is_table(storage, directory)
        except StorageUnavailable as error:
            warnings.append(f"cannot determine whether {directory} is itself a table: {error.why or error.what}")
            continue
        if is_inside:
            raise UsageError(
                f"{root} is inside the table {directory}",
                "dropping or cleaning up that table would delete this one too",
                "choose a path outside of it",
            )
    return warnings
