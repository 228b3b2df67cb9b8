"""An Airflow DAG that compacts the tables of a database, and expires their snapshots, every night.

It calls the library in the worker; `KubernetesPodOperator` with the image of deploy/Dockerfile and the arguments of
deploy/kubernetes/cronjob.yaml does the same in a pod.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import dag, task

WAREHOUSE = "s3://lake/warehouse"


def compact_database(warehouse: str, database: str) -> dict[str, int]:
    """Compact the tables; returns the number of files of each. Raises the first error, after all tables were tried."""
    from paimon_cli import Catalog

    catalog, errors, files = Catalog(warehouse), [], {}
    for done in catalog.compact(database=database):
        if done.error is not None:
            errors.append(done.error)
            continue
        files[done.table] = done.summary.files_after
        print(f"{done.table}: {done.state}, {done.summary.bytes_before} bytes read")
    if errors:
        raise errors[0]
    return files


def expire_database(warehouse: str, database: str) -> int:
    """Expire the snapshots past each table's own retention; returns how many there were."""
    from paimon_cli import Catalog, Table

    tables = [row.table for row in Catalog(warehouse).tables(database=database) if row.problem is None]
    return sum(len(Table.open(name, warehouse=warehouse).expire().removed) for name in tables)


@dag(schedule="30 2 * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def paimon_compaction() -> None:
    settings = {"retries": 2, "retry_delay": timedelta(minutes=10)}
    compacted = task(compact_database, **settings)(WAREHOUSE, "shop")
    compacted >> task(expire_database, **settings)(WAREHOUSE, "shop")


paimon_compaction()
