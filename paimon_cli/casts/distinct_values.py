"""Casts that parse or print values one by one: each distinct value of a column once.

Java's parsers and printers have no counterpart among Arrow's kernels; columns that change between text and other types are
rare, and their values repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from paimon_cli.errors import UsageError


def per_distinct_value(array: pa.Array, function: Callable[[Any], Any], target: pa.DataType) -> pa.Array:
    """`function` of every value that is not null, as an array of `target`; it may give None."""
    encoded = array.dictionary_encode()
    converted = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(converted, target).take(encoded.indices)


def impossible(value: object, target: str) -> UsageError:
    """The error of a value that a cast cannot convert; Paimon's readers fail on it too."""
    return UsageError(
        f"cannot cast {value!r} to {target}",
        "the type of a column was changed, and an old value has no equivalent in the new type",
        "read a snapshot from before the change, or change the type again",
    )
