"""Files in the directories of a table that no version names: orphans, staged writes, and commits in progress.

They may hold erased rows, too. Nothing says which schema such a file has, so it is read by the names of its columns. What cannot
be read counts as holding them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.avro_rows import avro_batches
from paimon_cli.bucket.data_file_reader import file_format
from paimon_cli.bucket.decoding import DECODE_ERRORS
from paimon_cli.bucket.file_indexes import SUFFIX
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.bucket.schema_evolution import as_declared
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Progress, phase
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys, ErasedRows
from paimon_cli.jobs.erasure.inventory import Inventory
from paimon_cli.maintain.orphans import DATA, INDEX, MANIFEST, STATISTICS, Candidate, list_candidates
from paimon_cli.metadata.avro_reader import stored_names
from paimon_cli.metadata.index_files import KEY_HASH_BYTES, VECTORS_VERSION, decode_key_hashes
from paimon_cli.metadata.manifests import decode_manifest
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.pieces import PIECES

_PAUSES = (0.2, 0.8, 2.0, 4.0)
"""The seconds between the looks at a file that a job may be committing."""
_UNREADABLE: tuple[type[BaseException], ...] = (PaimonError, *DECODE_ERRORS)


def unnamed_files(context: TableContext, inventory: Inventory) -> list[Candidate]:
    """All files below the directories of data, indexes, metadata and statistics that no version names. The records of erasures,
    which this one deletes when it is done, are not among them.
    """
    named, records = inventory.paths(context), f"{context.layout.removal_directory}/"
    found = list_candidates(context, sys.maxsize).files
    return [file for file in found if file.path not in named and not file.path.startswith(records)]


def holding(
    context: TableContext, rows: ErasedRows, files: Sequence[Candidate], engine: Engine, progress: Progress
) -> list[Candidate]:
    """The files that hold erased rows, or may hold them."""
    if not files:
        return []
    look = UnnamedFiles(context, rows)
    with phase(progress, "Looking at files that no version names", len(files)) as on_done:
        held = engine.run_tasks(look.holds, files, on_done, [file.size for file in files])
    return [file for file, holds in zip(files, held, strict=True) if holds]


def lasting(context: TableContext, inventory: Inventory, files: Sequence[Candidate]) -> list[Candidate]:
    """The files that are still there, and that no version names, after some seconds if need be: a job may be about to
    commit or to discard the others. `inventory`: what is known of the versions.
    """

    def still(files: Sequence[Candidate]) -> list[Candidate]:
        named = Inventory.take(context, inventory).paths(context)
        return [file for file in files if file.path not in named and context.storage.exists(file.path)]

    left = still(files) if files else []
    for pause in _PAUSES:
        if not left:
            break
        context.clock.sleep(pause)
        left = still(left)
    return left


@dataclass(frozen=True)
class UnnamedFiles:
    """Looks for erased rows in files that no version names. Picklable."""

    context: TableContext
    rows: ErasedRows

    def holds(self, file: Candidate) -> bool:
        """Whether a file holds erased rows, or may hold them."""
        try:
            if file.kind == DATA:
                return self._data_holds(file)
            if file.kind == MANIFEST:
                return self._manifest_holds(file)
            if file.kind == INDEX:
                return self._index_holds(file)
        except FileNotFoundError:
            return False
        except _UNREADABLE:
            return True
        return file.kind == STATISTICS

    def _data_holds(self, file: Candidate) -> bool:
        if file.name.endswith(SUFFIX):
            return True  # a filter of values cannot be read back
        names = self.rows.columns(MAIN_BRANCH)
        with self.context.storage.open_input(file.path) as source:
            return any(self.rows.mask(MAIN_BRANCH, batch).any() for batch in self._batches(source, file.name, names))

    def _batches(self, source: BinaryIO, name: str, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        form, schema = file_format(name), self.context.schema
        if form == "parquet":
            batches = pq.ParquetFile(source).iter_batches(PIECES.batch_rows, columns=list(columns))
        elif form == "orc":
            orc = OrcFile(source)
            batches = (orc.read_stripe(number, columns) for number in range(orc.nstripes))
        elif form == "avro":
            missing = {*columns} - {*stored_names(source)}
            if missing:
                raise ValueError(f"it has no column {', '.join(sorted(missing))}")
            source.seek(0)
            batches = avro_batches(source, list(columns), schema, PIECES.batch_rows)
        else:
            raise ValueError("its format is unknown")
        for batch in batches:
            types = [arrow_type(schema.field(column).type) for column in columns]
            cells = [as_declared(batch.column(column), t) for column, t in zip(columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(cells, names=list(columns))

    def _manifest_holds(self, file: Candidate) -> bool:
        if not file.name.startswith("manifest-") or file.name.startswith("manifest-list-"):
            return False  # lists and index manifests hold no keys
        entries = decode_manifest(self.context.storage.read_bytes(file.path), file.path)
        if not isinstance(self.rows, ErasedKeys):
            return True  # a bound of an append table's column may be of any row
        return any(self.rows.are_bounds(self.context, entry) for entry in entries)

    def _index_holds(self, file: Candidate) -> bool:
        if not isinstance(self.rows, ErasedKeys):
            return False
        content = self.context.storage.read_bytes(file.path)
        if content[:1] == VECTORS_VERSION and len(content) % KEY_HASH_BYTES:
            return False
        hashes = decode_key_hashes(content, file.path)
        return bool(np.isin(hashes, self.rows.hashes_anywhere()).any())
