"""Merges in passes give what one pass gives, whatever the engine, and leave no file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_cli.bucket.spilled_runs import OpenRun, SpillDirectory, merge_in_passes
from paimon_cli.lsm.engines.deduplicate import Deduplicate
from paimon_cli.lsm.sorted_rows import KeepAllVersions, MergeEngine

Rows = list[tuple[int, int, int]]
"""Key, sequence number, kind."""

SCHEMA = pa.schema(
    [
        pa.field("_SEQUENCE_NUMBER", pa.int64(), nullable=False),
        pa.field("_VALUE_KIND", pa.int8(), nullable=False),
        pa.field("k", pa.int32(), nullable=False),
        pa.field("run", pa.int32(), nullable=False),
    ]
)


def run_of(rows: Rows, batch_rows: int, run: int = 0) -> OpenRun:
    """Cut between keys, about every `batch_rows` rows. `run`: what tells its rows from equal ones of other runs."""

    def read() -> Iterator[pa.RecordBatch]:
        start = 0
        while start < len(rows):
            end = min(start + batch_rows, len(rows))
            while end < len(rows) and rows[end][0] == rows[end - 1][0]:
                end += 1
            keys, numbers, kinds = zip(*rows[start:end], strict=True)
            columns = [pa.array(numbers, pa.int64()), pa.array(kinds, pa.int8()), pa.array(keys, pa.int32())]
            columns.append(pa.array([run] * len(keys), pa.int32()))
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
            start = end

    return read


def merged(runs: list[OpenRun], engine: MergeEngine, most: int, keys_repeat: bool) -> list[dict[str, int]]:
    batches = list(merge_in_passes(runs, ["k"], engine, most, keys_repeat=keys_repeat))
    return pa.Table.from_batches(batches, SCHEMA).to_pylist() if batches else []


runs_of_keys = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0, 0, 0, 3])), max_size=12), min_size=1, max_size=9
)


@settings(max_examples=150)
@given(runs_of_keys, st.integers(2, 4), st.integers(1, 5), st.booleans(), st.booleans())
def test_passes_change_nothing(
    given_runs: list[list[tuple[int, int]]], most: int, batch_rows: int, repeat: bool, drops_nothing: bool
) -> None:
    """Numbers rise from run to run but for a tie between neighbours, which the later run wins."""
    runs: list[OpenRun] = []
    for age, rows in enumerate(given_runs):
        kept = rows if repeat else list(dict(rows).items())
        numbered = sorted((key, age + place % 2, kind) for place, (key, kind) in enumerate(kept))
        runs.append(run_of(numbered, batch_rows, age))
    engine: MergeEngine = KeepAllVersions() if drops_nothing else Deduplicate()
    in_one = merged(runs, engine, len(runs) + 1, repeat)
    assert merged(runs, engine, most, repeat) == in_one


@pytest.mark.parametrize("most", [2, 3, 4, 5])
def test_runs_stay_in_order_in_each_pass(most: int) -> None:
    for count in range(1, 14):
        runs = [run_of([(key, 7, 0) for key in range(3)], 2, run) for run in range(count)]
        assert [row["run"] for row in merged(runs, KeepAllVersions(), most, False)] == [*range(count)] * 3


def test_nothing_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runs = [run_of([(key, age, 0) for key in range(50)], 7) for age in range(9)]
    assert [row["_SEQUENCE_NUMBER"] for row in merged(runs, Deduplicate(), 2, False)] == [8] * 50
    abandoned = merge_in_passes(runs, ["k"], Deduplicate(), 2)
    next(abandoned)
    assert list(tmp_path.iterdir())
    abandoned.close()  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())


def test_a_spill_directory_counts_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with SpillDirectory() as spill:
        assert spill.size == 0 and not list(tmp_path.iterdir())
        run = spill.write(run_of([(1, 1, 0)], 1)(), SCHEMA)
        assert spill.size == run.path.stat().st_size > 0
        spill.remove(run)
        assert spill.size == 0
    assert not list(tmp_path.iterdir())


def test_spilled_runs_are_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with SpillDirectory() as spill:
        run = spill.write(run_of([(7, 7, 0)] * 20_000, 20_000)(), SCHEMA)
        (batch,) = run.read()
        assert batch.num_rows == 20_000 and run.size < batch.nbytes / 10
