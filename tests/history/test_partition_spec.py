"""Partitions as a user types them, for all types of partition columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.partition_spec import PartitionSpec
from tests.tables import make_table, write

TYPED: dict[str, tuple[list[str], list[object]]] = {
    "TINYINT NOT NULL": (["1", "-2"], [1, -2]),
    "SMALLINT NOT NULL": (["300", "-2"], [300, -2]),
    "INT NOT NULL": (["70000", "-2"], [70000, -2]),
    "BIGINT NOT NULL": (["5000000000", "-2"], [5_000_000_000, -2]),
    "BOOLEAN NOT NULL": (["true", "FALSE"], [True, False]),
    "STRING NOT NULL": (["a b", "7"], ["a b", "7"]),
    "DATE NOT NULL": (["2024-01-05", "1969-12-31"], ["2024-01-05", "1969-12-31"]),
    "DECIMAL(5, 2) NOT NULL": (["1.50", "-0.01"], ["1.50", "-0.01"]),
}


@pytest.mark.parametrize("kind", TYPED)
def test_each_type(tmp_path: Path, kind: str) -> None:
    typed, values = TYPED[kind]
    context = make_table(tmp_path / "t", {"p": kind, "k": "INT NOT NULL"}, ["p", "k"], ["p"])
    write(context, [{"p": value, "k": 1} for value in values])
    known = {partition for partition, _ in bucket_files(context, context.snapshots.latest())}
    chosen = [{p for p in known if PartitionSpec.parse(context, {"p": text}).matches(p)} for text in typed]
    assert [len(some) for some in chosen] == [1, 1] and chosen[0] | chosen[1] == known and len(known) == 2
    both = PartitionSpec.parse_any(context, [{"p": text} for text in typed])
    assert all(map(both.matches, known)) and all(map(PartitionSpec.everything().matches, known))
    assert {p for p in known if PartitionSpec.exactly(context, chosen[0]).matches(p)} == chosen[0]


def test_all_keys_that_are_named_must_fit(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "INT", "q": "STRING", "k": "INT NOT NULL"}, ["p", "q", "k"], ["p", "q"])
    write(context, [{"p": p, "q": q, "k": 1} for p in (1, 2) for q in ("a", "b")])
    known = {partition for partition, _ in bucket_files(context, context.snapshots.latest())}

    def found(**typed: str) -> set[tuple[Any, ...]]:
        spec = PartitionSpec.parse(context, typed)
        return {tuple(map(str, context.partition_values(p))) for p in known if spec.matches(p)}

    assert found() == {("1", "a"), ("1", "b"), ("2", "a"), ("2", "b")}
    assert found(p="1") == {("1", "a"), ("1", "b")} and found(q="b") == {("1", "b"), ("2", "b")}
    assert found(q="a", p="2") == {("2", "a")} and found(p="3") == set()
    for typed in ({"k": "1"}, {"p": "1", "k": "1"}, {"p": "one"}, {"p": "1.5"}):
        with pytest.raises(UsageError):
            PartitionSpec.parse(context, typed)
    assert found(q="__DEFAULT_PARTITION__") == set()


def test_a_table_without_partitions(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    with pytest.raises(UsageError, match="not a partition key"):
        PartitionSpec.parse(context, {"k": "1"})


@pytest.mark.parametrize(
    ("kind", "text"), [("BOOLEAN NOT NULL", "yes"), ("DATE NOT NULL", "today"), ("DECIMAL(3, 1) NOT NULL", "x")]
)
def test_texts_that_are_not_values_of_the_column(tmp_path: Path, kind: str, text: str) -> None:
    context = make_table(tmp_path / "t", {"p": kind, "k": "INT NOT NULL"}, ["p", "k"], ["p"])
    with pytest.raises(UsageError, match=f"p={text}: the value is not of type"):
        PartitionSpec.parse(context, {"p": text})
