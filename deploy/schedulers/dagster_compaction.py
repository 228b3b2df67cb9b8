"""A Dagster job that compacts a table after its writer, with figures of the compaction as metadata, and a nightly schedule."""

from __future__ import annotations

import dagster as dg

WAREHOUSE = "s3://lake/warehouse"


def compact_table(warehouse: str, table: str) -> dict[str, int | float]:
    """Compact a table; returns the figures of the compaction."""
    from paimon_cli import Table

    done = Table.open(table, warehouse=warehouse).compact()
    return {
        "buckets": done.buckets,
        "files_before": done.files_before,
        "files_after": done.files_after,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "seconds": done.seconds,
    }


@dg.asset(group_name="paimon", retry_policy=dg.RetryPolicy(max_retries=2, delay=600))
def compacted_orders() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata=compact_table(WAREHOUSE, "shop.orders"))


nightly = dg.ScheduleDefinition(
    name="nightly_compaction", target=dg.AssetSelection.assets(compacted_orders), cron_schedule="30 2 * * *"
)
definitions = dg.Definitions(assets=[compacted_orders], schedules=[nightly])
