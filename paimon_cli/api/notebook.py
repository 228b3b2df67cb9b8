"""What a notebook shows of a table and of a scan."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from paimon_cli.errors import PaimonError
from paimon_cli.options.option_text import counted, human_size

if TYPE_CHECKING:
    from paimon_cli.api.opened_table import OpenedTable
    from paimon_cli.jobs.row_scan import RowScan

_SHOWN_ROWS = 10
_MAX_FILES, _MAX_READ = 200_000, 256 << 20
"""A display looks at the levels of tables with at most so many files, and reads at most so many bytes for the first rows."""


def html_of_table(table: OpenedTable) -> str:
    """Columns, key, snapshot and size of a table, and a drawing of its levels. An error is shown, and not raised."""
    from paimon_cli.datatypes.field_types import type_to_sql
    from paimon_cli.read.html_text import bars, table_of

    try:
        schema = table.supported.schema
        key, partition = set(schema.primary_keys), set(schema.partition_keys)
        marks = {name: " and ".join([*["key"] * (name in key), *["partition"] * (name in partition)]) for name in key | partition}
        columns = [(field.name, type_to_sql(field.type), marks.get(field.name, "")) for field in schema.fields]
        facts, levels = _facts_and_levels(table)
    except PaimonError as error:
        return table_of([table.name], [[error.message]])
    described = table_of(["column", "type", ""], columns, caption=table.name, note=facts)
    return described + bars("levels" if key else "files", levels)


def _facts_and_levels(table: OpenedTable) -> tuple[str, list[tuple[str, int, str]]]:
    context = table.context
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return "no snapshot yet", []
    at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=min(max(snapshot.time_millis, 0), 1 << 45))
    facts = f"snapshot {snapshot.id} of {at:%Y-%m-%d %H:%M:%S} UTC, {counted(snapshot.total_record_count, 'record')}"
    if sum(meta.num_added_files for meta in context.manifests.manifests_of(snapshot)) > _MAX_FILES:
        return facts, []
    files = context.manifests.live_files(snapshot)
    levels, sizes = files.numbers("levels"), files.numbers("sizes")
    drawn = []
    for level in sorted({int(level) for level in levels}):
        own = sizes[levels == level]
        drawn.append((f"level {level}", int(own.sum()), f"{counted(len(own), 'file')}, {human_size(int(own.sum()))}"))
    return f"{facts}, {counted(len(files), 'file')}, {human_size(int(sizes.sum()))}", drawn


def html_of_scan(name: str, rows: RowScan) -> str:
    """The first rows of a scan. An error is shown, and not raised."""
    import pyarrow as pa

    from paimon_cli.datatypes.canonical_form import canonical_rows
    from paimon_cli.read.html_text import table_of

    names = [field.name for field in rows.fields]
    size = sum(split.size for split in rows.plan.splits)
    if size > _MAX_READ:
        return table_of(names, [], caption=name, note=f"no rows are shown, because the scan reads up to {human_size(size)}")
    try:
        limit = min(_SHOWN_ROWS + 1, rows.request.limit if rows.request.limit is not None else _SHOWN_ROWS + 1)
        few = replace(rows, request=replace(rows.request, limit=limit))
        found = [list(row.values()) for batch in few.rows() for row in canonical_rows(batch, rows.fields)]
    except (PaimonError, pa.ArrowException, ValueError) as error:  # a value that Python cannot hold, such as invalid UTF-8
        return table_of([name], [[error.message if isinstance(error, PaimonError) else str(error)]])
    note = f"the first {_SHOWN_ROWS} rows" if len(found) > _SHOWN_ROWS else ""
    return table_of(names, found[:_SHOWN_ROWS], caption=name, note=note)
