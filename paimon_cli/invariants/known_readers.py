"""What other engines are known to get wrong about Paimon tables, by version, with the report of each.

A reader is judged by the obstacles of a snapshot (`foreign_reads`): it may be right about one, refuse the table, or return wrong
rows without a word. What no report shows is taken to be right, as with engines that use Paimon's own Java reader.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from paimon_cli.errors import UsageError
from paimon_cli.invariants.foreign_reads import ForeignReadReport, Obstacle, ReaderVerdict

_MERGED = frozenset({Obstacle.OVERLAP, Obstacle.DELETES, Obstacle.INVISIBLE, Obstacle.WAITING})
_ALL = frozenset(value for name, value in vars(Obstacle).items() if name.isupper())


@dataclass(frozen=True)
class KnownReader:
    """A reader of Paimon tables: the obstacles that it reads `wrongly` or `refuses`. `report`: where that was described."""

    name: str
    versions: str
    wrongly: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()
    report: str = ""
    advice: str = ""


KNOWN_READERS: dict[str, tuple[KnownReader, ...]] = {
    "clickhouse": (
        KnownReader(
            "ClickHouse",
            "up to 26.7",
            wrongly=_MERGED | {Obstacle.VECTORS, Obstacle.COMBINED},
            report="https://github.com/ClickHouse/ClickHouse/issues/113360",
            advice="it reads tables as the union of all files",
        ),
        KnownReader(
            "ClickHouse",
            "with the change of 113460",
            wrongly=frozenset({Obstacle.VECTORS, Obstacle.COMBINED}),
            refuses=_MERGED,
            report="https://github.com/ClickHouse/ClickHouse/pull/113460",
            advice="it refuses tables with a primary key unless paimon_allow_unmerged_primary_key_reads is set",
        ),
    ),
    "starrocks": (
        KnownReader(
            "StarRocks",
            "before 3.2.9 and 3.3.1",
            wrongly=frozenset({Obstacle.VECTORS}),
            report="https://github.com/StarRocks/starrocks/issues/45866",
            advice="it does not know deletion vectors",
        ),
        KnownReader("StarRocks", "3.2.9, 3.3.1, 3.4 and later"),
    ),
    "trino": (KnownReader("paimon-trino", "all", advice="it reads through Paimon's Java library; no wrong result is reported"),),
    "duckdb": (
        KnownReader(
            "duckdb-paimon",
            "0.1.1",
            wrongly=_MERGED,
            report="https://github.com/polardb/duckdb-paimon/issues/95",
            advice="it returns old versions of keys that are also in level 0; `sql` of paimon-cli queries the table with DuckDB",
        ),
        KnownReader("DuckDB's read_parquet", "all", wrongly=_ALL, advice="it takes the files as they are"),
    ),
    "polars": (
        KnownReader(
            "Polars' scan_parquet",
            "all",
            wrongly=_ALL,
            advice="it takes the files as they are; the library of paimon-cli makes Polars frames of merged rows",
        ),
    ),
}
"""Engine -> its readers, as far as they are known."""


def judged(report: ForeignReadReport, engine: str) -> ForeignReadReport:
    """The report about the readers of an engine. Raises `UsageError` for an engine that is not known."""
    if engine not in KNOWN_READERS:
        raise UsageError(f"nothing is known about '{engine}' as a reader", f"known: {', '.join(KNOWN_READERS)}")
    met = [finding.code for finding in report.findings]
    readers = tuple(_verdict(reader, met) for reader in KNOWN_READERS[engine])
    return replace(report, is_safe=all(reader.result != "wrong" for reader in readers), readers=readers)


def _verdict(reader: KnownReader, met: Collection[str]) -> ReaderVerdict:
    refused, wrong = ([code for code in met if code in codes] for codes in (reader.refuses, reader.wrongly))
    result, because = ("refused", refused) if refused else ("wrong", wrong) if wrong else ("right", [])
    return ReaderVerdict(reader.name, reader.versions, result, tuple(because), reader.report, reader.advice)
