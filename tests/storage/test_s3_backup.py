"""Backups on S3: there and back, within the store, and how many requests the second run makes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from paimon_cli import Table, restore
from paimon_cli.api.runtime import Runtime
from tests.jobs.backups import check_same, opened
from tests.storage.s3_proxy import S3Proxy, Served
from tests.storage.s3_server import S3Server
from tests.storage.test_s3_tables import create_and_fill, pairs, run

pytestmark = pytest.mark.xdist_group("s3")

LOCAL = Runtime(engine="local")


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.port) as proxy:
        yield proxy


def lists(served: list[Served]) -> Counter[str]:
    """The listings by what they list; pages after the first are left out."""
    found: Counter[str] = Counter()
    for one in served:
        query = parse_qs(urlsplit(one.request.path).query)
        if one.request.method == "GET" and "list-type" in query and "continuation-token" not in query:
            found[query.get("prefix", [""])[0]] += 1
    return found


def test_there_and_back(s3_server: S3Server, tmp_path: Path) -> None:
    """From local disk to S3, to another place of the bucket, and back."""
    bucket, options = s3_server.new_bucket(), s3_server.options()
    table = tmp_path / "wh/shop.db/orders"
    create_and_fill(str(table), [])
    run("tags", "create", table, "t")
    backup = f"{bucket}/backup/orders"
    run("backup", table, backup, "--engine", "local", *pairs(options))
    run("write", table, "-", "--format", "json", "--engine", "local", stdin='{"k": 3, "v": "second"}\n')
    done = json.loads(run("backup", table, backup, "--engine", "local", "-o", "json", *pairs(options)).out)["item"]
    assert 0 < done["files"] < 12
    assert "is whole" in run("backup", "verify", backup, "--engine", "local", *pairs(options)).out
    assert len(json.loads(run("backup", "ls", backup, "-o", "json", *pairs(options)).out)["items"]) == 2
    on_s3 = Table.open(backup, options, runtime=LOCAL)
    on_s3.backup(f"{bucket}/second/orders")
    restore(f"{bucket}/second/orders", tmp_path / "back", history=True, options=options, runtime=LOCAL)
    check_same(opened(table), opened(tmp_path / "back"))


def test_requests_of_a_second_run(s3_server: S3Server, proxy: S3Proxy, tmp_path: Path) -> None:
    bucket, options = s3_server.new_bucket(), s3_server.options(proxy.endpoint)
    table, backup = f"{bucket}/wh/shop.db/orders", f"{bucket}/backup"
    create_and_fill(table, pairs(options))
    Table.open(table, options, runtime=LOCAL).backup(backup)
    run("write", table, "-", "--format", "json", "--engine", "local", *pairs(options), stdin='{"k": 3, "v": "second"}\n')
    proxy.forget()
    summary = Table.open(table, options, runtime=LOCAL).backup(backup)
    assert summary.files > 0
    counted = lists(proxy.served)
    assert max(counted.values()) == 1, counted
    assert not any("bucket-" in prefix or "manifest" in prefix for prefix in counted)
    gets = [one.request.path for one in proxy.served if one.request.method == "GET" and "/orders/bucket-" in one.request.path]
    assert not gets, "data files are copied by the store"
