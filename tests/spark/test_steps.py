"""A small run of what `scripts.nightly.spark_steps` does at length, also on a cluster and over Spark Connect."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.nightly import at_night
from tests.spark.steps import play
from tests.spark.world import KINDS


@pytest.mark.parametrize(("kind", "steps"), [("any partition", 3), *(at_night(kind, 6) for kind in KINDS)])
def test_random_steps_lead_to_what_plain_python_says(session: SparkSession, tmp_path: Path, kind: str, steps: int) -> None:
    settings = dict(session.conf.getAll)
    try:
        assert play(session, tmp_path, kind, "small", steps) == steps
    finally:
        for key, value in settings.items():
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
