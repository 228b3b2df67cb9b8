"""Thousands of runs that read and write the same few metadata files: decoding each of them once is enough."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.quick_metadata import quick_metadata


@pytest.fixture(autouse=True)
def decoded_once() -> Iterator[None]:
    with quick_metadata():
        yield
