"""Tables as Spark DataFrames, in the session of the caller: classic or Spark Connect.

`configure` prepares a session before it starts. `read`, `write`, `merge` and `ingest` are functions; `explain` says how
`read` would read. `errors` raises the errors of this
package where Spark would raise exceptions that quote them.
`spark.read.format("paimon")`, `df.write.format("paimon")` and streams go through `PaimonDataSource`, which Spark finds by itself
by the name `paimon`.

    import paimon_cli.spark as paimon

    spark = paimon.configure(SparkSession.builder).getOrCreate()
    orders = paimon.read(spark, "shop.orders", where="price > 10")
    paimon.write(orders.withColumn("price", orders.price * 2), "shop.orders")
    paimon.merge(news, "shop.orders", on="id").when_matched_update_all().when_not_matched_insert_all().execute()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paimon_cli.spark.configuration import configure
    from paimon_cli.spark.data_source import PaimonDataSource
    from paimon_cli.spark.ingesting import ingest
    from paimon_cli.spark.merging import merge
    from paimon_cli.spark.raising import errors
    from paimon_cli.spark.reading import explain, read
    from paimon_cli.spark.writing import write

__all__ = ["PaimonDataSource", "configure", "errors", "explain", "ingest", "merge", "read", "write"]

_MODULES = {
    "PaimonDataSource": "paimon_cli.spark.data_source",
    "configure": "paimon_cli.spark.configuration",
    "errors": "paimon_cli.spark.raising",
    "explain": "paimon_cli.spark.reading",
    "ingest": "paimon_cli.spark.ingesting",
    "merge": "paimon_cli.spark.merging",
    "read": "paimon_cli.spark.reading",
    "write": "paimon_cli.spark.writing",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
