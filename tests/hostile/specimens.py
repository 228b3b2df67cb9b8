"""The sound files that the fuzzer damages: ours, and those of other writers in every format."""

from __future__ import annotations

from pathlib import Path

from paimon_cli.history.table_context import TableContext
from tests.goldens import golden_table
from tests.hostile.file_fuzzer import Specimen, data_specimens, metadata_specimens
from tests.invariants.damaged_tables import keyed_table

FOREIGN = (
    ("java-0.9", "types_parquet"),
    ("java-0.9", "types_orc"),
    ("java-0.9", "types_avro"),
    ("java-0.9", "dv_dedup"),
    ("java-0.9", "dynamic_bucket"),
    ("pypaimon-2.1", "types"),
    ("rust-0.4", "types"),
)


def all_specimens(folder: Path) -> list[Specimen]:
    """A dozen kinds of files, some from several writers."""
    ours = TableContext.open(str(keyed_table(folder)))
    found = [*metadata_specimens(Path(ours.url)), *data_specimens(ours, checked=True)]
    for writer, name in FOREIGN:
        context = TableContext.open(str(golden_table(writer, name, folder / writer)))
        found += data_specimens(context, checked=False)
        found += (s for s in metadata_specimens(Path(context.url)) if "manifest" in s.kind)
    return found
