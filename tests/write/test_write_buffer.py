"""The write buffer that the buckets of a task share: never more than its size, given to the buckets that need it, and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.write.write_buffer import BufferUse
from tests.tables import live_files, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def given_rows(count: int = 20_000) -> list[dict[str, object]]:
    return [{"k": k % (count // 2), "v": f"value {k}"} for k in range(count)]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("spillable", ["true", "false"])
@pytest.mark.parametrize("threads", [1, 3])
def test_sixty_four_buckets_stay_inside_the_buffer(tmp_path: Path, spillable: str, threads: int) -> None:
    options = {"write-buffer-size": "64 kb", "write-buffer-spillable": spillable}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=64, options=options)
    summary = write(context, given_rows(), threads=threads, compact="none")
    assert summary.buffer_size == 65536
    assert 32768 < summary.buffer_peak <= 65536
    assert summary.preemptions > 0
    if spillable == "true":
        assert (summary.flushes, summary.files) == (64, 64), "spilled or not, each bucket gets one sorted run"
        assert summary.spills >= summary.preemptions and summary.spilled_size > 0
    else:
        assert (summary.spills, summary.spilled_size) == (0, 0)
        assert summary.flushes == summary.files > 64
    assert sorted(rows(context), key=lambda row: row["k"]) == given_rows()[10_000:]


def test_a_lone_bucket_may_take_all_of_it(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-buffer-size": "64 kb"})
    summary = write(context, given_rows())
    assert 60_000 < summary.buffer_peak <= 65536
    assert (summary.preemptions, summary.flushes, len(live_files(context))) == (0, 1, 1)
    assert summary.spills > 5


def test_what_fits_is_flushed_once_and_never_spilled(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=4)
    summary = write(context, given_rows())
    assert (summary.flushes, summary.spills, summary.preemptions) == (4, 0, 0)
    assert 0 < summary.buffer_peak < 2 << 20


def test_rows_of_very_different_sizes_are_cut_until_they_fit(tmp_path: Path) -> None:
    """The average of a batch says little of its pieces; only a row that is too big by itself may go beyond the size."""
    given = [{"k": k, "v": "x" * (3000 if k % 100 == 0 else 1)} for k in range(2000)]
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2, options={"write-buffer-size": "4 kb"})
    assert write(context, given).buffer_peak <= 4096
    assert sorted(rows(context), key=lambda row: row["k"]) == given
    small = make_table(tmp_path / "u", COLUMNS, ["k"], bucket=2, options={"write-buffer-size": "1 kb"})
    assert 3000 < write(small, given).buffer_peak < 3100
    assert sorted(rows(small), key=lambda row: row["k"]) == given


def test_tasks_add_up_but_for_their_peaks() -> None:
    one, other = BufferUse(100, 90, 1, 2, 3, 4), BufferUse(100, 95, 10, 20, 30, 40)
    assert one.with_other_task(other) == BufferUse(100, 95, 11, 22, 33, 44)
    assert BufferUse().with_other_task(one) == one
