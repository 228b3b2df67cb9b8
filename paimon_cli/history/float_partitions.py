"""Directories of partitions of FLOAT and DOUBLE, whose numbers engines spell in different ways."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataType
from paimon_cli.metadata.table_layout import escape, partition_path, partition_text
from paimon_cli.storage.storage import Storage


def other_spelling(
    storage: Storage,
    root: str,
    names: Sequence[str],
    types: Sequence[DataType],
    values: Sequence[Any],
    default: str,
    legacy: bool,
) -> str | None:
    """The path of a directory with the number of a partition in another spelling, where Java's leads to none; None without one.

    `root`: the directory with those of the partitions. `default`, `legacy`: as in `partition_path`.
    """
    for count, (name, t, value) in enumerate(zip(names, types, values, strict=True)):
        parent = partition_path(names[:count], types[:count], values[:count], default, legacy)
        held = [status.name for status in storage.list_directory(f"{root}/{parent}".rstrip("/")) if status.is_directory]
        prefix = f"{escape(name)}="
        if f"{prefix}{escape(partition_text(value, t, default, legacy))}" in held:
            continue
        if t.root not in FLOATING_ROOTS or value is None:
            return None
        texts = (directory.removeprefix(prefix) for directory in held if directory.startswith(prefix))
        return next((f"{parent}{prefix}{text}" for text in texts if _spells(unquote(text), value, t, default, legacy)), None)
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
