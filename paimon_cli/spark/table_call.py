"""The table that a call of this package is about: its name, and how it is opened; or a table that is open."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING

from paimon_cli.api.table import Table
from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_cli.jobs.engine import Engine


class TableCall(Request):
    """How a table is opened by its name, as in `Table.open`."""

    _: KW_ONLY
    options: Mapping[str, str] | None = None
    warehouse: str | None = None
    branch: str | None = None

    def table(self, name: str | os.PathLike[str] | Table) -> Table:
        """The table with this name; an open one as it is. Raises `UsageError` if that should be opened in some way."""
        if not isinstance(name, Table):
            return Table.open(name, self.options, warehouse=self.warehouse, branch=self.branch)
        self.check_open()
        return name

    def check_open(self) -> None:
        """Raise `UsageError` if anything says how to open the table, which is open."""
        if not (self.options is None and self.warehouse is None and self.branch is None):
            raise UsageError("the table is open", "options, warehouse and branch say how to open one", "leave them out")

    def table_in(
        self, name: str | os.PathLike[str] | Table, session: SparkSession | None = None, engine: Engine | None = None
    ) -> Table:
        """The table, with jobs that run in this session or by this engine, and else as it is opened."""
        table = self.table(name)
        runtime = replace(table.runtime, engine="auto", master=None, spark_conf={}, session=session, given_engine=engine)
        return Table(table.context, runtime)
