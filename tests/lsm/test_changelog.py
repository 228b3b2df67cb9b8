"""The rows of changelogs against the answers of Paimon's own classes, and key by key against plain rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.bucket.key_lookup import FoundRows
from paimon_cli.compact.lookup_merge import LookupMerge
from paimon_cli.errors import PaimonError
from paimon_cli.lsm.changelog import NO_ROW, ChangedKeys, FullCompactionChanges, InputChanges, inserts, merged_row_numbers
from paimon_cli.lsm.engines.deduplicate import Deduplicate
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.lsm.sorted_rows import LEVEL_COLUMN, SortedRows
from paimon_cli.metadata.table_mode import TableMode
from paimon_cli.options.table_options import TableOptions
from tests.lsm.merge_lines import batch_of, engine_of, records_of, table_schema
from tests.lsm.test_merge_vectors import not_ours
from tests.vectors import load

Line = dict[str, Any]
SCHEMA = table_schema(
    {
        "fields": [{"id": 0, "name": "k", "type": "INT NOT NULL"}, {"id": 1, "name": "v", "type": "STRING"}],
        "partitionKeys": [],
        "primaryKeys": ["k"],
        "options": {"bucket": "1"},
    }
)


def record(key: int, value: str | None, seq: int = 0, kind: str = "+I") -> Line:
    return {"seq": seq, "kind": kind, "row": [key, value]}


def with_levels(batch: pa.RecordBatch, levels: Sequence[int]) -> pa.RecordBatch:
    return batch.append_column(LEVEL_COLUMN, pa.array(levels, pa.int32()))


def changes_of(line: Line) -> ChangedKeys:
    schema = table_schema(line["in"]["schema"])
    return ChangedKeys.of(
        schema, TableOptions({"changelog-producer.row-deduplicate": str(line["in"]["row_deduplicate"]).lower()})
    )


def full_compaction(line: Line) -> Line | str:
    """The merged record and the changelog of one key, in feeding order."""
    schema, records = table_schema(line["in"]["schema"]), line["in"]["records"]
    batches: list[pa.RecordBatch] = []
    engine = FullCompactionChanges(engine_of(schema), batches.append, ["k"], line["in"]["max_level"], changes_of(line))
    batch = with_levels(batch_of(schema, records), [r["level"] for r in records])
    try:
        merged = engine.merge(SortedRows(batch, np.arange(len(records)), np.zeros(1, dtype=np.int64)))
    except PaimonError:
        return "error"
    kept = [r for r in records_of(schema, merged) if r["kind"] in ("+I", "+U")]
    changelog = [r for rows in batches for r in records_of(schema, rows)]
    return {"result": kept[0] if kept else None, "changelog": changelog}


@dataclass(frozen=True)
class Remembered(LookupMerge):
    """A lookup that finds one record, or none, whatever the key."""

    found: Line | None = None

    @property
    def _above(self) -> Any:
        return () if self.found is None else ("one",)

    def _found(self, keys: pa.RecordBatch) -> FoundRows:
        return FoundRows(np.zeros(keys.num_rows, np.int32), np.zeros(keys.num_rows, np.int64))

    def _with_old_rows(self, rows: SortedRows, found: FoundRows) -> SortedRows:
        assert self.found is not None
        if not len(found.file):
            return rows
        old = with_levels(batch_of(self.context.schema, [self.found]), [self.found["level"]])
        return sorted_rows(pa.concat_batches([old, rows.rows.take(pa.array(rows.order))]), ["k"], self._engine)


def lookup(line: Line) -> Line | str:
    """The merged record and the changelog of one key, from records in feeding order and the result of a lookup."""
    schema, records = table_schema(line["in"]["schema"]), line["in"]["records"]
    options = {**schema.options, "changelog-producer.row-deduplicate": str(line["in"]["row_deduplicate"]).lower()}
    context: Any = SimpleNamespace(schema=schema, options=TableOptions(options), mode=TableMode.of(schema, TableOptions(options)))
    batches: list[pa.RecordBatch] = []
    merge = Remembered(context, cast("Any", None), (), None, batches.append, found=line["in"]["lookup"])
    chunk = with_levels(batch_of(schema, records), [r["level"] for r in records])
    try:
        merged = [r for batch in merge._resolved(chunk) for r in records_of(schema, batch)]
    except PaimonError:
        return "error"
    return {"result": merged[0] if merged else None, "changelog": [r for rows in batches for r in records_of(schema, rows)]}


def expected(line: Line) -> Line | str:
    return "error" if "error" in line["out"] else line["out"]


@pytest.mark.parametrize(("name", "count"), [("changelog", 63), ("changelog_head", 19)])
def test_full_compaction_as_paimon_does_it(name: str, count: int) -> None:
    lines = [line for line in load(name) if line["in"]["changelog-producer"] == "full-compaction"]
    if name == "changelog":
        lines = [li for li in lines if not_ours(li["in"]["schema"]["options"], li["in"]["schema"], li["in"]["records"]) is None]
    wrong = [line for line in lines if json.dumps(full_compaction(line)) != json.dumps(expected(line))]
    assert (len(lines), wrong) == (count, [])


def test_each_key_is_reported_once_in_key_order() -> None:
    before = batch_of(SCHEMA, [record(1, "a", 5), record(2, "b", 6), record(3, "c", 7), record(4, "d", 8, "-D")])
    after = batch_of(SCHEMA, [record(1, "A", 15), record(3, "c", 17), record(4, "D", 18, "+U"), record(5, "e", 19, "-D")])
    before_at, after_at = np.array([0, 1, 2, 3, NO_ROW]), np.array([0, NO_ROW, 1, 2, 3])
    batches = records_of(SCHEMA, ChangedKeys().rows(before, before_at, after, after_at))
    assert batches == [
        record(1, "a", 5, "-U"),
        record(1, "A", 15, "+U"),
        record(2, "b", 6, "-D"),
        record(3, "c", 7, "-U"),
        record(3, "c", 17, "+U"),
        record(4, "D", 18),
    ]
    without_equal = records_of(SCHEMA, ChangedKeys(("k", "v")).rows(before, before_at, after, after_at))
    assert without_equal == [row for row in batches if row["row"][0] != 3]
    assert records_of(SCHEMA, ChangedKeys(("k",)).rows(before, before_at, after, after_at)) == [batches[2], batches[5]]
    nothing = np.array([], dtype=np.int64)
    assert ChangedKeys(("v",)).rows(before.slice(0, 0), nothing, after.slice(0, 0), nothing).num_rows == 0


def test_the_options_decide_which_columns_are_compared() -> None:
    key, ignored = "changelog-producer.row-deduplicate", "changelog-producer.row-deduplicate-ignore-fields"
    assert ChangedKeys.of(SCHEMA, TableOptions({})) == ChangedKeys.of(SCHEMA, TableOptions({ignored: "v"})) == ChangedKeys(())
    assert ChangedKeys.of(SCHEMA, TableOptions({key: "true"})) == ChangedKeys(("k", "v"))
    assert ChangedKeys.of(SCHEMA, TableOptions({key: "true", ignored: "v"})) == ChangedKeys(("k",))


def test_keys_of_which_the_engine_leaves_nothing() -> None:
    engine = Deduplicate(ignore_delete=True)
    records = [record(1, "a"), record(2, None, 1, "-D"), record(2, None, 2, "-D"), record(3, "c", 3), record(3, "d", 4)]
    rows = sorted_rows(batch_of(SCHEMA, records), ["k"], engine)
    merged = engine.merge(rows)
    assert merged_row_numbers(rows, merged, ["k"]).tolist() == [0, NO_ROW, 1]
    batches: list[pa.RecordBatch] = []
    levels = FullCompactionChanges(engine, batches.append, ["k"], 5, ChangedKeys())
    again = sorted_rows(with_levels(batch_of(SCHEMA, records), [5, 5, 0, 5, 0]), ["k"], engine)
    assert records_of(SCHEMA, levels.merge(again)) == [record(1, "a"), record(3, "d", 4)]
    changes = [r for batch in batches for r in records_of(SCHEMA, batch)]
    assert changes == [record(3, "c", 3, "-U"), record(3, "d", 4, "+U")]


def test_the_whole_input_is_reported_in_order() -> None:
    batches: list[pa.RecordBatch] = []
    engine = InputChanges(Deduplicate(), batches.append)
    records = [record(2, "b", 1), record(1, "a", 2), record(2, None, 3, "-D"), record(1, "z", 0, "+U")]
    merged = engine.merge(sorted_rows(batch_of(SCHEMA, records), ["k"], engine))
    assert records_of(SCHEMA, merged) == [record(1, "a", 2), record(2, None, 3, "-D")]
    assert [r for batch in batches for r in records_of(SCHEMA, batch)] == [records[3], records[1], records[0], records[2]]


def test_the_whole_input_is_reported_in_the_order_of_the_sequence_field() -> None:
    batches: list[pa.RecordBatch] = []
    engine = InputChanges(Deduplicate(("v",)), batches.append)
    records = [record(1, "z", 0), record(1, "a", 1), record(1, "a", 2, "-D")]
    assert records_of(SCHEMA, engine.merge(sorted_rows(batch_of(SCHEMA, records), ["k"], engine))) == [records[0]]
    assert [r for batch in batches for r in records_of(SCHEMA, batch)] == [records[1], records[2], records[0]]


def test_rows_of_new_keys_are_inserted() -> None:
    rows = batch_of(SCHEMA, [record(1, "a", 1, "+U"), record(2, "b", 2, "-D"), record(3, "c", 3, "-U"), record(4, "d", 4)])
    assert records_of(SCHEMA, inserts(rows)) == [record(1, "a", 1), record(4, "d", 4)]


@pytest.mark.parametrize(("name", "count"), [("changelog", 93), ("changelog_head", 45)])
def test_lookup_as_paimon_does_it(name: str, count: int) -> None:
    lines = [line for line in load(name) if line["in"]["changelog-producer"] == "lookup"]
    if name == "changelog":
        lines = [li for li in lines if not_ours(li["in"]["schema"]["options"], li["in"]["schema"], li["in"]["records"]) is None]
        lines = [line for line in lines if not (_fails_in_java(line) or _shadows_a_newer_row(line))]
    wrong = [line for line in lines if json.dumps(lookup(line)) != json.dumps(expected(line))]
    assert (len(lines), wrong) == (count, [])


def _fails_in_java(line: Line) -> bool:
    """If ignored retractions leave nothing, Java raises a NullPointerException."""
    return "NullPointer" in line["out"].get("error", "")


def _shadows_a_newer_row(line: Line) -> bool:
    """0.9 uses the last row above level 0 in merge order, main that of the lowest level."""
    old = [record["level"] for record in line["in"]["records"] if record["level"] > 0]
    return line["in"]["schema"]["options"]["merge-engine"] != "first-row" and old != sorted(old, reverse=True)
