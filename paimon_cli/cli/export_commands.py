"""`export`: tables in the metadata of other formats."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.columns import Item
from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import SnapshotId, TableName
from paimon_cli.cli.results import counted, human_size

export = group("A table for readers of other formats.")


@command(export, "iceberg")
def iceberg(
    call: Call,
    table: TableName,
    output_path: Annotated[
        str | None,
        typer.Option("--output-path", metavar="DIR", help="Where its directory `metadata` goes; default the table's directory."),
    ] = None,
    snapshot: SnapshotId = None,
) -> None:
    """Write Iceberg metadata (version 2) for a snapshot, over the table's own data files.

    For what can be read without a merge: append tables, keyed tables that are fully compacted, and those with deletion vectors,
    which become position delete files. Anything that Iceberg's readers would see wrongly is refused (exit 7). The metadata is
    valid as long as the snapshot is kept: tag it. Needs `pip install 'paimon-cli[iceberg]'`.

    paimon-cli export iceberg ./wh/shop.db/orders

    paimon-cli export iceberg ./wh/shop.db/orders --snapshot 12 --output-path ./iceberg/orders
    """
    opened = call.open(table)
    made = opened.export_iceberg(output_path, snapshot=snapshot)
    text = f"snapshot {made.snapshot_id}: {counted(made.rows, 'row')} in {counted(made.files, 'file')}, {human_size(made.size)}"
    if made.delete_files:
        text += f"; {counted(made.deleted_rows, 'deleted row')} in {counted(made.delete_files, 'delete file')}"
    call.show(Item("IcebergExport", opened.name, made), f"{text} -> {made.metadata}")
