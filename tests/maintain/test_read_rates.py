"""Counts of reads: what is believed of them, what is refused, and the recipe that makes them from an access log."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import numpy as np
import pytest

from paimon_cli.errors import UsageError
from paimon_cli.maintain.read_rates import MAX_READS_LINES, ReadCounts

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def test_counts_of_partitions_and_whole_tables_add_up() -> None:
    lines = (
        b'{"table": "s.a", "partition": "p=1/", "reads": 5}\n\n{"table": "s.a", "partition": "p=1", "reads": 2}\n'
        b'{"table": "s.a", "reads": 90}\n{"table": "s.b", "partition": null, "reads": 0}\n'
    )
    counts = ReadCounts.read(lines, "reads.ndjson")
    assert counts.counts == {("s.a", "p=1"): 7, ("s.a", ""): 90, ("s.b", ""): 0}
    read, other, never = (counts.proportion(*of) for of in (("s.a", "p=1"), ("s.a", "p=2"), ("s.c", "")))
    assert read > other > 1 > never > 0


def test_nothing_known_is_the_mean() -> None:
    assert ReadCounts().proportion("s.a", "") == 1.0


def test_shrunk_counts_are_nearer_to_the_truth_than_counts() -> None:
    """Rates that hardly differ, of which few reads were counted: what chance made of them is not believed."""
    source = np.random.default_rng(7)
    for spread, part in ((0.1, 0.1), (0.5, 0.7), (1.0, 1.0)):
        rates = source.lognormal(1.0, spread, 300)
        sample = source.poisson(rates).astype(float)
        counts = ReadCounts({(f"s.t{number}", ""): count for number, count in enumerate(sample.tolist())})
        believed = np.array([counts.proportion(f"s.t{number}", "") for number in range(300)])
        truth = rates / rates.mean()
        assert ((believed - truth) ** 2).sum() < part * ((sample / sample.mean() - truth) ** 2).sum()


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{",
        b'{"table": "s.a"}',
        b'{"table": "a", "reads": 1}',
        b'{"table": "s.a", "reads": -1}',
        b'{"table": "s.a", "reads": true}',
        b'{"table": "s.a", "reads": NaN}',
        b'{"table": "s.a", "reads": 1e300}',
        b'{"table": "s.a", "reads": 1, "more": 2}',
        b'{"table": "s.' + b"x" * 3000 + b'", "reads": 1}',
        b'{"table": 5, "reads": 1}',
        b"\xff",
        b"[" * 100_000,
    ],
    ids=range(13),
)
def test_what_is_no_count(line: bytes) -> None:
    found = ReadCounts.read(b'{"table": "s.a", "reads": 1}\n' + line + b'\n{"table": "s.b", "reads": 4}\n', "reads.ndjson")
    assert found.counts == {("s.a", ""): 1, ("s.b", ""): 4}, "the others count"
    (complaint,) = found.complaints
    assert complaint.startswith("reads.ndjson: line 2 is no count of reads, and left out")


def test_complaints_are_bounded() -> None:
    found = ReadCounts.read(b"x\n" * 100 + b'{"table": "s.a", "reads": 1}', "reads.ndjson")
    assert found.counts == {("s.a", ""): 1}
    assert "lines 1, 2, 3, 4, 5 and 95 more are no counts of reads" in found.complaints[0]
    assert len(ReadCounts.together([found] * 100).complaints) <= 20


@pytest.mark.parametrize(("end", "is_named"), [(b"", False), (b"\n", True)])
def test_a_last_line_without_an_end_is_being_written(end: bytes, is_named: bool) -> None:
    found = ReadCounts.read(b'{"table": "s.a", "reads": 1}\n{"table": "s.b", "rea' + end, "reads.ndjson")
    assert found.counts == {("s.a", ""): 1} and bool(found.complaints) == is_named
    assert ReadCounts.read(b'{"table": "s.b", "reads": "many"}', "reads.ndjson").complaints, "that is whole, and wrong"


@pytest.mark.parametrize("last", [b"garbage", b"\xff\x00\xfe", b"x" * 100_000, b'{"table": s.b}'])
def test_a_last_line_without_an_end_that_begins_no_count_is_named(last: bytes) -> None:
    assert ReadCounts.read(last, "reads.ndjson").complaints
    found = ReadCounts.read(b'{"table": "s.a", "reads": 1}\n' + last, "reads.ndjson")
    assert found.counts == {("s.a", ""): 1} and "line 2 is no count" in found.complaints[0]


def test_a_file_has_bounds() -> None:
    with pytest.raises(UsageError, match="too many lines"):
        ReadCounts.read(b'{"table":"s.a","reads":1}\n' * (MAX_READS_LINES + 1), "reads.ndjson")


def test_the_recipe_counts_the_reads_of_data_files(tmp_path: Path) -> None:
    (sql,) = re.findall(r"```sql\n(COPY \(.*?;)\n```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "logs").mkdir()
    line = 'b2be bucket [29/Nov/2026:00:00:38 +0000] 192.0.2.3 3E57 {} {} "GET /x HTTP/1.1" 200 "S3, x" -\n'
    day = "wh/shop.db/orders/dt%253D2026-11-29/bucket-0/data-1.parquet"
    asked = [("REST.GET.OBJECT", day)] * 3 + [
        ("REST.GET.OBJECT", "wh/shop.db/items/bucket-1/data-2.parquet"),
        ("REST.PUT.OBJECT", "wh/shop.db/items/bucket-1/data-2.parquet"),
        ("REST.GET.OBJECT", "wh/shop.db/items/manifest/manifest-1"),
    ]
    (tmp_path / "logs/2026-11-29").write_text("".join(line.format(*each) for each in asked))
    duckdb.sql(sql.replace("logs/*", f"{tmp_path}/logs/*").replace("'reads.ndjson'", f"'{tmp_path}/reads.ndjson'"))
    counts = ReadCounts.read((tmp_path / "reads.ndjson").read_bytes(), "reads.ndjson")
    assert counts.counts == {("shop.orders", "dt=2026-11-29"): 3, ("shop.items", ""): 1}
