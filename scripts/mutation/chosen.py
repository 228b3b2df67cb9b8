"""A pytest plugin: runs the tests that `chosen.txt` names, in its order. Its first line says where to write which failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.mutation.judge import Failures


def pytest_configure(config: pytest.Config) -> None:
    told = (config.rootpath / "chosen.txt").read_text().partition("\n")[0]
    config.pluginmanager.register(Failures(Path(told)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _, *tests = (config.rootpath / "chosen.txt").read_text().split("\n")
    ranks = {test: place for place, test in enumerate(tests)}
    items[:] = sorted((item for item in items if item.nodeid in ranks), key=lambda item: ranks[item.nodeid])
