"""Rows in pieces: where sorted rows are cut, how large a piece may be, and what cursors and histories keep."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.lsm import sort_merge
from paimon_cli.lsm.aggregators.aggregator import ADD, RETRACT, REVERSED, SET, SKIP, column_history
from paimon_cli.lsm.engines.deduplicate import Deduplicate
from paimon_cli.lsm.sort_merge import RunCursor, merge_piece, merge_sorted_runs, rows_of, sorted_rows
from paimon_cli.lsm.sorted_rows import KeepAllVersions, SortedRows
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.pieces import PIECES


def batch(keys: list[int], sequence: list[int] | None = None, kinds: list[int] | None = None) -> pa.RecordBatch:
    return pa.record_batch(
        {
            SEQUENCE_NUMBER: pa.array(sequence or range(len(keys)), pa.int64()),
            VALUE_KIND: pa.array(kinds or [0] * len(keys), pa.int8()),
            "k": pa.array(keys, pa.int32()),
        }
    )


@pytest.mark.parametrize(
    ("rows_per_piece", "expected"),
    [
        (1, [[1], [2, 2, 2], [3], [4, 4]]),
        (2, [[1, 2, 2, 2], [3, 4, 4]]),
        (3, [[1, 2, 2, 2], [3, 4, 4]]),
        (4, [[1, 2, 2, 2], [3, 4, 4]]),
        (7, [[1, 2, 2, 2, 3, 4, 4]]),
        (6, [[1, 2, 2, 2, 3, 4, 4]]),
    ],
)
def test_pieces_end_with_a_key(rows_per_piece: int, expected: list[list[int]]) -> None:
    keys = [4, 2, 1, 2, 3, 2, 4]
    rows = sorted_rows(batch(keys), ["k"], Deduplicate())
    whole = SortedRows(rows.rows, rows.order, rows.starts, merge_lone=True)
    pieces = list(whole.pieces(rows_per_piece))
    assert [[keys[row] for row in piece.order] for piece in pieces] == expected
    assert all(piece.merge_lone for piece in pieces)
    for piece in pieces:
        ordered = [keys[row] for row in piece.order]
        assert piece.starts.tolist() == [at for at, key in enumerate(ordered) if not at or ordered[at - 1] != key]
        assert piece.ends.tolist() == [*piece.starts[1:].tolist(), len(ordered)]


def test_pieces_of_bytes() -> None:
    rows = sorted_rows(batch(list(range(100))), ["k"], Deduplicate())
    assert rows.rows.nbytes == 1300
    sizes = [len(piece.order) for piece in rows.pieces_of(130)]
    assert sizes == [10] * 10
    assert [len(piece.order) for piece in rows.pieces_of(0)] == [1] * 100
    empty = sorted_rows(batch([]), ["k"], Deduplicate())
    assert list(empty.pieces_of(100)) == []


@pytest.mark.parametrize(
    ("rows", "size", "expected"),
    [(100, 130, 10), (100, 142, 10), (100, 0, 1), (100, 10**9, PIECES.merged_piece_rows), (0, 100, 1)],
)
def test_rows_of_a_size(rows: int, size: int, expected: int) -> None:
    assert rows_of([batch(list(range(rows)))] * 2, size) == expected


def test_a_cursor_gives_its_run_once() -> None:
    cursor = RunCursor(iter([batch([]), batch([1, 3, 5, 7, 9]), batch([]), batch([11])]), ["k"])
    assert cursor.fill() and cursor.last_key == (9,)
    assert cursor.sample(1) == [(1,), (3,), (5,), (7,), (9,)] and cursor.sample(2) == [(3,), (7,)] and cursor.sample(6) == []
    assert cursor.take_up_to((0,)).num_rows == 0
    assert cursor.take_up_to((4,))["k"].to_pylist() == [1, 3]
    assert cursor.sample(2) == [(7,)]
    assert cursor.take_up_to((5,))["k"].to_pylist() == [5]
    assert cursor.fill() and cursor.last_key == (9,)
    assert [piece["k"].to_pylist() for piece in cursor.rest()] == [[7, 9], [], [11]]
    done = RunCursor(iter([batch([2])]), ["k"])
    assert done.fill() and done.take_up_to((2,)).num_rows == 1
    assert list(done.rest()) == [] and not done.fill()


def test_a_lone_run_passes_and_keys_that_repeat_do_not() -> None:
    twice = batch([1, 1, 2], [1, 0, 2])
    assert [made.to_pydict() for made in merge_sorted_runs([iter([twice])], ["k"], Deduplicate())] == [twice.to_pydict()]
    (merged,) = merge_sorted_runs([iter([twice])], ["k"], Deduplicate(), keys_repeat=True)
    assert merged[SEQUENCE_NUMBER].to_pylist() == [1, 2]
    assert list(merge_piece([twice], ["k"], Deduplicate())) == [twice]
    pieces = list(merge_piece([batch([1, 2]), batch([2, 3])], ["k"], KeepAllVersions(), batch_bytes=13))
    assert [piece["k"].to_pylist() for piece in pieces] == [[1], [2, 2], [3]]


def test_the_order_of_a_key_s_rows() -> None:
    rows = batch([1, 1, 1, 1], [5, 4, 4, 3], [0, 0, 3, 2])
    assert sorted_rows(rows, ["k"], KeepAllVersions()).order.tolist() == [3, 2, 1, 0]
    by_number = sorted_rows(batch([2, 1, 2, 1], [0, 1, 2, 3]), ["k"], KeepAllVersions())
    assert (by_number.order.tolist(), by_number.starts.tolist()) == ([1, 3, 0, 2], [0, 2])
    assert by_number.last_of_each_key.tolist() == [3, 2] and by_number.passes_unmerged.tolist() == [False, False]
    lone = sorted_rows(batch([7, 8]), ["k"], KeepAllVersions())
    assert lone.passes_unmerged.tolist() == [True, True]
    assert SortedRows(lone.rows, lone.order, lone.starts, merge_lone=True).passes_unmerged.tolist() == [False, False]


def test_histories_forget_what_a_set_replaced() -> None:
    """Three keys: one whose third operation replaces everything, one without operations, one that starts with a SET."""
    codes = np.array([ADD, REVERSED, SET, RETRACT, SKIP, SKIP, SET, ADD], np.int8)
    order, starts = np.array([7, 6, 5, 4, 3, 2, 1, 0]), np.array([0, 4, 6])
    history = column_history(order, starts, codes)
    assert history.rows.tolist() == [5, 4, 1, 0] and history.codes.tolist() == [SET, RETRACT, SET, ADD]
    assert history.starts.tolist() == [0, 2, 2, 4] and history.sizes.tolist() == [2, 0, 2]
    assert history.whole is not None and history.whole.rows.tolist() == [7, 6, 5, 4, 1, 0]
    assert history.whole.starts.tolist() == [0, 4, 4, 6]
    assert (history.keys, history.longest, history.has_retractions, history.has_reversed) == (3, 2, True, False)
    assert history.key_of_operation.tolist() == [0, 0, 2, 2] and history.only_set.tolist() == [False, False, False]
    only = history.only(history.codes == SET)
    assert only.rows.tolist() == [5, 1] and only.only_set.tolist() == [True, False, True]
    assert history.only(np.ones(4, bool)) is history
    twice = column_history(np.arange(5), np.array([0]), np.array([ADD, SET, RETRACT, SET, ADD], np.int8))
    assert twice.rows.tolist() == [3, 4] and twice.whole is not None and twice.whole.rows.tolist() == [0, 1, 2, 3, 4]
    assert column_history(np.arange(2), np.array([0]), np.array([SET, ADD], np.int8)).whole is None
    none = column_history(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8))
    assert (none.keys, none.longest) == (0, 0)


@pytest.mark.parametrize(
    ("least", "expected"), [(1, [4, 4, 4, 4, 4, 2]), (5, [8, 8, 6]), (8, [8, 8, 6]), (9, [12, 10]), (99, [22])]
)
def test_short_runs_are_put_together_until_they_are_worth_cutting(
    monkeypatch: pytest.MonkeyPatch, least: int, expected: list[int]
) -> None:
    monkeypatch.setattr(PIECES, "merged_run_rows", least)
    runs = [batch([number, 7, 10 + number, 99][-rows:]) for number, rows in enumerate([4, 4, 4, 4, 4, 2])]
    found = list(sort_merge._long_runs(runs, ["k"]))
    assert [run.num_rows for run in found] == expected
    for run in found:
        assert run["k"].to_pylist() == sorted(run["k"].to_pylist())
    assert sorted(k for run in found for k in run["k"].to_pylist()) == sorted(k for run in runs for k in run["k"].to_pylist())
