"""Where Spark finds the data source `paimon`: it takes `DefaultSource` of every top-level package that begins with `pyspark_`.

An installation that cannot provide the source does not stop Spark from finding others.
"""

try:
    from paimon_cli.spark.data_source import PaimonDataSource as DefaultSource
except ImportError:  # such as an older PySpark: an error here would break every Python data source of the session
    pass
else:
    __all__ = ["DefaultSource"]
