"""How many requests commands make on an object store, and how many of them one after the other, counted in front of moto.

The figures do not depend on the machine. Each request takes at least a delay, so what runs side by side overlaps, and the delay
grows if a busy machine sends it too late for that. A machine can only add trips: those that the code needs are always counted.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from paimon_cli.api.table import Table
from paimon_cli.bucket.data_file_reader import FilePart, read_part
from paimon_cli.cli.app import app
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import FileChanges, ManifestEntry
from paimon_cli.storage import guarded_storage
from tests.storage.s3_proxy import S3Proxy, Served
from tests.storage.s3_server import S3Server

pytestmark = pytest.mark.xdist_group("s3")

DELAYS = (0.2, 0.8, 3.2)
MB = 1 << 20


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.port) as proxy:
        yield proxy


class TooManyTrips(AssertionError):
    """What a longer delay excuses, unless it stays so."""


@dataclass
class Store:
    """Commands on a table that is accessed through the proxy, each as in a process of its own."""

    proxy: S3Proxy
    table: str
    options: dict[str, str]
    delay: float = 0

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        guarded_storage._proven.clear()
        self.proxy.forget()
        self.proxy.delay = self.delay
        pairs = [word for key, value in self.options.items() for word in ("--option", f"{key}={value}")]
        command, *rest = arguments
        result = CliRunner().invoke(app, [command, self.table, *rest, *pairs], input=stdin)
        self.proxy.delay = 0
        assert result.exit_code == 0, result.output
        return result.stdout

    def write(self, key: int) -> None:
        row = json.dumps({"k": key, "v": "x"})
        self.run("write", "-", "--format", "json", "--engine", "local", "--compact", "none", stdin=row)

    def check_counts(self, requests: int, trips: int) -> None:
        """No more than these, and no listing."""
        begun = min(served.begun for served in self.proxy.served)
        seen = [
            f"{1000 * (s.begun - begun):5.0f} to {1000 * (s.ended - begun):5.0f} {s.request.method} {s.request.path}"
            for s in sorted(self.proxy.served, key=lambda served: served.begun)
        ]
        assert len(self.proxy.requests) <= requests, "\n".join(seen)
        assert not any("list-type" in request.path for request in self.proxy.requests)
        if self.proxy.trips > trips:
            raise TooManyTrips("\n".join(seen))


@dataclass(frozen=True)
class Stores:
    """Makes a store with a table of three small files for each measurement."""

    server: S3Server
    proxy: S3Proxy

    def new(self, delay: float = 0) -> Store:
        store = Store(self.proxy, f"{self.server.new_bucket()}/wh/shop.db/orders", self.server.options(self.proxy.endpoint))
        store.run("create", "-C", "k INT NOT NULL", "-C", "v STRING", "--primary-key", "k", "--bucket", "1")
        for key in range(3):
            store.write(key)
        store.delay = delay
        return store

    def measure(self, check: Callable[[Store], None]) -> None:
        """The check passes on a store with one of the delays; it may raise `TooManyTrips` with all but the longest."""
        for delay in DELAYS[:-1]:
            with contextlib.suppress(TooManyTrips):
                return check(self.new(delay))
        check(self.new(DELAYS[-1]))


@pytest.fixture
def stores(s3_server: S3Server, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """No delay makes what was fetched ahead so old that it is asked for again."""
    monkeypatch.setattr("paimon_cli.history.snapshot_history._FRESH_SECONDS", math.inf)
    return Stores(s3_server, proxy)


def test_a_steady_write_of_one_row(stores: Stores) -> None:
    def check(store: Store) -> None:
        store.write(3)
        store.check_counts(17, 7)
        served = sorted(store.proxy.served, key=lambda served: served.begun)
        begin = next(place for place, found in enumerate(served) if "/data-" in found.request.path)
        assert len(served[begin:]) <= 9
        if trips_of(served[begin:]) > 4:
            raise TooManyTrips({found.request.path.split("?")[0] for found in served[begin:]})

    stores.measure(check)


def trips_of(served: list[Served]) -> int:
    proxy = S3Proxy(0)
    proxy.served = served
    return proxy.trips


def test_a_read_of_three_small_files(stores: Stores) -> None:
    """Three of the schema and the hint, two snapshots, three manifests, three files; the snapshot repeats its lists."""

    def check(store: Store) -> None:
        for _ in range(2):  # the first one loads modules between its requests
            rows = store.run("read", "-o", "ndjson").splitlines()
        assert len(rows) == 3
        store.check_counts(11, 4)

    stores.measure(check)


def test_a_compaction_of_three_small_files(stores: Stores) -> None:
    def check(store: Store) -> None:
        store.run("compact", "--engine", "local")
        store.check_counts(20, 8)
        assert len(store.run("read", "-o", "ndjson").splitlines()) == 3

    stores.measure(check)


def test_a_compaction_that_finds_nothing_to_do(stores: Stores) -> None:
    def check(store: Store) -> None:
        store.run("compact", "--engine", "local")
        store.run("compact", "--engine", "local")
        store.check_counts(10, 3)

    stores.measure(check)


def test_requests_that_wait_for_each_other_are_too_many_with_every_delay(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.DELAYS", (0.0, 0.01, 0.02))
    tried: list[float] = []

    def check(store: Store) -> None:
        tried.append(store.delay)
        store.run("read", "-o", "ndjson")
        store.check_counts(20, 1)

    with pytest.raises(TooManyTrips):
        stores.measure(check)
    assert tried == list(DELAYS)


def test_the_trial_of_conditional_puts_is_made_once(stores: Stores) -> None:
    """Later processes send one conditional put to what the first one left."""
    store = stores.new()
    store.write(3)
    probes = [request for request in store.proxy.requests if "/.commit-probe-" in request.path]
    assert [(request.method, request.is_put_if_absent) for request in probes] == [("PUT", True)]


def test_a_plan_of_a_thousand_files(s3_server: S3Server, proxy: S3Proxy) -> None:
    """The schema has been read already. The requests are for the hint, its snapshot, the next snapshot and one manifest."""
    from paimon_cli.commit.committer import Committer
    from paimon_cli.commit.deduplication import fresh_identity
    from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage
    from tests.commit.commit_tables import data_file

    table = f"{s3_server.new_bucket()}/t"
    options = s3_server.options(proxy.endpoint)
    Table.create(table, columns=["k INT NOT NULL", "v STRING"], primary_key="k", bucket=1, options=options)
    context = TableContext.open(table, storage_options=options)
    files = tuple(data_file(f"f{number}", low=number, high=number) for number in range(1000))
    Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 1, append=FileChanges(added=files))], fresh_identity(context))
    opened = TableContext.open(table, storage_options=options)
    proxy.forget()
    latest = opened.snapshots.latest()
    assert latest is not None and len(opened.manifests.live_files(latest)) == 1000
    assert len(proxy.requests) <= 4


@dataclass(frozen=True)
class BigFile:
    """A file of an append table with eight columns of numbers that hardly compress."""

    context: TableContext
    entry: ManifestEntry
    options: dict[str, str]

    @property
    def size(self) -> int:
        return self.entry.file.file_size


def big_file(server: S3Server, proxy: S3Proxy, megabytes: int) -> BigFile:
    options = server.options(proxy.endpoint)
    url = f"{server.new_bucket()}/big"
    names = [f"c{number}" for number in range(8)]
    table = Table.create(url, columns=[f"{name} BIGINT" for name in names], options=options)
    rows = megabytes * MB // 64
    chance = np.random.default_rng(7)
    table.write(pa.table({name: chance.integers(0, 2**63, rows) for name in names}))
    context = TableContext.open(url, storage_options=options)
    latest = context.snapshots.latest()
    assert latest is not None
    (entry,) = context.manifests.live_entries(latest)
    return BigFile(context, entry, options)


@pytest.fixture(scope="module")
def of_16_mb(s3_server: S3Server, proxy: S3Proxy) -> BigFile:
    return big_file(s3_server, proxy, 15)


@pytest.fixture(scope="module")
def of_100_mb(s3_server: S3Server, proxy: S3Proxy) -> BigFile:
    return big_file(s3_server, proxy, 95)


def read(proxy: S3Proxy, file: BigFile, columns: int) -> tuple[int, int]:
    """Rows read, bytes fetched."""
    names = file.context.schema.field_names[:columns]
    proxy.forget()
    batches = read_part(file.context, file.entry.bucket_id, file.entry.file, names, 65536, FilePart(is_alone=True))
    rows = sum(batch.num_rows for _, batch in batches)
    assert {request.method for request in proxy.requests} == {"GET"}, "the size is known, so it is not asked for"
    return rows, sum(served.size for served in proxy.served)


class TestDataFiles:
    def test_all_columns_of_16_mb(self, proxy: S3Proxy, of_16_mb: BigFile) -> None:
        rows, fetched = read(proxy, of_16_mb, 8)
        assert 14 * MB < of_16_mb.size <= 16 * MB and rows == of_16_mb.entry.file.row_count
        assert len(proxy.requests) <= 2 and fetched <= 1.05 * of_16_mb.size

    def test_one_column_of_16_mb(self, proxy: S3Proxy, of_16_mb: BigFile) -> None:
        _, fetched = read(proxy, of_16_mb, 1)
        assert len(proxy.requests) <= 2 and fetched <= 1.05 * of_16_mb.size / 8

    @pytest.mark.nightly
    def test_all_columns_of_100_mb(self, proxy: S3Proxy, of_100_mb: BigFile) -> None:
        rows, fetched = read(proxy, of_100_mb, 8)
        assert of_100_mb.size > 90 * MB and rows == of_100_mb.entry.file.row_count
        assert len(proxy.requests) <= 15 and fetched <= 1.05 * of_100_mb.size

    def test_one_column_of_100_mb(self, proxy: S3Proxy, of_100_mb: BigFile) -> None:
        """A request for each row group, and one for the footer."""
        _, fetched = read(proxy, of_100_mb, 1)
        assert len(proxy.requests) <= 15 and fetched <= 1.05 * of_100_mb.size / 8 + (64 << 10)

    @pytest.mark.nightly
    def test_memory_of_100_mb(self, of_100_mb: BigFile) -> None:
        """The memory that the read adds to a process of its own."""
        program = (
            "import resource, sys, json\n"
            "from paimon_cli.api.table import Table\n"
            "from paimon_cli.bucket.data_file_reader import FilePart, read_part\n"
            "context = Table.open(sys.argv[1], json.loads(sys.argv[2])).context\n"
            "(entry,) = context.manifests.live_entries(context.snapshots.latest())\n"
            "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "before = peak()\n"
            "names = context.schema.field_names\n"
            "for _ in read_part(context, entry.bucket_id, entry.file, names, 65536, FilePart(is_alone=True)):\n"
            "    pass\n"
            "print(peak() - before)"
        )
        words = [sys.executable, "-c", program, of_100_mb.context.url, json.dumps(of_100_mb.options)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert int(done.stdout) <= 70 << 10, "kilobytes"


def test_a_command_starts_without_the_libraries_of_amazon() -> None:
    program = (
        "import sys\n"
        "from paimon_cli.storage.storage_for_url import storage_for_url\n"
        "storage, _ = storage_for_url('s3://bucket/t', {'s3.access-key': 'x', 's3.secret-key': 'y'})\n"
        "storage.inner.inner.settings.client('bucket')\n"
        "print(sorted({'boto3', 'botocore', 'pyarrow', 'fsspec', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []
