"""Finds the timestamps in ORC files that Java's Paimon does not read.

ORC stores whole seconds and nanoseconds. Java's writers, and ours (`orc_rows`), round the seconds down. Arrow's writer truncates
them towards 1970, so that before 1970 the nanoseconds are negative. Java's reader takes whole milliseconds of these; of a value
with digits below the millisecond it makes negative digits, which Paimon refuses for the whole file (IllegalArgumentException).
Arrow and pypaimon read both forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from paimon_cli.bucket.nanosecond_range import holds_early_digits
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.datatypes.data_type import TIMESTAMP_ROOTS, DataField


def timestamp_columns(fields: Sequence[DataField]) -> list[str]:
    """The columns that hold timestamps, at whatever depth."""
    return [field.name for field in fields if any(part.root in TIMESTAMP_ROOTS for part in field.type.parts())]


def misread_times(orc: OrcFile, columns: Sequence[str]) -> Iterator[str]:
    """The columns, of these, with such a value, stripe by stripe. Those that the file lacks have none.

    Only what Arrow shows to be before 1970, with digits below the millisecond, is looked at a second time. Raises what `OrcFile`
    does, and `pa.ArrowInvalid` for times beyond 64-bit nanoseconds.
    """
    held = [name for name in columns if name in orc.schema.names]
    for stripe in range(orc.nstripes if held else 0):
        rows = orc.read_stripe(stripe, held)
        for name in rows.schema.names:
            early = holds_early_digits(pa.record_batch([rows.column(name)], [name]))
            if early and orc.has_negative_digits(stripe, name):
                yield name
