"""Directories of partitions of FLOAT and DOUBLE, whose numbers engines spell in different ways."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING
from urllib.parse import unquote

from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataType
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.table_layout import escape, partition_path, partition_text

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext


class FloatDirectories:
    """The directories of a table's partitions, some of whose columns are of FLOAT or DOUBLE."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._expected: set[bytes] = set()

    def expect(self, partition: bytes) -> None:
        """Raise `NotSupported` if a partition has a directory, but under another spelling of its numbers than Java's.

        Its files are not missing then. Without any directory they are.
        """
        if partition in self._expected:
            return
        path, root = self._context.partition_path_of(partition), self._context.data_root
        if not self._context.storage.list_directory(f"{root}/{path}") and (other := self._other_spelling(partition)) is not None:
            why = f"there is {other}: engines spell FLOAT and DOUBLE in different ways, and Java not so"
            hint = "read the table with the engine that wrote it, and copy its rows into one with partitions of STRING"
            raise NotSupported(f"cannot find the directory of partition {path} of {self._context.address}", why, hint)
        self._expected.add(partition)

    def _other_spelling(self, partition: bytes) -> str | None:
        """The path of a directory with the number of a partition in another spelling, where Java's leads to none."""
        context = self._context
        names, types, values = context.schema.partition_keys, context.partition_types, context.partition_values(partition)
        naming = (context.options.partition_default_name, context.options.partition_legacy_name)
        for count, (name, t, value) in enumerate(zip(names, types, values, strict=True)):
            parent = partition_path(names[:count], types[:count], values[:count], *naming)
            there = context.storage.list_directory(f"{context.data_root}/{parent}".rstrip("/"))
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
