"""Registers the data source `paimon`: Spark loads `DefaultSource` from every top-level package whose name starts with `pyspark_`.

If the source cannot be imported, Spark still finds the other data sources, and a message says why `paimon` is missing.
"""

import sys

try:
    from paimon_cli.spark.data_source import PaimonDataSource as DefaultSource
except ImportError as problem:  # such as on an older PySpark; an error would disable every Python data source in the session
    sys.stderr.write(f"Spark will not find the data source paimon, which cannot be imported: {problem}\n")
else:
    __all__ = ["DefaultSource"]
