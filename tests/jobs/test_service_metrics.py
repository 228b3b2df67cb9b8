"""Metrics of the service: their values, over HTTP and in a file; readiness."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from paimon_cli.compact.compaction_task import SkippedBucket
from paimon_cli.errors import NotFound, NotSupported, UsageError
from paimon_cli.ingest.changes.read_lag import ReadLag
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.round_plan import BucketFigures, CompactionPlan
from paimon_cli.jobs.service import metrics_server
from paimon_cli.jobs.service.metrics_server import MOST_CONNECTIONS, listening, parse_address
from paimon_cli.jobs.service.service_metrics import STALE_SECONDS, MetricsFile, ServiceMetrics
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, TableRound
from paimon_cli.jobs.service.upkeep_done import UpkeepDone
from paimon_cli.jobs.service.wanted_merges import Left
from paimon_cli.metadata.snapshot import ATTEMPTS_PROPERTY, COMPACT, DURATION_PROPERTY, Snapshot
from tests.jobs.test_leases import HandClock
from tests.jobs.test_service_rounds import Rounds

FIGURES = BucketFigures(2, 8, 4000, 300, 5, 6, 4, 50_000, 2500, 1, read_requests=8)
SUMMARY = CompactSummary(
    buckets=1,
    files_before=5,
    files_after=1,
    bytes_before=2700,
    bytes_after=1100,
    bytes_read=2500,
    bytes_written=900,
    conflicts=1,
    seconds=2.0,
)
"""A file of 200 bytes only changed its level."""


@pytest.fixture
def metrics() -> ServiceMetrics:
    clock = HandClock(110_000)
    measured = ServiceMetrics(Rounds(clock), clock, {"deletions": 7})
    tables = (
        TableRound("a.b", RoundState.COMPACTED, SUMMARY, None, FIGURES, UpkeepDone(3, 9, 2, 100), lag=ReadLag(80_000, 12)),
        TableRound('c."d', RoundState.FAILED, error=NotSupported("no", "")),
    )
    for table in tables:
        measured.table_done(table)
    measured.round_done(ServiceRound(1, 0, 1.5, tables, 1), 10.0)
    return measured


def samples(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[:1] not in ("#", "")}


def get(url: str, path: str, **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(url.replace("/metrics", path).replace("0.0.0.0", "127.0.0.1"), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_values_under_paimons_names_and_our_own(metrics: ServiceMetrics) -> None:
    with listening(metrics, "127.0.0.1:0") as url:
        code, kind, text = get(url, "/metrics")
        assert code == 200 and kind.startswith("text/plain; version=0.0.4")
        assert get(url, "/metrics", Accept="application/openmetrics-text; version=1.0.0")[2].endswith("# EOF\n")
        assert get(url, "/else")[0] == 404
    found, of = samples(text), '{table="a.b"}'
    assert found[f"paimon_compaction_maxLevel0FileCount{of}"] == 4
    assert found[f"paimon_compaction_avgLevel0FileCount{of}"] == 3
    assert found[f"paimon_compaction_totalFileCount{of}"] == 8
    assert found[f"paimon_compaction_minAvgFileSize{of}"] == 300
    assert found[f"paimon_compaction_avgTotalFileSize{of}"] == 2000
    assert found[f"paimon_compaction_maxTotalFileSize{of}"] == 2500
    assert found[f"paimon_compaction_compactionQueuedCount{of}"] == 1
    assert found[f"paimon_compaction_avgCompactionTime{of}"] == 2000
    assert found[f"paimon_commit_lastCompactionInputFileSize{of}"] == 2500
    assert found[f"paimon_commit_lastTableFilesCommitCompacted{of}"] == 6
    assert found[f"paimon_cli_sorted_runs_max{of}"] == 5
    assert (found[f"paimon_cli_read_bytes{of}"], found[f"paimon_cli_read_requests{of}"]) == (4000, 8)
    assert found[f"paimon_cli_oldest_uncompacted_seconds{of}"] == 60
    assert (found[f"paimon_cli_ingest_lag_seconds{of}"], found[f"paimon_cli_ingest_events_behind{of}"]) == (30, 12)
    assert not any(name.startswith("paimon_cli_ingest") and "c." in name for name in found), "it is no table of ingest"
    assert found[f"paimon_cli_compaction_read_bytes_total{of}"] == 2500
    assert found[f"paimon_cli_conflicts_total{of}"] == 1
    assert found[f"paimon_cli_expired_snapshots_total{of}"] == 3 and found[f"paimon_cli_orphans_deleted_total{of}"] == 2
    assert found['paimon_cli_failures_total{table="c.\\"d"}'] == 1
    assert found['paimon_cli_table_state{state="failed",table="c.\\"d"}'] == 1
    assert 'paimon_cli_oldest_uncompacted_seconds{table="c.\\"d"}' not in found
    assert (found["paimon_cli_rounds_total"], found["paimon_cli_round_seconds"], found["paimon_cli_tables_waiting"]) == (
        1,
        1.5,
        1,
    )
    assert found['paimon_cli_storage_requests_total{kind="deletions"}'] == 7
    assert found["process_resident_memory_bytes"] > 0


def test_what_is_left_of_a_budget_and_the_best_score(metrics: ServiceMetrics) -> None:
    """A budget is known from turns, a score from plans; what a round did not look at stays as it was."""

    def found() -> tuple[float | None, float | None]:
        with listening(metrics, "127.0.0.1:0") as url:
            values = samples(get(url, "/metrics")[2])
        of = '{table="a.b"}'
        return values.get(f"paimon_cli_budget_left_bytes{of}"), values.get(f"paimon_cli_best_score{of}")

    def left(bucket: int, score: float | None) -> SkippedBucket:
        return SkippedBucket(b"", bucket, 2, "later", score=score)

    assert found() == (None, None), "a service without goal and budget has neither"
    plan = CompactionPlan(4, (left(0, 1.5), left(1, 2.5), left(2, math.inf), left(3, None)))
    metrics.table_done(TableRound("a.b", RoundState.OVER_BUDGET, replace(SUMMARY, plan=plan), budget_left=70))
    assert found() == (70, 2.5)
    metrics.table_done(TableRound("a.b", RoundState.NOTHING, is_new=False))
    assert found() == (70, 2.5)
    metrics.table_done(TableRound("a.b", RoundState.NOTHING, budget_left=0))
    assert found() == (0, None), "nothing is worth a merge any more"


def test_bytes_by_owner_stay_until_they_are_counted_again(metrics: ServiceMetrics) -> None:
    def found() -> dict[str, float]:
        with listening(metrics, "127.0.0.1:0") as url:
            values = samples(get(url, "/metrics")[2])
        return {name: value for name, value in values.items() if name.startswith("paimon_cli_stored_bytes")}

    metrics.table_done(TableRound("a.b", RoundState.NOTHING))
    assert not found(), "not before a search for orphans"
    metrics.table_done(TableRound("a.b", RoundState.CLEANED, stored={"live": 30, "tag": 4}))
    metrics.table_done(TableRound("a.b", RoundState.NOTHING))
    assert found() == {
        'paimon_cli_stored_bytes{owner="live",table="a.b"}': 30,
        'paimon_cli_stored_bytes{owner="tag",table="a.b"}': 4,
    }


def test_names_of_tables_are_text_without_secrets(tmp_path: Path) -> None:
    """A directory with a name that is not UTF-8 would end the service, and the addresses of tables may hold passwords."""
    clock = HandClock()
    metrics = ServiceMetrics(Rounds(clock), clock)
    tables = (TableRound("d.t\udce9", RoundState.NOTHING), TableRound("sftp://u:hunter2@host/t", RoundState.NOTHING))
    for table in tables:
        metrics.table_done(table)
    MetricsFile(metrics, str(tmp_path / "m.prom"), pytest.fail).round_done(ServiceRound(1, 0, 0.1, tables), None)
    text = (tmp_path / "m.prom").read_text()
    assert r'table="d.t\\udce9"' in text and 'table="sftp://host/t"' in text and "hunter2" not in text
    metrics.round_done(ServiceRound(2, 0, 0.1, tables[:1]), None)
    assert metrics.status()["tables"] == 1


def test_totals_grow_and_vanished_tables_go(metrics: ServiceMetrics) -> None:
    again = TableRound("a.b", RoundState.COMPACTED, SUMMARY, None, FIGURES)
    metrics.table_done(again)
    metrics.round_done(ServiceRound(2, 0, 0.5, (again,)), 10.0)
    metrics.table_done(TableRound("a.b", RoundState.NOTHING, figures=FIGURES))
    with listening(metrics, "127.0.0.1:0") as url:
        found = samples(get(url, "/metrics")[2])
    assert found['paimon_compaction_compactionCompletedCount{table="a.b"}'] == 2
    assert found['paimon_cli_compaction_written_bytes_total{table="a.b"}'] == 1800
    assert found['paimon_cli_table_state{state="nothing to do",table="a.b"}'] == 1
    assert not any('c.\\"d' in name for name in found)


def test_totals_add_up_over_rounds_and_what_is_greatest_stays() -> None:
    clock = HandClock(110_000)
    metrics = ServiceMetrics(Rounds(clock), clock)
    small = replace(SUMMARY, bytes_read=100, bytes_written=50, conflicts=2, seconds=1.0, snapshots=(commit(7, 30), commit(8, 40)))
    rounds = (
        TableRound("a", RoundState.COMPACTED, SUMMARY, None, FIGURES, UpkeepDone(3, 9, 2, 100)),
        TableRound("a", RoundState.COMPACTED, small, None, FIGURES, UpkeepDone(1, 1, 5, 10)),
        TableRound("a", RoundState.FAILED, error=NotSupported("no", "")),
        TableRound("a", RoundState.GONE, error=NotFound("it was dropped", "")),
    )
    for number, done in enumerate(rounds, 1):
        metrics.table_done(done)
        metrics.round_done(ServiceRound(number, 0, 1.5, (done,)), 10.0)
    found = samples(generate_latest(metrics.registry).decode())
    of_a = {name.removesuffix('{table="a"}'): value for name, value in found.items() if name.endswith('{table="a"}')}
    assert (of_a["paimon_cli_conflicts_total"], of_a["paimon_cli_failures_total"]) == (3, 1), "a dropped table has not failed"
    assert (of_a["paimon_cli_expired_snapshots_total"], of_a["paimon_cli_orphans_deleted_total"]) == (4, 7)
    assert of_a["paimon_compaction_maxCompactionInputSize"] == 2500 and of_a["paimon_compaction_maxCompactionOutputSize"] == 900
    assert of_a["paimon_compaction_avgCompactionInputSize"] == 1300 and of_a["paimon_compaction_avgCompactionTime"] == 1500
    assert of_a["paimon_commit_lastCommitDuration"] == 40 and of_a["paimon_commit_lastCompactionInputFileSize"] == 100


def test_each_metric_of_a_table_has_its_own_figure() -> None:
    """All figures differ, so that none can stand in the place of another."""
    clock = HandClock(110_000)
    metrics = ServiceMetrics(Rounds(clock), clock)
    figures = BucketFigures(3, 8, 4002, 303, 5, 12, 6, 50_000, 2501, 2, 11, 13)
    done = CompactSummary(
        buckets=14,
        files_before=150,
        files_after=16,
        bytes_read=17_000,
        bytes_written=1800,
        conflicts=19,
        seconds=2.5,
        snapshots=(replace(commit(7, 44), properties={DURATION_PROPERTY: "45", ATTEMPTS_PROPERTY: "46"}),),
    )
    upkeep, left = UpkeepDone(20, 21, 22, 23, 24, 25, 26, 27), Left(1, 28)
    round_of = TableRound("a", RoundState.COMPACTED, done, None, figures, upkeep, lag=ReadLag(80_000, 29), left=left)
    metrics.table_done(round_of)
    metrics.table_done(replace(round_of, budget_left=31))
    found = samples(generate_latest(metrics.registry).decode())
    of_a = {name.removesuffix('{table="a"}'): value for name, value in found.items() if name.endswith('{table="a"}')}
    assert {name.removeprefix("paimon_"): value for name, value in of_a.items()} == {
        "compaction_maxLevel0FileCount": 6,
        "compaction_avgLevel0FileCount": 4,
        "compaction_totalFileCount": 8,
        "compaction_minAvgFileSize": 303,
        "compaction_avgTotalFileSize": 1334,
        "compaction_maxTotalFileSize": 2501,
        "compaction_compactionCompletedCount": 28,
        "compaction_compactionQueuedCount": 2,
        "compaction_avgCompactionTime": 2500,
        "compaction_avgCompactionInputSize": 17_000,
        "compaction_maxCompactionInputSize": 17_000,
        "compaction_avgCompactionOutputSize": 1800,
        "compaction_maxCompactionOutputSize": 1800,
        "commit_lastCommitDuration": 45,
        "commit_lastCommitAttempts": 46,
        "commit_lastTableFilesAdded": 16,
        "commit_lastTableFilesDeleted": 150,
        "commit_lastTableFilesCommitCompacted": 166,
        "commit_lastGeneratedSnapshots": 1,
        "commit_lastBucketsWritten": 14,
        "commit_lastCompactionInputFileSize": 17_000,
        "commit_lastCompactionOutputFileSize": 1800,
        "cli_read_bytes": 4002,
        "cli_read_requests": 13,
        "cli_sorted_runs_max": 5,
        "cli_oldest_uncompacted_seconds": 60,
        "cli_ingest_lag_seconds": 30,
        "cli_ingest_events_behind": 29,
        "cli_compaction_read_bytes_total": 34_000,
        "cli_compaction_written_bytes_total": 3600,
        "cli_conflicts_total": 38,
        "cli_failures_total": 0,
        "cli_expired_snapshots_total": 40,
        "cli_expired_partitions_total": 48,
        "cli_expired_changelogs_total": 50,
        "cli_expired_tags_total": 52,
        "cli_expired_consumers_total": 54,
        "cli_expired_files_total": 42,
        "cli_orphans_deleted_total": 44,
        "cli_left_bytes": 28,
        "cli_budget_left_bytes": 31,
    }


def commit(number: int, millis: int) -> Snapshot:
    return Snapshot(number, 0, "", "", "me", number, COMPACT, 0, 1, 0, properties={DURATION_PROPERTY: f"{millis}"})


def test_no_age_is_negative_after_a_clock_was_put_back() -> None:
    clock = HandClock(10_000)
    metrics = ServiceMetrics(Rounds(clock), clock)
    metrics.table_done(TableRound("a", RoundState.NOTHING, figures=FIGURES, lag=ReadLag(80_000, 12)))
    found = samples(generate_latest(metrics.registry).decode())
    ages = ("paimon_cli_oldest_uncompacted_seconds", "paimon_cli_ingest_lag_seconds")
    assert [found[f'{name}{{table="a"}}'] for name in ages] == [0, 0]


def test_ready_after_the_first_round_and_while_there_are_signs_of_life() -> None:
    clock = HandClock()
    metrics = ServiceMetrics(Rounds(clock), clock)
    with listening(metrics, ":0") as url:
        assert get(url, "/healthz")[0] == 200 and get(url, "/readyz")[0] == 503
        metrics.round_done(ServiceRound(1, 0, 0.1, ()), 10.0)
        code, _, text = get(url, "/readyz")
        assert code == 200 and json.loads(text) == {"ready": True, "rounds": 1, "tables": 0, "seconds_since_activity": 0.0}
        clock.sleep(STALE_SECONDS + 1)
        assert get(url, "/readyz")[0] == 503
        metrics.round_done(ServiceRound(2, 0, 0.1, ()), 10.0)
        assert get(url, "/readyz")[0] == 200, "a round without tables is a sign of life, too"
        clock.sleep(STALE_SECONDS + 1)
        progress = metrics.table_begins(2, "t")
        signs: tuple[Callable[[], None], ...] = (lambda: progress.start("Compacting", 3), progress.advance, progress.finish)
        for sign in signs:
            clock.sleep(STALE_SECONDS + 1)
            assert get(url, "/readyz")[0] == 503
            sign()
            assert get(url, "/readyz")[0] == 200
        with pytest.raises(UsageError, match="cannot listen"), listening(metrics, url.split("/")[2]):
            pass
    with pytest.raises(urllib.error.URLError):
        get(url, "/healthz")


def test_the_file_is_replaced_in_one_step(metrics: ServiceMetrics, tmp_path: Path) -> None:
    warned: list[str] = []
    path = tmp_path / "paimon.prom"
    path.write_text("old")
    writer = MetricsFile(metrics, str(path), warned.append)
    writer.round_done(ServiceRound(2, 0, 0.1, (TableRound("a.b", RoundState.NOTHING),)), None)
    assert samples(path.read_text())["paimon_cli_rounds_total"] == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["paimon.prom"]
    path.unlink()
    tmp_path.rmdir()
    writer.round_done(ServiceRound(3, 0, 0.1, ()), None)
    assert len(warned) == 1 and "was not written" in warned[0]
    for wrong in (tmp_path / "none" / "m.prom", tmp_path.parent, f"{tmp_path.parent}/new/", ""):
        with pytest.raises(UsageError, match="cannot write the metrics file"):
            MetricsFile(metrics, str(wrong), warned.append)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:80", ("::1", 80)),
        ("h:0", ("h", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "9464",
        "host",
        "host:",
        "host:http",
        "::1:80",
        "host:65536",
        "host:-1",
        "",
        "host:²",
        "[::1:80",
        "]::1[:80",
        pytest.param(":" + "1" * 5000, id="5000 digits"),
    ],
)
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="cannot listen on"):
        parse_address(text)


@pytest.mark.parametrize("host", ["a\udce9", "a\0b"], ids=range(2))
def test_a_host_that_cannot_be_one_is_refused(host: str) -> None:
    clock = HandClock()
    refused = pytest.raises(UsageError, match="cannot listen on")
    with refused as error, listening(ServiceMetrics(Rounds(clock), clock), f"{host}:0"):
        pass
    assert "host" in str(error.value.hint)


@pytest.fixture
def served() -> Iterator[tuple[str, int]]:
    clock = HandClock()
    with listening(ServiceMetrics(Rounds(clock), clock), ":0") as url:
        yield url, int(url.split(":")[2].split("/")[0])


def test_without_a_host_only_this_machine_is_answered(served: tuple[str, int]) -> None:
    assert served[0].startswith("http://127.0.0.1:")
    others = [str(address) for *_, (address, *_) in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    for other in {"127.0.0.2", *others} - {"127.0.0.1"}:
        with pytest.raises(OSError):
            socket.create_connection((other, served[1]), 2).close()


def test_half_requests_neither_pile_up_nor_keep_others_out(served: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 0.5)
    url, port = served
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            half.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        assert get(url, "/healthz")[0] == 200
        deadline = time.monotonic() + 30
        while (more := threading.active_count() - before) > MOST_CONNECTIONS + 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert more <= MOST_CONNECTIONS + 1


def test_a_request_has_a_time_and_a_size(served: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 0.5)
    _, port = served
    with socket.create_connection(("127.0.0.1", port), 5) as slow:
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for _ in range(300):
                slow.sendall(b"G")
                time.sleep(0.1)
        assert 0.4 < time.monotonic() - begin < 20, "a byte at a time does not hold a thread"
    with socket.create_connection(("127.0.0.1", port), 5) as large, contextlib.suppress(ConnectionError):
        large.sendall(b"GET / HTTP/1.1\r\n" + b"X-Y: " + b"x" * 60000 + b"\r\nX-Z: " + b"x" * 60000)
        assert large.recv(100) == b""


def test_each_request_of_a_connection_has_the_whole_size(served: tuple[str, int]) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served[1], 10)) as kept:
        for _ in range(3):
            kept.request("GET", "/healthz", headers={"X-Y": "x" * 40_000})
            answer = kept.getresponse()
            assert answer.status == 200 and answer.read() and not answer.will_close


def test_a_request_that_is_complete_but_too_large_gets_no_answer(served: tuple[str, int]) -> None:
    with socket.create_connection(("127.0.0.1", served[1]), 20) as large:
        answer = b""
        with contextlib.suppress(ConnectionError):
            large.sendall(b"GET /healthz HTTP/1.1\r\n" + (b"X-Y: " + b"x" * 40_000 + b"\r\n") * 2 + b"\r\n")
            answer = large.recv(100)
        assert answer == b""


def test_a_connection_that_is_kept_and_not_used_is_closed(served: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 0.3)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served[1], 20)) as kept:
        kept.request("GET", "/healthz")
        assert kept.getresponse().read() and kept.sock.recv(1) == b""


def test_the_family_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadingHTTPServer, "__init__", lambda *_: None)
    families = [metrics_server._Server(host, 0, BaseHTTPRequestHandler).address_family for host in ("::1", "127.0.0.1", "host")]
    assert families == [socket.AF_INET6, socket.AF_INET, socket.AF_INET]


class Connection:
    """A connection that only remembers how it was shut down."""

    how: int | None = None

    def shutdown(self, how: int) -> None:
        self.how = how


def test_the_oldest_open_connection_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__init__", "process_request", "shutdown_request"):
        monkeypatch.setattr(ThreadingHTTPServer, name, lambda *_: None)
    server = metrics_server._Server("::1", 0, BaseHTTPRequestHandler)
    made = [Connection() for _ in range(MOST_CONNECTIONS + 3)]
    for one in made[:MOST_CONNECTIONS]:
        server.process_request(one, None)
    server.shutdown_request(made[0])  # it has ended, and makes room
    server.process_request(made[MOST_CONNECTIONS], None)
    assert not any(one.how for one in made)
    for one in made[MOST_CONNECTIONS + 1 :]:
        server.process_request(one, None)
    assert [number for number, one in enumerate(made) if one.how == socket.SHUT_RDWR] == [1, 2]
    for one in made:
        server.shutdown_request(one)
    assert not server._open
