"""Registers the data source of `pyspark_paimon` as `paimon-cli`, too: Spark takes one name from each `pyspark_` package.

Where Paimon's own jar is on the class path, the name `paimon` belongs to the jar.
"""

import contextlib

with contextlib.suppress(ImportError):  # `pyspark_paimon` says why
    from paimon_cli.spark.data_source import SecondName as DefaultSource

    __all__ = ["DefaultSource"]
