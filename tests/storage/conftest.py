"""The S3 server of a test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server
