"""Commands run in this process, as in `tests/cli`, and one Hive metastore for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.catalog.metastore.hive_server import HiveServer
from tests.cli.conftest import run as run


@pytest.fixture(scope="session")
def hive() -> Iterator[HiveServer]:
    with HiveServer() as server:
        yield server
