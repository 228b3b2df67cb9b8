"""The rows of a table checked as Spark tasks: the very findings that this process makes."""

from __future__ import annotations

import shutil
from pathlib import Path

from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.verify_job import VerifyRequest, run_verify
from tests.goldens import golden_table
from tests.invariants import damages
from tests.invariants.damaged_tables import Bench, keyed_table


def test_same_findings(spark_engine: SparkEngine, tmp_path: Path) -> None:
    keyed = keyed_table(tmp_path)
    vectors = golden_table("java-0.9", "dv_dedup", tmp_path)
    planted = [(keyed, damages.rows_are_out_of_order), (keyed, damages.a_page_is_flipped), (vectors, damages.vectors_are_lost)]
    for number, (sound, plant) in enumerate(planted):
        bench = Bench(shutil.copytree(sound, tmp_path / f"t{number}"))
        plant(bench)
        reports = [run_verify(bench.context, VerifyRequest("full"), e, NoProgress()) for e in (LocalEngine(), spark_engine)]
        assert reports[0].violations == reports[1].violations and reports[0].errors
        assert [report.engine for report in reports] == ["local", "spark"]
