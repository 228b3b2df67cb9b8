"""Tables with `pk-clustering-override`: files above level 0 are sorted by other columns than the key, and so are their bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.anomalies import UNTOLD
from paimon_cli.invariants.check import INVARIANTS
from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
from tests.invariants.damaged_tables import Bench
from tests.tables import make_table


def rows(keys: list[int], value: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32()), "c": [f"{value}{k % 3}" for k in keys], "v": [value] * len(keys)})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two files above level 0 with a deletion vector, whose bounds are those of the column c, as Java's are; a row waits."""
    columns = {"k": "INT NOT NULL", "c": "STRING", "v": "STRING"}
    made = Table.open(make_table(tmp_path / "t", columns, ["k"], (), 1, {"deletion-vectors.enabled": "true"}).url)
    made.write(rows([1, 2, 3, 4, 5], "a"))
    made.write(rows([2, 9], "b"))
    Table.open(made.url, {"write-only": "true"}).write(rows([7], "z"))
    bench = Bench(tmp_path / "t")
    for entry in bench.live():
        if entry.file.level:
            low, high = (serialize_row([text], [parse_type("STRING")]) for text in ("a0", "b2"))
            bench.lie(entry, min_key=low, max_key=high)
    schema = tmp_path / "t/schema/schema-0"
    content = json.loads(schema.read_text())
    content["options"] |= {"pk-clustering-override": "true", "clustering.columns": "c"}
    schema.write_text(json.dumps(content))
    return Table.open(made.url, runtime=Runtime(engine="local"))


@pytest.mark.parametrize(
    ("where", "keys"),
    [(None, [1, 2, 3, 4, 5, 9]), ("k = 3", [3]), ("k > 4", [5, 9]), ("c = 'b2'", [2]), ("v = 'z'", [])],
)
def test_rows_are_read(table: Table, where: str | None, keys: list[int]) -> None:
    found = table.scan(where=where).to_arrow().to_pydict()
    assert sorted(found["k"]) == keys
    assert dict(zip(found["k"], found["v"], strict=True)).get(2, "b") == "b"


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.write(rows([1], "x")),
        lambda table: table.compact(strategy="full"),
        lambda table: table.delete("k = 1"),
    ],
    ids=["write", "compact", "delete"],
)
def test_what_needs_the_order_of_keys_is_not_supported(table: Table, call: Callable[[Table], object]) -> None:
    with pytest.raises(NotSupported, match="pk-clustering-override"):
        call(table)


def test_verify_checks_what_does_not_depend_on_the_order_of_keys(table: Table, tmp_path: Path) -> None:
    """And says what it did not check."""
    sound = table.verify(level="full")
    assert {violation.code for violation in sound.violations} == {"PV010"}, "the bounds that were changed for this test"
    assert {"PV020", "PV021", "PV030", "PV032"} <= set(sound.not_checked) < {invariant.code for invariant in INVARIANTS}
    assert {"clustering.columns" in why for why in sound.not_checked.values()} == {True}
    assert set(table.verify(level="meta").not_checked) == {"PV020", "PV021", "PV023"}
    bench = Bench(tmp_path / "t")
    bench.lie(next(entry for entry in bench.live() if entry.file.level), row_count=77)
    assert {violation.code for violation in table.verify(level="full").violations} >= {"PV031"}


def test_rows_of_a_key_are_not_told_apart_without_deletion_vectors(tmp_path: Path) -> None:
    options = {"pk-clustering-override": "true", "clustering.columns": "c"}
    made = make_table(tmp_path / "t", {"k": "INT NOT NULL", "c": "STRING", "v": "STRING"}, ["k"], (), 1)
    Table.open(made.url).write(rows([1, 2], "a"))
    bench = Bench(tmp_path / "t")
    bench.lie(bench.live()[0], level=4)
    Table.open(made.url, {"write-only": "true"}).write(rows([2], "b"))
    bench.lie(next(entry for entry in bench.live() if entry.file.level == 0), level=5)
    with pytest.raises(NotSupported, match="without deletion vectors"):
        plan_rows(TableContext.open(made.url).with_options(options), ReadRequest())


def test_rows_that_wait_are_not_merged(table: Table) -> None:
    with pytest.raises(NotSupported, match="merge-on-read"):
        Table.open(table.url, {"deletion-vectors.merge-on-read": "true"}).scan().to_arrow()


def test_keys_with_row_ids_are_not_merged(tmp_path: Path) -> None:
    """As pypaimon 2.1 writes them: sequence numbers in the manifest are those of snapshots, which the rows do not have."""
    made = make_table(tmp_path / "t", {"k": "INT NOT NULL", "c": "STRING", "v": "STRING"}, ["k"], (), 1, {"write-only": "true"})
    table = Table.open(made.url)
    table.write(rows([1, 2], "a"))
    table.write(rows([2, 3], "b"))
    bench = Bench(tmp_path / "t")
    for number, entry in enumerate(bench.live(), 1):
        bench.lie(entry, min_sequence_number=number, max_sequence_number=number)
    schema = tmp_path / "t/schema/schema-0"
    content = json.loads(schema.read_text())
    schema.write_text(json.dumps(content | {"options": content["options"] | {"row-tracking.enabled": "true"}}))
    table = Table.open(made.url)
    with pytest.raises(NotSupported, match=r"row-tracking\.enabled and a primary key"):
        table.scan().to_arrow()
    found = table.verify(level="full")
    assert not found.violations and set(found.not_checked) == {"PV032"}


@pytest.mark.parametrize("level", ["meta", "rows"])
def test_the_history_is_checked_as_far_as_it_does_not_depend_on_the_order_of_keys(
    table: Table, level: Literal["meta", "rows"]
) -> None:
    found = table.history_check(level=level)
    assert [each.rule for each in found if each.certainty == "proven"] == ["snapshot-overwritten"], "the bounds that were changed"
    assert {each.certainty for each in found} == {"proven", UNTOLD}
