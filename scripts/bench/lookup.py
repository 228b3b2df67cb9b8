"""Key lookup in a bucket, against one five times as small, and against reading the key column.

    python -m scripts.bench.lookup [--rows 10000000] [--rounds 5]

Two buckets of ROWS and 5 x ROWS rows, eight value columns, ascending BIGINT keys with gaps. Random keys are spread over the whole
bucket; clustered ones are in ten ranges. `held`: facts about the files are cached from earlier lookups, as between two rounds of
`compact --watch`; `cold`: they are not; `copied`: the service has copied the keys. Also prints which share of the bytes of the
larger bucket is read.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.deletion_vectors import NO_VECTORS
from paimon_cli.bucket.key_lookup import find_keys
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.file_cache import FileCache
from paimon_cli.history.kept_files import KeptFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, SOURCE_COMPACT, BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import merge_rows
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.local_storage import LocalStorage
from scripts.bench.measure import MIN_ROUNDS, Comparison, report

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "quantity": "INT",
    "amount": "DOUBLE",
    "price": "DECIMAL(18, 2)",
    "at": "TIMESTAMP(3)",
    "status": "STRING",
    "city": "STRING",
    "note": "STRING",
}
BUCKET = BucketId(EMPTY_ROW, 0)
TOP_LEVEL = 5
BATCH_ROWS = 250_000
FEW, MANY = 1_000, 200_000
CLUSTERS = 10


def new_table(folder: Path, options: dict[str, str]) -> TableContext:
    fields = tuple(DataField(i, name, parse_sql_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    schema = TableSchema(0, fields, len(fields) - 1, (), ("id",), {"file.format": "parquet", **options}, None, 0)
    (folder / "schema").mkdir(parents=True)
    (folder / "schema" / "schema-0").write_text(schema.to_json())
    return TableContext.open(str(folder))


def values(ids: np.ndarray, random: np.random.Generator) -> dict[str, pa.Array]:
    """The columns of rows with these keys."""
    numbers = random.integers(0, 1 << 31, len(ids))
    named = {"status": ("status-", 1000), "city": ("city ", 50)}
    texts = {
        name: pa.DictionaryArray.from_arrays((numbers % count).astype(np.int32), [f"{prefix}{i}" for i in range(count)])
        for name, (prefix, count) in named.items()
    }
    return {
        "id": pa.array(ids),
        "quantity": pa.array((numbers % 1000).astype(np.int32)),
        "amount": pa.array((numbers & 0xFFFF) / 65536.0),
        "price": pa.array(numbers % 1_000_000).cast(pa.decimal128(19, 0)).cast(pa.decimal128(18, 2)),
        "at": pa.array(1_700_000_000_000 + numbers).cast(pa.timestamp("ms")),
        **{name: column.cast(pa.string()) for name, column in texts.items()},
        "note": pa.array(random.integers(10**12, 10**13, len(ids))).cast(pa.string()),
    }


def ascending_ids(rows: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Keys with gaps of 1 to 20, batch by batch."""
    last = 0
    for start in range(0, rows, BATCH_ROWS):
        ids = last + np.cumsum(random.integers(1, 21, min(BATCH_ROWS, rows - start)))
        last = int(ids[-1])
        yield ids


class CountedReads:
    """A reader that counts the bytes that it reads."""

    def __init__(self, source: BinaryIO, count: Callable[[int], None]) -> None:
        self._source = source
        self._count = count

    def read(self, size: int = -1) -> bytes:
        content = self._source.read(size)
        self._count(len(content))
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __enter__(self) -> CountedReads:
        return self

    def __exit__(self, *failure: object) -> None:
        self._source.close()


class CountingStorage(LocalStorage):
    """A local storage that counts the bytes that are read of data files."""

    bytes_read = 0

    def open_input(self, path: str) -> BinaryIO:
        return CountedReads(super().open_input(path), self._add)  # type: ignore[return-value]

    def _add(self, size: int) -> None:
        self.bytes_read += size


