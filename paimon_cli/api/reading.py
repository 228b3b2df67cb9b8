"""The methods of `Table` that read rows, and what it is at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.opened_table import OpenedTable
from paimon_cli.requests.fields import check_limit
from paimon_cli.requests.reading import ChangelogCall, FollowedCall, ScanCall, SparkCall

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from paimon_cli.api.scan import Changes, Scan


@checks_arguments
class Reading(OpenedTable):
    """The methods of `Table` that read. Libraries that support the Arrow PyCapsule interface take a table as its rows."""

    def _repr_html_(self) -> str:
        from paimon_cli.api.notebook import html_of_table

        return html_of_table(self)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.supported.schema.field_names)

    @property
    def primary_keys(self) -> list[str]:
        """The columns of the primary key; none in an append table."""
        return list(self.supported.schema.primary_keys)

    @property
    def partition_keys(self) -> list[str]:
        """The columns by which the table is partitioned."""
        return list(self.supported.schema.partition_keys)

    @property
    def snapshot_id(self) -> int | None:
        """The id of the latest snapshot; None if there is none."""
        self._expect_existing()
        return self.context.snapshots.latest_id()

    def count(self, where: str | None = None, *, params: Mapping[str, Any] | None = None) -> int:
        """The number of rows, or of those that match; reads as little as possible, often only metadata. See `scan`."""
        return self.scan(where=where, params=params).count()

    def head(self, rows: int = 10) -> pa.Table:
        """The first rows, in the order of a scan."""
        check_limit(rows)
        return self.scan(limit=rows).to_arrow()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table. `scan` reads some of them, or an older version."""
        return self.scan().to_arrow()

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; see `Scan.to_pandas`."""
        return self.scan().to_pandas(**options)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for libraries that support the Arrow PyCapsule interface: `pyarrow.table(table)`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.scan(limit=0).__arrow_c_schema__()

    @takes(ScanCall)
    def scan(self, call: ScanCall) -> Scan:
        """Plan a read of the rows, merged by key; the methods of the result read them.

        The table is read at its latest snapshot, or at the one that is named. Raises `NotFound` for a missing snapshot,
        `UsageError` for invalid arguments.
        """
        from paimon_cli.api.scan import open_scan

        return open_scan(self, call)

    @takes(SparkCall)
    def to_spark(self, spark: SparkSession, call: SparkCall) -> DataFrame:
        """The rows as a DataFrame of the session `spark`, as `paimon_cli.spark.read` reads them; the others are those of `scan`.

        `native`: whether Spark's Parquet reader may open data files: by default on local disks and HDFS; True: in object stores,
        too; False: Python workers read all.
        """
        frame: DataFrame = import_module("paimon_cli.spark").read(spark, self, **vars(call))
        return frame

    @takes(ChangelogCall)
    def changelog(self, call: ChangelogCall) -> Scan:
        """The row changes of the snapshots `begin` to `end` (default: the latest), with `rowkind` as the first column.

        If the table has a changelog producer, they come from changelog files, and for overwrites from a comparison with
        the previous snapshot; otherwise they are the rows that each commit added, without those of overwrites unless the
        option `streaming-read-overwrite` is set. Changes of a snapshot in different buckets have no order, even if a key
        has moved from one partition to another.
        """
        from paimon_cli.api.scan import plan_changes

        return plan_changes(self, call)

    @takes(FollowedCall)
    def follow_changelog(self, call: FollowedCall) -> Changes:
        """Like `changelog` from `begin` on, but wait for further snapshots up to `end` (None: forever), polling every
        `wait_seconds`.
        """
        from paimon_cli.api.scan import follow_changes

        return follow_changes(self, call)
