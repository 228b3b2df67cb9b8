"""A session of `spark_peer`, for tables of WAREHOUSE/bench.db: with this package, or if JARS are given, with Java's paimon-spark.

    spark_side.py WAREHOUSE [JARS]

Each side runs under an interpreter of its own, with the PySpark that it needs.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from side import serve

CONFS = {
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}
EXTENSIONS = "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"
CATALOG = "org.apache.paimon.spark.SparkCatalog"


def session(warehouse, jars):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    confs = dict(CONFS)
    if jars:
        catalog = {"spark.sql.catalog.peer": CATALOG, "spark.sql.catalog.peer.warehouse": f"file:{warehouse}"}
        confs |= {"spark.jars": jars, "spark.sql.extensions": EXTENSIONS, **catalog}
    builder = SparkSession.builder.master("local[2]")
    for key, value in confs.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class Ours:
    def __init__(self, spark, warehouse):
        self.spark, self.folder = spark, Path(warehouse) / "bench.db"

    def rows(self, table, columns=None, where=None):
        from paimon_cli.spark import read

        return read(self.spark, str(self.folder / table), columns, where)

    def write(self, table, source):
        from paimon_cli.spark import write

        write(self.spark.read.parquet(source), str(self.folder / table))


class Theirs:
    def __init__(self, spark):
        self.spark = spark

    def rows(self, table, columns=None, where=None):
        """The rows. Columns and filter are applied to the DataFrame, the only way that Spark has."""
        return self.spark.table(f"peer.bench.{table}")

    def write(self, table, source):
        self.spark.read.parquet(source).write.insertInto(f"peer.bench.{table}")


def main():
    warehouse, jars = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    spark = session(warehouse, jars)
    side = Theirs(spark) if jars else Ours(spark, warehouse)

    def chosen(table, columns, where, named):
        rows = side.rows(table, columns, where) if named else side.rows(table)
        return (rows if where is None else rows.where(where)).select(*columns)

    def read(table, columns, where, named):
        chosen(table, columns, where, named).write.format("noop").mode("overwrite").save()

    def count(table, columns, where, named):
        return {"rows": chosen(table, columns, where, named).count()}

    serve({"read": read, "count": count, "write": lambda table, source: side.write(table, source)})


main()
