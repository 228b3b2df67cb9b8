"""What a file index is: the values of one column of a data file, condensed so that others can be ruled out (FORMAT.md, 7.4).

To add a kind: one module with subclasses of `FileIndex` and `IndexKind`, and its place in `file_indexes.INDEX_KINDS`. Writers,
readers, compactions that copy row groups, `verify` and `repair` know no kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_cli.datatypes.data_type import DataField, DataType
from paimon_cli.options.option_text import read_option
from paimon_cli.options.table_options import TableOptions

Index = TypeVar("Index", bound="FileIndex")
T = TypeVar("T")


class BodyReader:
    """Reads the body of an index from its beginning. All methods raise `ValueError` where it ends too early."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        taken = self.body[self.at : self.at + size]
        if size < 0 or len(taken) != size:
            raise ValueError("it is cut off")
        self.at += size
        return taken

    def integer(self) -> int:
        """The next 32-bit integer."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def rest(self) -> memoryview:
        """All bytes that follow."""
        return memoryview(self.body)[self.at :]


class FileIndex(ABC):
    """The index of one column of a data file. `tests/bucket/test_file_index_contract.py` tests what each kind must keep."""

    @abstractmethod
    def add(self, values: pa.Array) -> None:
        """Add the values of some rows, in the column's type; nulls are not indexed."""

    @abstractmethod
    def fits(self: Index, other: Index) -> bool:
        """Whether `other` can be merged into this one: for example because both are of the same size."""

    @abstractmethod
    def merge(self: Index, other: Index) -> None:
        """Add all values of another file, given by its index, as if `add` had been called with them."""

    @abstractmethod
    def may_hold(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """For each value that is not null, in order: False if it was certainly not added."""

    def bounds(self) -> tuple[Any, Any] | None:
        """The least and the greatest value that was added, as internal values; None if the index does not tell."""
        return None

    @abstractmethod
    def to_bytes(self) -> bytes | None:
        """Its body in the container of the file; None if it cannot express a value: then the file has no such index."""


class IndexKind(ABC):
    """A kind of file index, by the name that options and files give it."""

    name: str

    @abstractmethod
    def check(self, field: DataField) -> None:
        """Raise `NotSupported` for a column whose type it cannot index."""

    @abstractmethod
    def is_consulted(self, t: DataType) -> bool:
        """Whether readers may rely on the index of a column of this type: equal values are always found."""

    @abstractmethod
    def empty(self, field: DataField, options: TableOptions) -> FileIndex:
        """The index of a new file, with the settings of the column. Raises `UsageError` for those that are invalid."""

    @abstractmethod
    def decoded(self, field: DataField, body: bytes, rows: int) -> FileIndex:
        """The index with this body, of a file of `rows` rows. Raises `ValueError` if it is malformed, or counts
        other rows: positions after a merge would be wrong.
        """

    @property
    def columns_option(self) -> str:
        return f"file-index.{self.name}.columns"

    def setting(self, options: TableOptions, field: DataField, name: str, read: Callable[[str], T], default: T) -> T:
        """The option `file-index.KIND.COLUMN.NAME`."""
        key = f"file-index.{self.name}.{field.name}.{name}"
        return default if key not in options.raw else read_option(key, options.raw[key], read)
