"""ORC in another process: the same rows, and one clear error where Arrow's reader crashes or is killed."""

from __future__ import annotations

import io
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from pyarrow import orc

from paimon_cli.bucket import orc_file
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.errors import StorageUnavailable
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.goldens import golden_table

ROWS = pa.table({"k": [1, 2, 3], "s": ["a", None, "ü" * 70_000], "l": [[1], [], None]})
CRASHING = (
    {1412: 168, 6523: 106, 6697: 192, 7571: 124, 7703: 7, 7782: 220, 7996: 231},
    {611: 4, 5339: 53, 6163: 158},
)
"""Bytes at places of the golden's file that crash Arrow's reader, as the fuzzer found them."""


class Watched(io.BytesIO):
    """Does something whenever it is read."""

    def read(self, size: int | None = -1) -> bytes:
        self.on_read()
        return super().read(size)

    def on_read(self) -> None:
        raise StorageUnavailable("the store is away")


@pytest.fixture(autouse=True)
def no_processes_of_others() -> Iterator[None]:
    orc_file.end_idle()
    yield
    orc_file.end_idle()


def content() -> bytes:
    sink = io.BytesIO()
    orc.write_table(ROWS, sink)
    return sink.getvalue()


def test_orc_rows_equal_those_of_arrow() -> None:
    file = OrcFile(io.BytesIO(content()))
    assert (file.nrows, file.nstripes, file.schema) == (3, 1, orc.ORCFile(io.BytesIO(content())).schema)
    assert file.read_stripe(0).to_pylist() == ROWS.to_pylist()
    assert file.read_stripe(0, columns=["s"]).to_pylist() == ROWS.select(["s"]).to_pylist()
    assert len(orc_file._idle) == 1, "one process answered all"


def test_threads_have_a_process_each() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: OrcFile(io.BytesIO(content())).read_stripe(0).num_rows, range(8)))
    assert found == [3] * 8 and 1 <= len(orc_file._idle) <= 2


def test_two_threads_of_merges_share_a_process_and_a_third_starts_another() -> None:
    """The first decoder is held at work until the second thread waits for it, and the third has found both."""
    reads, requests = [threading.Event(), threading.Event()], orc_file._requests

    def hold() -> None:
        reads[0].set()
        reads[1].wait(60)

    held = Watched(content())
    held.on_read = hold  # type: ignore[method-assign]
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(OrcFile, held, shares=True)
        assert reads[0].wait(60)
        second = pool.submit(OrcFile, io.BytesIO(content()), shares=True)
        while not requests._waiting:
            time.sleep(0.001)
        assert pool.submit(OrcFile, io.BytesIO(content()), shares=True).result(60).nrows == 3
        reads[1].set()
        assert (first.result(60).nrows, second.result(60).nrows) == (3, 3)
    assert len(orc_file._idle) == 2 and not requests._waiting and not requests._at_work


def test_a_thread_that_waits_for_a_process_is_not_left_waiting_when_it_ends() -> None:
    began, goes_on = threading.Event(), threading.Event()

    def fail() -> None:
        began.set()
        goes_on.wait(60)
        raise StorageUnavailable("the store is away")

    failing = Watched(content())
    failing.on_read = fail  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(OrcFile, failing, shares=True)
        assert began.wait(60)
        second = pool.submit(OrcFile, io.BytesIO(content()), shares=True)
        while not orc_file._requests._waiting:
            time.sleep(0.001)
        goes_on.set()
        with pytest.raises(StorageUnavailable):
            first.result(60)
        assert second.result(60).nrows == 3


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
def test_a_stripe_in_batches_has_the_same_rows(batch_rows: int) -> None:
    found = list(OrcFile(io.BytesIO(content())).stripe_batches(0, None, batch_rows))
    assert [row for batch in found for row in batch.to_pylist()] == ROWS.to_pylist()
    assert max(batch.num_rows for batch in found) == min(batch_rows, 3)


def test_a_file_without_rows_has_no_stripe_and_an_empty_table_is_read() -> None:
    sink = io.BytesIO()
    orc.write_table(ROWS.slice(0, 0), sink)
    file = OrcFile(sink)
    assert sum(file.read_stripe(number).num_rows for number in range(file.nstripes)) == file.nrows == 0


def test_the_process_imports_nothing_from_where_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert OrcFile(io.BytesIO(content())).nrows > 0


def test_a_small_file_is_read_in_few_calls() -> None:
    class Counted(io.BytesIO):
        reads = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.reads += 1
            return super().read(size)

    source = Counted(content())
    OrcFile(source).read_stripe(0)
    assert source.reads <= 6, "Arrow asks for each stream of each column"


