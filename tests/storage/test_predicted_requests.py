"""Predicted requests and bytes are those that a proxy in front of a store counts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from paimon_cli import Table
from paimon_cli.inspect.operation_cost import OperationCost
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine
from paimon_cli.jobs.service.compaction_service import CompactionService
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.requests.compaction import Upkeep
from paimon_cli.storage import guarded_storage
from tests.jobs.test_leases import HandClock
from tests.jobs.test_service_rounds import Rounds
from tests.nightly import at_night
from tests.storage.s3_proxy import S3Proxy
from tests.storage.s3_server import S3Server

pytestmark = pytest.mark.xdist_group("s3")

ROWS = [{"id": number, "v": f"{number * 7919 % 10007}" * 40} for number in range(3000)]


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.port) as proxy:
        yield proxy


class Shop:
    """A table behind the proxy, each opening of which is that of a new process."""

    def __init__(self, server: S3Server, proxy: S3Proxy, buckets: int, commits: int) -> None:
        self.proxy, self.url = proxy, f"{server.new_bucket()}/wh/shop.db/orders"
        self.options = server.options(proxy.endpoint)
        table = {"bucket": str(buckets), "num-sorted-run.compaction-trigger": "3"}
        columns = ["id BIGINT NOT NULL", "v STRING"]
        Table.create(self.url, columns=columns, primary_key=["id"], options={**table, **self.options})
        for _ in range(commits):
            self.open().write(ROWS, compact="none")

    def open(self) -> Table:
        return Table.open(self.url, options=self.options)

    def predicted(self) -> dict[str, OperationCost]:
        return {cost.operation: cost for cost in self.open().cost().operations}

    def counted(self, work: Callable[[Table], object]) -> tuple[Counter[str], int]:
        """The requests by method, and the bytes of their answers."""
        guarded_storage._proven.clear()
        self.proxy.forget()
        work(self.open())
        answered = sum(served.size for served in self.proxy.served if served.request.method == "GET")
        return Counter(request.method for request in self.proxy.requests), answered


@pytest.mark.parametrize(("buckets", "commits"), [(2, 4), at_night(1, 1)])
def test_the_requests_of_operations_are_predicted(s3_server: S3Server, proxy: S3Proxy, buckets: int, commits: int) -> None:
    shop = Shop(s3_server, proxy, buckets, commits)
    predicted = shop.predicted()
    read = predicted["read"]
    requests, answered = shop.counted(lambda table: table.to_arrow())
    assert requests == {"GET": read.reads}
    assert answered == pytest.approx(read.bytes_read, rel=0.05, abs=8000)
    assert ("compaction" in predicted) == (commits > 3)
    if "compaction" in predicted:
        compaction = predicted["compaction"]
        requests, answered = shop.counted(lambda table: table.compact())
        assert requests == {"GET": compaction.reads, "PUT": compaction.writes, "HEAD": compaction.checks}
        assert answered == pytest.approx(compaction.bytes_read, rel=0.05, abs=8000)
    write = shop.predicted()["write"]
    requests, _ = shop.counted(lambda table: table.write(ROWS, compact="none"))
    assert requests == {"GET": write.reads, "PUT": write.writes, "HEAD": write.checks}


def test_the_requests_of_an_idle_hour_are_predicted(s3_server: S3Server, proxy: S3Proxy) -> None:
    shop = Shop(s3_server, proxy, 1, 2)
    predicted = shop.predicted()["idle hour"]
    clock = HandClock()

    def hours(rounds: int) -> None:
        table = ServedTable("shop.orders", lambda: replace(shop.open().context, clock=clock))
        service = CompactionService(
            lambda: [table], CompactRequest("minor"), LocalEngine(), clock, Rounds(clock), contextlib.nullcontext, None, Upkeep()
        )
        service.run(10, rounds)

    def requests(rounds: int) -> Counter[str]:
        shop.proxy.forget()
        hours(rounds)
        return Counter(request.method for request in shop.proxy.requests)

    assert requests(361) - requests(1) == {"GET": predicted.reads, "HEAD": predicted.checks}
