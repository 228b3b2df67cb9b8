"""Registers the data source `paimon`: Spark loads `DefaultSource` from every top-level package whose name starts with `pyspark_`.

If the source cannot be imported, Spark still finds the other data sources.
"""

try:
    from paimon_cli.spark.data_source import PaimonDataSource as DefaultSource
except ImportError:  # such as on an older PySpark; an error here would disable every Python data source in the session
    pass
else:
    __all__ = ["DefaultSource"]
