"""Sizes of files to be deleted that metadata does not know, by listing each directory once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.snapshot_files import DoomedFile


def measured(context: TableContext, files: Sequence[DoomedFile]) -> list[DoomedFile]:
    """The files with their sizes, without those of unknown size that do not exist."""
    directories = _sizes(context, {_directory(file) for file in files if file.size is None})
    found = []
    for file in files:
        sizes = directories.get(_directory(file))
        if sizes is None:
            found.append(file)
        elif file.path in sizes:
            found.append(replace(file, size=sizes[file.path]))
    return found


def _sizes(context: TableContext, directories: Iterable[str]) -> dict[str, dict[str, int]]:
    """Sizes by path, by directory."""
    return {name: {status.path: status.size for status in context.storage.list_directory(name)} for name in directories}


def _directory(file: DoomedFile) -> str:
    return file.path.rpartition("/")[0]
