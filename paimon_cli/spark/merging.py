"""Merges a DataFrame into a table: the tasks that change the table run in the session of the DataFrame."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from paimon_cli.api.arguments import checks_call
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.errors import UsageError
from paimon_cli.jobs.spark.submit import check_running
from paimon_cli.spark.spark_types import arrow_timezone

if TYPE_CHECKING:
    from paimon_cli.api.merging import Merge


@checks_call
def merge(
    frame: DataFrame,
    name: str | os.PathLike[str] | Table,
    *,
    on: str | Sequence[str],
    options: Mapping[str, str] | None = None,
    warehouse: str | None = None,
    branch: str | None = None,
    **merge: Any,
) -> Merge:
    """Begin a merge of a DataFrame into a table: `merge(news, "shop.orders", on="id").when_matched_update_all().execute()`.

    `name` may be an opened table; else `name`, `options`, `warehouse` and `branch` are those of `Table.open`. `on` and the others
    are those of `Table.merge`. The rows of the DataFrame come to the driver, which sends them to the tasks; those of the table do
    not. Spark's timestamps are instants: for a column without time zone they are converted to the time zone of the session.
    """
    given: object = frame
    if not isinstance(given, DataFrame):
        hint = "Table.merge takes Arrow, pandas and polars data"
        raise UsageError(f"{type(given).__name__} is not a Spark DataFrame", "this function merges only DataFrames", hint)
    session = frame.sparkSession
    check_running(session)
    if frame.isStreaming:
        raise UsageError(
            "the DataFrame is a stream", "a merge is one commit", "call this function for each batch in foreachBatch"
        )
    if isinstance(name, Table):
        if not (options is None and warehouse is None and branch is None):
            raise UsageError("the table is open", "options, warehouse and branch say how to open one", "leave them out")
        runtime = replace(name.runtime, engine="auto", master=None, spark_conf={}, given_engine=None, session=session)
        table = Table(name.context, runtime)
    else:
        table = Table.open(name, options, warehouse=warehouse, branch=branch, runtime=Runtime(session=session))
    timezone = arrow_timezone(str(session.conf.get("spark.sql.session.timeZone")))
    return table.merge(frame.toArrow(), on=on, **{"timezone": timezone, **merge})
