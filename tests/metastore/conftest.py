"""Commands run in this process, as in `tests/cli`."""

from __future__ import annotations

from tests.cli.conftest import run as run
