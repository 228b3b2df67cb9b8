"""Processes race for the same snapshot ids; the nightly runs are `scripts/nightly/race_put_if_absent.py` with more rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.nightly.race_put_if_absent import RaceResult, race
from tests.storage.s3_proxy import Fate, S3Proxy
from tests.storage.s3_server import S3Server

pytestmark = pytest.mark.xdist_group("s3")


def failures(result: RaceResult) -> tuple[int, int, int]:
    return result.several_winners, result.no_winner, result.foreign


def test_local_disk(tmp_path: Path) -> None:
    result = race(str(tmp_path), {}, processes=8, rounds=300)
    assert failures(result) == (0, 0, 0) and result.unknown == 0


def test_s3(s3_server: S3Server) -> None:
    result = race(s3_server.new_bucket(), s3_server.options(), processes=4, rounds=60)
    assert failures(result) == (0, 0, 0)


class TestS3WithoutConditionalPut:
    """A store that takes every PUT, whatever its condition says."""

    def test_writers_kept_apart_by_nothing_all_win(self, s3_server: S3Server) -> None:
        with S3Proxy(s3_server.port, lambda request: Fate.UNCONDITIONAL) as proxy:
            result = race(s3_server.new_bucket(), s3_server.options(proxy.endpoint), processes=3, rounds=8, unsafe=True)
        assert result.several_winners > 0, "the race is able to find what it looks for"

    @pytest.mark.parametrize("database", ["sqlite"], indirect=True)
    def test_one_wins_under_the_lock(self, s3_server: S3Server, database: dict[str, str]) -> None:
        with S3Proxy(s3_server.port, lambda request: Fate.UNCONDITIONAL) as proxy:
            options = {**s3_server.options(proxy.endpoint), **database}
            result = race(f"{s3_server.new_bucket()}/shop.db", options, processes=4, rounds=8)
        assert failures(result) == (0, 0, 0)
