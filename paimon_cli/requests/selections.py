"""Partitions and buckets as the library takes them, and as they are written on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from paimon_cli.errors import UsageError

Partitions = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""One partition as a mapping of keys to values (None is null), or several; some of the keys select all matching partitions."""
Buckets = int | range | Sequence[int | range]
"""A bucket by its number, a range of them, or several of these."""
_BETWEEN_PAIRS = re.compile(r",(?=[^,=]+=)")


class WrittenText(str):
    """A value as a command line writes it, where null is a text, too. In the library None is null, and a text is that text."""

    __slots__ = ()


def text_of(value: Any) -> str | None:
    """A value that a caller chose, as a text, bytes in hexadecimal; None for null."""
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return value if value is None or isinstance(value, WrittenText) else str(value)


def partition_list(partitions: Partitions | None) -> list[Mapping[str, str | None]]:
    """Partitions with their values as texts; empty for None, which means all partitions.

    Raises `UsageError` for an empty selection, so that it is never mistaken for all partitions.
    """
    if partitions is None:
        return []
    several = [partitions] if isinstance(partitions, Mapping) else partitions
    if not several or not all(several):
        why = "an empty selection does not mean all partitions"
        raise UsageError("no partition is named", why, "name the keys and values of a partition, or omit the selection")
    for partition in several:
        if not isinstance(partition, Mapping):
            raise UsageError(f"--partition {partition!r}", "it must be a dict of keys and values, or a list of these")
    return [{key: text_of(value) for key, value in partition.items()} for partition in several]


def bucket_list(buckets: Buckets | None) -> list[int | range]:
    """Buckets by number; empty for None, which means all buckets.

    Raises `UsageError` for an empty selection, so that it is never mistaken for all buckets.
    """
    if buckets is None:
        return []
    several = list(buckets) if isinstance(buckets, Iterable) and not isinstance(buckets, (str, range)) else [buckets]
    if not several:
        why = "an empty selection does not mean all buckets"
        raise UsageError("no bucket is named", why, "name buckets by their numbers, or omit the selection")
    for bucket in several:
        if type(bucket) is bool or not isinstance(bucket, (Integral, range)):
            raise UsageError(f"--bucket {bucket!r}", "it must be a whole number, a range, or a list of these")
    return [bucket if isinstance(bucket, range) else int(bucket) for bucket in several]


def split_pairs(pairs: Iterable[str] | None, flag: str) -> dict[str, str]:
    """Parse `['a=1', 'b=x=y']` as `{'a': '1', 'b': 'x=y'}`; the last value of a key wins. Raises `UsageError`."""
    split = [pair.partition("=") for pair in pairs or ()]
    for key, equals, _ in split:
        if not equals or not key.strip():
            raise UsageError(f"{flag} {key} is not KEY=VALUE".lstrip(), hint=f"write {flag} key=value".replace("  ", " "))
    return {key.strip(): value for key, _, value in split}


def split_partitions(texts: Iterable[str] | None, flag: str = "--partition") -> list[dict[str, WrittenText]] | None:
    """Parse `['dt=1,hr=2', 'dt=3']` as two partitions, but `['dt=1', 'hr=2']` as one: a repeated key starts a new partition.

    Returns None, which selects all partitions, if there are no texts. Raises `UsageError`.
    """
    partitions: list[dict[str, WrittenText]] = []
    for text in texts or ():
        parts = _BETWEEN_PAIRS.split(text)
        pairs = {key: WrittenText(value) for key, value in split_pairs(parts, flag).items()}
        if len(pairs) < len(parts):
            what = f"{flag} {text} names a key twice".lstrip()
            raise UsageError(what, "a partition has one value per key", "name each partition separately")
        if partitions and not pairs.keys() & partitions[-1].keys():
            partitions[-1].update(pairs)
        else:
            partitions.append(pairs)
    return partitions or None
