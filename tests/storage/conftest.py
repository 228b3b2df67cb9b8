"""Servers of a test session: an S3, and databases for the commit lock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage import postgres_server
from tests.storage.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


DATABASES = ["sqlite", "postgresql"] if postgres_server.IS_HERE else ["sqlite"]
"""PostgreSQL where the machine has one."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.PostgresServer]:
    with postgres_server.PostgresServer() as server:
        yield server


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Catalog options of a commit lock in an empty database."""
    shared = {"lock.enabled": "true", "lock-check-max-sleep": "100 ms"}
    if request.param == "sqlite":
        return {**shared, "uri": f"jdbc:sqlite:{tmp_path}/locks.db"}
    server = request.getfixturevalue("postgres")
    return {**shared, "uri": server.new_database(), "jdbc.user": postgres_server.USER, "jdbc.password": server.password}