def test_a_file_that_is_not_orc_ends_its_process_and_is_reported() -> None:
    whys = {b"": "too small", b"ORC": "too small", content()[:-9]: "footer", bytes(300): "postscript"}
    for damaged, why in whys.items():
        with pytest.raises(pa.ArrowInvalid, match=why):
            OrcFile(io.BytesIO(damaged))
        assert not orc_file._idle


def test_a_stripe_or_column_that_is_not_there_is_refused() -> None:
    for stripe, columns in ((1, None), (0, ["nowhere"])):
        file = OrcFile(io.BytesIO(content()))
        with pytest.raises(pa.ArrowInvalid):
            file.read_stripe(stripe, columns)


def test_a_process_killed_while_it_waits() -> None:
    file = OrcFile(io.BytesIO(content()))
    os.kill(orc_file._idle[0]._child.pid, signal.SIGKILL)
    assert file.read_stripe(0).num_rows == 3


def test_an_interrupt_of_the_terminal_is_handled_by_the_parent() -> None:
    file = OrcFile(io.BytesIO(content()))
    (process,) = orc_file._idle
    os.kill(process._child.pid, signal.SIGINT)
    assert file.read_stripe(0).num_rows == 3 and orc_file._idle == [process]


def test_a_process_ends_with_its_pipe_and_leaves_no_core_file() -> None:
    OrcFile(io.BytesIO(content()))
    child = orc_file._idle.pop()._child
    assert resource.prlimit(child.pid, resource.RLIMIT_CORE) == (0, 0)
    assert child.stdin is not None and child.stdout is not None
    child.stdin.close()
    assert child.wait(120) == 0
    child.stdout.close()


def test_a_file_that_ends_every_process_is_reported() -> None:
    source = Watched(content())
    started: list[orc_file.OrcProcess] = []
    start = orc_file._started
    source.on_read = lambda: os.kill(started[-1]._child.pid, signal.SIGABRT)  # type: ignore[method-assign]
    with (
        mock.patch.object(orc_file, "_started", lambda: started.append(start()) or started[-1]),  # type: ignore[func-returns-value]
        pytest.raises(pa.ArrowInvalid, match=r"crashes on it: SIGABRT$"),
    ):
        OrcFile(source)
    assert not orc_file._idle and len(started) == orc_file.ATTEMPTS == 2


def test_one_process_that_ends_is_replaced() -> None:
    source = Watched(content())
    started: list[orc_file.OrcProcess] = []
    start = orc_file._started

    def end_the_first() -> None:
        if len(started) == 1:
            os.kill(started[0]._child.pid, signal.SIGKILL)

    source.on_read = end_the_first  # type: ignore[method-assign]
    with mock.patch.object(orc_file, "_started", lambda: started.append(start()) or started[-1]):  # type: ignore[func-returns-value]
        assert OrcFile(source).nrows == 3
    assert orc_file._idle == started[1:] and len(started) == 2


def test_errors_of_the_storage_stay_what_they_are() -> None:
    with pytest.raises(StorageUnavailable, match="the store is away"):
        OrcFile(Watched(content()))
    with mock.patch.object(sys, "executable", "/bin/false"), pytest.raises(StorageUnavailable, match="exit code 1"):
        OrcFile(io.BytesIO(content()))
    with mock.patch.object(sys, "executable", "/no/python"), pytest.raises(StorageUnavailable, match="No such file"):
        OrcFile(io.BytesIO(content()))


@pytest.mark.parametrize("damage", CRASHING)
def test_files_that_crash_the_reader(run: Run, tmp_path: Path, damage: dict[int, int]) -> None:  # noqa: F811
    root = golden_table("java-0.9", "types_orc", tmp_path)
    (path,) = (path for path in root.glob("bucket-0/*.orc") if path.stat().st_size == 12380)
    data = bytearray(path.read_bytes())
    for place, byte in damage.items():
        data[place] = byte
    path.write_bytes(data)
    answer = run("read", root, code=10)
    assert str(path) in answer.err and "crashes on it: SIGSEGV" in answer.err
    assert path.name in run("verify", root, "--level", "full", code=4).out
    loose = shutil.copy(path, tmp_path / "loose.orc")
    answer = run("write", root, loose, "--engine", "local", code=2)
    assert str(loose) in answer.err and "SIGSEGV" in answer.err


def test_a_thread_does_not_wait_for_ever_for_a_decoder_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may leave a count too high; and who has the decoder may wait for a store that does not answer."""
    monkeypatch.setattr(orc_file, "PATIENCE_SECONDS", 0.01)
    requests = orc_file._Requests()
    monkeypatch.setattr(orc_file, "_requests", requests)
    orc_file.end_idle()
    assert requests.begin(shares=True) is None, "of nobody's request that never ends"
    assert OrcFile(io.BytesIO(content()), shares=True).nrows > 0
    (left,) = requests.take_idle()
    left.end()
