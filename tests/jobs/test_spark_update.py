"""Updates and deletes as Spark tasks: the very same rows as in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.errors import BadInput
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from tests.rivals import beside
from tests.tables import data_files, live_files, make_table, rows, write

ADD_ONE = UpdateRequest("id <= 3 AND name LIKE 'n%'", ("points = points + 1, name = name || '!'",))


def test_updates_and_deletes(spark_engine: SparkEngine, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", {"id": "INT NOT NULL", "name": "STRING", "points": "INT"}, ["id"], bucket=3)
    write(table, [{"id": number, "name": f"n{number}", "points": number} for number in range(6)])

    def add_one() -> None:
        run_update(table, ADD_ONE, spark_engine, NoProgress())

    summary = run_update(beside(table, add_one), ADD_ONE, spark_engine, NoProgress())
    assert (summary.engine, summary.rows, summary.attempts, summary.conflicts) == ("spark", 4, 2, 1)
    assert run_update(table, UpdateRequest("id = 5 OR points = 2"), spark_engine, NoProgress()).rows == 2
    assert [tuple(row.values()) for row in rows(table)] == [(1, "n1!!", 3), (2, "n2!!", 4), (3, "n3!!", 5), (4, "n4", 4)]
    with pytest.raises(BadInput, match="id = 3: divide by zero"):
        run_update(table, UpdateRequest("true", ("points = 1 / (id - 3)",)), spark_engine, NoProgress())
    assert data_files(table) == live_files(table)
