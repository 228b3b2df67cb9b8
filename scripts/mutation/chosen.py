"""A pytest plugin that runs the tests in `chosen.txt`, in order.

Its first line names a file, which gets the name of a failed test.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.mutation.judge import Failures


def pytest_configure(config: pytest.Config) -> None:
    sink = (config.rootpath / "chosen.txt").read_text().partition("\n")[0]
    config.pluginmanager.register(Failures(Path(sink)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _, *tests = (config.rootpath / "chosen.txt").read_text().split("\n")
    ranks = {test: position for position, test in enumerate(tests)}
    items[:] = sorted((item for item in items if item.nodeid in ranks), key=lambda item: ranks[item.nodeid])