@dataclass(frozen=True)
class Bucket:
    """A bucket with files of the top level, and what earlier lookups have cached in memory and on disk."""

    context: TableContext
    files: tuple[DataFileMeta, ...]

    @staticmethod
    def write(folder: Path, rows: int) -> Bucket:
        context = new_table(folder, {"bucket": "1", "deletion-vectors.enabled": "true"})
        names = DataFileNames(context)
        writer = DataFileWriter(context, BUCKET, level=TOP_LEVEL, source=SOURCE_COMPACT, names=names)
        random = np.random.default_rng(1)
        for number, ids in enumerate(ascending_ids(rows, random)):
            writer.write(merge_rows(context.schema, values(ids, random), 0, number * BATCH_ROWS))
        return Bucket(context, writer.close())

    @property
    def size(self) -> int:
        return sum(file.file_size for file in self.files)

    @cached_property
    def paths(self) -> list[str]:
        return [self.context.data_file_path(*BUCKET, file) for file in self.files]

    @cached_property
    def keys(self) -> np.ndarray:
        return np.concatenate([pq.read_table(path, columns=["id"]).column(0).to_numpy() for path in self.paths])

    def random_keys(self, count: int) -> pa.Table:
        rows = np.random.default_rng(4).choice(len(self.keys), count, replace=False)
        return pa.table({"id": self.keys[np.sort(rows)]})

    def clustered_keys(self, count: int) -> pa.Table:
        starts = (np.arange(CLUSTERS) * 2 + 1) * len(self.keys) // (2 * CLUSTERS)
        return pa.table({"id": np.concatenate([self.keys[start : start + count // CLUSTERS] for start in starts])})

    def find(self, keys: pa.Table, kept: KeptFiles) -> None:
        found = find_keys(replace(self.context, cache=FileCache(kept)), BUCKET, self.files, keys, NO_VECTORS)
        if not (found.file >= 0).all():
            raise AssertionError("a key was not found")

    def read_keys(self) -> None:
        """Read the key column of each file, batch by batch."""
        for path in self.paths:
            file = pq.ParquetFile(path, buffer_size=256 << 10, page_checksum_verification=True)
            for _ in file.iter_batches(65536, columns=["id"], use_threads=False):
                pass

    def copied(self) -> KeptFiles:
        """The caches of a service that has copied the keys of all files."""
        kept = KeptFiles(keeps_copies=True)
        for _ in range(3):
            self.find(self.random_keys(MANY), kept)
        return kept

    def bytes_read(self, keys: pa.Table, kept: KeptFiles) -> int:
        storage = CountingStorage()
        Bucket(replace(self.context, storage=storage), self.files).find(keys, kept)
        return storage.bytes_read


def comparisons(small: Bucket, large: Bucket) -> Iterator[Comparison]:
    in_small, in_large = KeptFiles(), KeptFiles()
    for name, few, goals in (("random", Bucket.random_keys, (1.3, 2.5)), ("clustered", Bucket.clustered_keys, (1.2, None))):
        keys = few(small, FEW), few(large, FEW)
        small.find(keys[0], in_small)
        large.find(keys[1], in_large)
        yield Comparison(
            f"{FEW} {name} keys in five times the rows, held",
            lambda keys=keys: large.find(keys[1], in_large),  # type: ignore[misc]
            lambda keys=keys: small.find(keys[0], in_small),  # type: ignore[misc]
            goals[0],
        )
        yield Comparison(
            f"{FEW} {name} keys in five times the rows, cold",
            lambda keys=keys: large.find(keys[1], KeptFiles()),  # type: ignore[misc]
            lambda keys=keys: small.find(keys[0], KeptFiles()),  # type: ignore[misc]
            goals[1],
        )
    many, copied = large.random_keys(MANY), large.copied()
    yield Comparison(f"{MANY} random keys, cold : the key column", lambda: large.find(many, KeptFiles()), large.read_keys, 1.2)
    yield Comparison(f"{MANY} random keys, copied : the key column", lambda: large.find(many, copied), large.read_keys, 0.15)


def report_bytes(large: Bucket) -> bool:
    """Print which share of the larger bucket lookups read once its indexes are cached. Returns whether the goals were met."""
    all_met = True
    for name, keys, goal in (("random", large.random_keys(FEW), 0.005), ("clustered", large.clustered_keys(FEW), 0.002)):
        kept = KeptFiles()
        cold = large.bytes_read(keys, kept) / large.size
        held = large.bytes_read(keys, kept) / large.size
        met = held <= goal
        all_met &= met
        print(f"{FEW} {name} keys read {held:.3%} of the bucket, held; {cold:.3%} cold (goal {goal:.1%})", file=sys.stderr)
        print(json.dumps({"name": f"share of bytes, {name} keys", "ratio": held, "cold": cold, "goal": goal, "met": met}))
    return all_met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small, large = (
            Bucket.write(Path(folder) / name, rows) for name, rows in (("s", arguments.rows), ("l", 5 * arguments.rows))
        )
        met = report(comparisons(small, large), arguments.rounds)
        met &= report_bytes(large)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
