"""Creates the merge engine of a table from its options, and refuses contradictory options (FORMAT.md, section 11.3)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache

from paimon_cli.lsm.sorted_rows import MergeEngine, check_order
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions


def merge_engine(schema: TableSchema, options: TableOptions) -> MergeEngine:
    """The merge engine of a table. Raises `UsageError` for options that contradict each other or the columns, `NotSupported` for
    engines that this version does not have.
    """
    check_order(schema, "sequence.field", options.sequence_fields)
    return _factory(options.merge_engine.name)(schema, options)


@cache
def _factory(name: str) -> Callable[[TableSchema, TableOptions], MergeEngine]:
    """The function `engine` of the module of a merge engine. Only the engine of the table is loaded."""
    module = importlib.import_module(f"paimon_cli.lsm.engines.{name.replace('-', '_')}")
    factory: Callable[[TableSchema, TableOptions], MergeEngine] = module.engine
    return factory
