"""What snapshots say about how far a table is behind."""

from __future__ import annotations

import pytest

from paimon_cli.ingest.changes.read_lag import LAG_PROPERTY, ReadLag


def test_it_is_read_as_it_was_written() -> None:
    lag = ReadLag(1_700_000_000_000, 7, None, 1, 2, 3)
    assert ReadLag.of({LAG_PROPERTY: lag.text()}) == lag


@pytest.mark.parametrize("text", ["", "[]", "{", '{"time":"x"}', '{"inserts":null}', "[" * 100_000, '{"behind":true}'])
def test_what_is_no_lag_is_ignored(text: str) -> None:
    assert ReadLag.of({LAG_PROPERTY: text}) is None
    assert ReadLag.of(None) is None
