"""Directories of partitions of FLOAT and DOUBLE, whose numbers engines spell in different ways."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataType
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.table_layout import escape, partition_path, partition_text
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.storage import Storage


class FloatDirectories:
    """The directories of a table's partitions, with columns of FLOAT or DOUBLE, below the `root` of its data files."""

    def __init__(self, storage: Storage, root: str, schema: TableSchema, options: TableOptions) -> None:
        self._storage = storage
        self._root = root
        self._names, self._types = schema.partition_keys, schema.types_of(schema.partition_keys)
        self._naming = (options.partition_default_name, options.partition_legacy_name)
        self._expected: set[str] = set()

    def expect(self, path: str, values: Sequence[Any], address: str) -> None:
        """Raise `NotSupported` if a partition has a directory, but under another spelling of its numbers than Java's.

        Its files are not missing then. Without any directory they are. `path` is Java's, `address` names the table in the error.
        """
        if path in self._expected:
            return
        if not self._storage.list_directory(f"{self._root}/{path}") and (other := self._other_spelling(values)) is not None:
            why = f"there is {other}: engines spell FLOAT and DOUBLE in different ways, and Java not so"
            hint = "read the table with the engine that wrote it, and copy its rows into one with partitions of STRING"
            raise NotSupported(f"cannot find the directory of partition {path} of {address}", why, hint)
        self._expected.add(path)

    def _other_spelling(self, values: Sequence[Any]) -> str | None:
        """The path of a directory with the number of a partition in another spelling, where Java's leads to none."""
        names, types, naming = self._names, self._types, self._naming
        for count, (name, t, value) in enumerate(zip(names, types, values, strict=True)):
            parent = partition_path(names[:count], types[:count], values[:count], *naming)
            there = self._storage.list_directory(f"{self._root}/{parent}".rstrip("/"))
            held = [status.name for status in there if status.is_directory]
            prefix = f"{escape(name)}="
            if f"{prefix}{escape(partition_text(value, t, *naming))}" in held:
                continue
            if t.root not in FLOATING_ROOTS or value is None:
                return None
            texts = (directory.removeprefix(prefix) for directory in held if directory.startswith(prefix))
            return next((f"{parent}{prefix}{text}" for text in texts if _spells(unquote(text), value, t, *naming)), None)
        return None


def _spells(text: str, value: float, t: DataType, default: str, legacy: bool) -> bool:
    """Whether the text is the number, and not as Java writes it: that is the directory of a number of its own, such as -0.0."""
    try:
        number = float(text)
        if t.root == "FLOAT":
            (number,) = struct.unpack("<f", struct.pack("<f", number))
    except (ValueError, OverflowError):
        return False
    is_equal = number == value or (math.isnan(number) and math.isnan(value))
    return is_equal and partition_text(number, t, default, legacy) != text
