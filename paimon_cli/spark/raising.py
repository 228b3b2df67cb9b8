"""Raises the errors of this package from the user's own queries, where Spark raises exceptions that quote them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from paimon_cli.api.runtime import check_session
from paimon_cli.errors import PaimonError
from paimon_cli.jobs.spark.session_engine import SessionEngine
from paimon_cli.jobs.spark.submit import check_running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def errors(spark: SparkSession) -> Iterator[None]:
    """Raise the errors of `paimon_cli.errors`, with class and hint, from queries in the block that use `format("paimon")`.

        with paimon_cli.spark.errors(spark):
            rows.write.format("paimon").mode("append").save("shop.orders")

    Without it Spark's exception quotes the error in its text. The data of a query cannot imitate one. Other exceptions of Spark
    are raised as they are. A query of a stream that starts and ends in the block counts, too. After a failure the block ends only
    when the tasks of its jobs have ended, up to five seconds later.
    """
    check_session(spark)
    check_running(spark)
    try:
        with SessionEngine(spark).one_job():
            yield
    except PaimonError as error:
        if error.__cause__ is None or type(error) is not PaimonError:
            raise error.with_traceback(None) from None
        raise error.__cause__ from None
