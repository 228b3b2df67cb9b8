"""The user's own queries raise the errors of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from paimon_cli import spark
from paimon_cli.errors import UsageError
from tests.nightly import BRIEF
from tests.spark.raised import check_errors


@BRIEF
def test_errors_have_class_and_hint(session: SparkSession, tmp_path: Path, brief: bool) -> None:
    check_errors(session, tmp_path, brief)


def test_a_session_is_needed() -> None:
    given: Any = None
    with pytest.raises(UsageError, match="is not a Spark session"), spark.errors(given):
        pass
