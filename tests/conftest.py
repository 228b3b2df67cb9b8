"""What every test shares: a fixed environment, the same random examples each time, and Spark tests kept on one worker."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored, and children inherit that
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # so has nohup

# Set before anything is imported: widths and colours of text output, and no setting of the developer's own.
os.environ.update(COLUMNS="200", NO_COLOR="1", SPARK_LOCAL_IP="127.0.0.1", PYTHONHASHSEED="0")
for name in [key for key in os.environ if key.startswith("PAIMON_")]:
    del os.environ[name]

# A busy machine is no reason to fail. Which examples are tried is the same each time; at night others are searched for.
settings.register_profile("night", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("tests", settings.get_profile("night"), derandomize=True)
settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of files with `spark` in their name share one Spark session, so pytest-xdist must keep them together."""
    for item in items:
        if "spark" in item.path.name:
            item.add_marker(pytest.mark.xdist_group("spark"))
