"""Where new data files go if a table keeps them outside of its directory (`data-file.external-paths`; FORMAT.md, section 7.8).

Java: ExternalPathProvider. Java chooses at random, and each manifest entry records what was chosen. Here the name of the file,
which holds a random UUID and a counter, decides: so the name of a file that this job has made is enough to find it again.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from paimon_cli.errors import UsageError
from paimon_cli.options.choices import ExternalPathStrategy
from paimon_cli.options.table_options import TableOptions

_COUNTED = re.compile(r"(.*-)([0-9]{1,18})(\..*)", re.DOTALL)
"""The name of a file: what all files of a writer begin with, the counter, and the format."""
_ENTROPY = (4, 4, 4, 8)
"""Binary digits of the hash in the names of directories, as in Java's EntropyInjectExternalPathProvider."""


@dataclass(frozen=True)
class ExternalPlaces:
    """The places of new data files, as the options name them, and how one is chosen. `weights`: empty unless they count."""

    paths: tuple[str, ...]
    strategy: str
    weights: tuple[int, ...] = ()

    @staticmethod
    def of(options: TableOptions) -> ExternalPlaces | None:
        """None if new files go into the table. Raises `UsageError` if the options contradict each other."""
        strategy, paths = options.external_path_strategy, options.data_file_external_paths
        if strategy == ExternalPathStrategy.NONE or not paths:
            return None
        if strategy == ExternalPathStrategy.SPECIFIC_FS:
            scheme = options.external_paths_specific_fs
            paths = tuple(path for path in paths if scheme is not None and path.partition(":")[0].lower() == scheme)
            if not paths:
                why = f"data-file.external-paths.specific-fs is {scheme}" if scheme else "specific-fs is not set"
                raise UsageError("no external path has the chosen scheme", why, "set data-file.external-paths.specific-fs")
        weights = options.external_paths_weights
        if strategy != ExternalPathStrategy.WEIGHTED or len(paths) < 2 or not weights:  # as Java, which then ignores them
            return ExternalPlaces(paths, strategy)
        if len(weights) != len(paths):
            what = f"{len(paths)} external paths have {len(weights)} weights"
            raise UsageError(what, "each path needs one", "set data-file.external-paths.weights")
        return ExternalPlaces(paths, strategy, weights)

    def path_of(self, bucket_path: str, name: str) -> str:
        """The recorded path of a new file, such as `s3://bucket/t/k=v/bucket-0/data-...-0.parquet`.

        `bucket_path`: the directory of its bucket below the table, or below each of the places.
        """
        below = f"{bucket_path}/{_entropy(name)}{name}" if self.has_entropy else f"{bucket_path}/{name}"
        return f"{self._chosen(name)}/{below}"

    @property
    def has_entropy(self) -> bool:
        """Whether a file is four directories below that of its bucket."""
        return self.strategy == ExternalPathStrategy.ENTROPY_INJECT

    @property
    def depth(self) -> int:
        """How many directories are between that of a bucket and a file."""
        return len(_ENTROPY) if self.has_entropy else 0

    def _chosen(self, name: str) -> str:
        if self.weights:
            totals: Sequence[int] = list(accumulate(self.weights))
            return self.paths[bisect_right(totals, _hash(name) * totals[-1] >> 64)]
        parts = _COUNTED.fullmatch(name)
        start, count = (name, 0) if parts is None else (parts[1], int(parts[2]))
        return self.paths[(_hash(start) + count) % len(self.paths)]


def _hash(text: str) -> int:
    """64 bits, evenly spread."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big")


def _entropy(name: str) -> str:
    """Directories that spread files over the key space of an object store, such as `0110/1010/0001/11010001/`."""
    digits, start, directories = f"{_hash(name):064b}", 0, ""
    for length in _ENTROPY:
        directories += f"{digits[start : start + length]}/"
        start += length
    return directories
