"""Finds where Avro records begin, with a regular expression that is made of their schema.

That is several times faster than a walk through the blocks (`avro_columns`), and their number does not matter. What a record may
consist of is a regular language as long as texts are short: the length of each is one of 64 alternatives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from paimon_cli.metadata.avro_columns import LONGEST, NotColumnar
from paimon_cli.metadata.avro_writer import AvroSchema

_ONE_BYTE = 64
"""Numbers below this take one byte: the lengths of short texts, and the branches of most unions."""
_NUMBER = rb"[\x80-\xff]{0,%d}[\x00-\x7f]" % (LONGEST - 1)
_TEXT = b"(?:" + b"|".join([rb"\x00", *(rb"\x%02x.{%d}" % (2 * size, size) for size in range(1, _ONE_BYTE))]) + b")"
_PATTERNS = {"null": b"", "boolean": b".", "float": b".{4}", "double": b".{8}"}
_PATTERNS |= dict.fromkeys(("int", "long"), _NUMBER) | dict.fromkeys(("bytes", "string"), _TEXT)
_MOST_PIECES = 1_000
"""A longer expression takes longer to compile than most files to read."""


def record_sizes(schema: AvroSchema, data: bytes, counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The bytes of each record (int64) of blocks that stand one after the other in `data`.

    `counts`, `sizes`: the records and bytes of each block, none below zero. Raises `NotColumnar` for types that have no pattern,
    records with a longer text, and bytes that are no such records.
    """
    pieces = list(islice(_pieces(schema), _MOST_PIECES + 1))
    if not any(pieces) or len(pieces) > _MOST_PIECES or (counts > sizes).any():
        raise NotColumnar
    # What is no record is taken as a whole: else one would be looked for at each byte of it.
    found = re.compile(b"(%s)|.+" % b"".join(pieces), re.DOTALL).findall(data)
    if len(found) != int(counts.sum()):
        raise NotColumnar
    lengths = np.fromiter(map(len, found), np.int64, len(found))
    ends = np.concatenate([[0], np.cumsum(lengths)])[np.cumsum(counts)]
    if not np.array_equal(ends, np.cumsum(sizes)):
        raise NotColumnar
    return lengths


def _pieces(schema: Any) -> Iterator[bytes]:
    """The pieces of the expression. None of them matches what the next one begins with, so there is nothing to try again."""
    if isinstance(schema, list):
        if len(schema) > _ONE_BYTE:
            raise NotColumnar
        for place, branch in enumerate(schema):
            yield rb"%s\x%02x" % (b"|" if place else b"(?:", 2 * place)
            yield from _pieces(branch)
        yield b")"
        return
    kind = schema["type"] if isinstance(schema, dict) else schema
    if not isinstance(kind, str):
        yield from _pieces(kind)
    elif kind == "record":
        for field in schema["fields"]:
            yield from _pieces(field["type"])
    elif kind in _PATTERNS:
        yield _PATTERNS[kind]
    else:  # a list, or the name of a record around it
        raise NotColumnar
