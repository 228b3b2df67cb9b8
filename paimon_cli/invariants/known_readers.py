"""What other engines are known to get wrong about Paimon tables, by version, with the report of each.

A reader is judged by the obstacles of a snapshot (`foreign_reads`): it may be right about one, refuse the table, or return wrong
rows without a word. What no report shows is taken to be right, as with engines that use Paimon's own Java reader.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from paimon_cli.errors import UsageError
from paimon_cli.invariants.foreign_reads import (
    FINE_WITH_A_SCHEMA,
    ONLY_FOR_ENGINES,
    ForeignReadReport,
    Obstacle,
    ReaderVerdict,
)

_MERGED = frozenset({Obstacle.OVERLAP, Obstacle.DELETES, Obstacle.INVISIBLE, Obstacle.WAITING})
_ALL = frozenset(value for name, value in vars(Obstacle).items() if name.isupper())
_UNREPORTED = frozenset({Obstacle.SHREDDED, Obstacle.EARLY_TIMES})
"""What no report tells of, so that it cannot be known how a reader takes it: what came with Paimon 2.0, and times in ORC files on
which Java's library ends with an error. Java's 1.4 raises an error for both."""


@dataclass(frozen=True)
class KnownReader:
    """A reader of Paimon tables: the obstacles that it reads `wrongly` or `refuses`, and those of which this is `unknown`.
    `report`: where that was described.
    """

    name: str
    versions: str
    wrongly: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()
    unknown: frozenset[str] = _UNREPORTED
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
        KnownReader(
            "DuckDB's read_parquet",
            "all",
            wrongly=_ALL,
            unknown=frozenset(),
            advice="it takes the files as they are; of a table with partitions, read them with hive_partitioning = false",
        ),
    ),
    "pypaimon": (
        KnownReader(
            "pypaimon",
            "2.1",
            refuses=frozenset({Obstacle.VECTORS_64}),
            advice="it reads vectors of 32 bits: set deletion-vectors.bitmap64 = false, and compact the whole table",
        ),
    ),
    "polars": (
        KnownReader(
            "Polars' scan_parquet",
            "all",
            wrongly=_ALL,
            unknown=frozenset(),
            advice="it takes the files as they are; the library of paimon-cli makes Polars frames of merged rows",
        ),
    ),
}
"""Engine -> its readers, as far as they are known."""


def judged(report: ForeignReadReport, engine: str | None) -> ForeignReadReport:
    """The report about the readers of an engine; with None, about a plain reader that takes the columns from the table. Raises
    `UsageError` for an engine that is not known.
    """
    if engine is None:
        left_out = FINE_WITH_A_SCHEMA | ONLY_FOR_ENGINES
        return replace(report, findings=[finding for finding in report.findings if finding.code not in left_out])
    if engine not in KNOWN_READERS:
        raise UsageError(f"nothing is known about '{engine}' as a reader", f"known: {', '.join(KNOWN_READERS)}")
    met = [finding.code for finding in report.findings]
    readers = tuple(_verdict(reader, met) for reader in KNOWN_READERS[engine])
    return replace(report, is_safe=all(reader.result in ("right", "refused") for reader in readers), readers=readers)


def _verdict(reader: KnownReader, met: Collection[str]) -> ReaderVerdict:
    """A reader that refuses a table returns nothing wrong, whatever else there is; what is wrong is, whatever is unknown."""
    for result, codes in (("refused", reader.refuses), ("wrong", reader.wrongly), ("unknown", reader.unknown)):
        if because := tuple(code for code in met if code in codes):
            return ReaderVerdict(reader.name, reader.versions, result, because, reader.report, reader.advice)
    return ReaderVerdict(reader.name, reader.versions, "right", (), reader.report, reader.advice)
