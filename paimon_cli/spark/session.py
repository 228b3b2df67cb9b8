"""What the functions of this room need of the caller's session, classic or Spark Connect."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark import SparkContext

_SENT = "paimon_cli.spark.package"
"""Name of the attribute of a session that has the package."""


def classic_context(spark: SparkSession) -> SparkContext | None:
    """The context of a session in this process; None over Spark Connect."""
    return spark.sparkContext if isinstance(spark, SparkSession) and hasattr(spark, "_jsparkSession") else None


def send_package(spark: SparkSession) -> None:
    """Send this package to the executors of the session, once. A local Spark runs the same Python as this process."""
    context = classic_context(spark)
    if (context is not None and str(context.master).startswith("local")) or getattr(spark, _SENT, False):
        return
    from paimon_cli.jobs.spark.session import write_package_archive

    with TemporaryDirectory() as directory:
        archive = str(write_package_archive(Path(directory)))
        if context is not None:
            context.addPyFile(archive)
        else:
            spark.addArtifacts(archive, pyfile=True)
    setattr(spark, _SENT, True)
