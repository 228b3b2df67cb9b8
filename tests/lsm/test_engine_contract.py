"""What each merge engine must keep: its rules in `options/merge_engines` are true, and its results can be merged again."""

from __future__ import annotations

import importlib
import pkgutil
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.lsm import engines
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sorted_rows import MergeEngine, SortedRows
from paimon_cli.metadata.data_file_schema import RowKind
from paimon_cli.options.merge_engines import MERGE_ENGINES, MergeRules
from tests.lsm.merge_lines import batch_of, table_schema
from tests.properties.shapes import SHAPES

COLUMNS = {"k": "INT NOT NULL", "v": "INT", "w": "STRING"}
SCHEMA: dict[str, Any] = {
    "fields": [{"id": number, "name": name, "type": text} for number, (name, text) in enumerate(COLUMNS.items())],
    "partitionKeys": [],
    "primaryKeys": ["k"],
}
OF_EACH = pytest.mark.parametrize("rules", MERGE_ENGINES.values(), ids=list(MERGE_ENGINES))


def engine_of(rules: MergeRules) -> MergeEngine:
    schema = table_schema({**SCHEMA, "options": {"merge-engine": rules.name}})
    return merge_engine(schema, schema.typed_options)


def versions(rules: MergeRules, seed: int) -> pa.RecordBatch:
    """Rows of one key, oldest first. No retractions where rows are combined: Java's result depends on what was merged before."""
    dice = random.Random(seed)
    kinds = (
        ["+I", "+U", "-D"] if engine_of(rules).refusal(RowKind.DELETE) is None and not rules.combines_versions else ["+I", "+U"]
    )
    rows = [
        {"seq": number, "kind": dice.choice(kinds), "row": [1, dice.choice([None, 1, 2, 3]), dice.choice([None, "a", "b"])]}
        for number in range(dice.randint(3, 7))
    ]
    return batch_of(table_schema({**SCHEMA, "options": {}}), rows)


def merged(rules: MergeRules, rows: pa.RecordBatch) -> pa.RecordBatch:
    return engine_of(rules).merge(SortedRows(rows, np.arange(rows.num_rows), np.zeros(1, np.int64), merge_lone=True))


@OF_EACH
@pytest.mark.parametrize("seed", range(20))
def test_results_can_be_merged_again(rules: MergeRules, seed: int) -> None:
    rows = versions(rules, seed)
    at_once = merged(rules, rows)
    for cut in range(1, rows.num_rows):
        older, newer = rows.slice(0, cut), rows.slice(cut)
        assert merged(rules, pa.concat_batches([merged(rules, older), newer])).equals(at_once)
        assert merged(rules, pa.concat_batches([older, merged(rules, newer)])).equals(at_once)


@OF_EACH
@pytest.mark.parametrize("seed", range(20))
def test_the_result_is_the_row_that_the_rules_name(rules: MergeRules, seed: int) -> None:
    rows = versions(rules, seed)
    result = merged(rules, rows).to_pylist()
    if rules.newest_wins:
        assert result == rows.to_pylist()[-1:]
    elif rules.oldest_wins:
        assert result == rows.to_pylist()[:1]
    else:
        assert rules.combines_versions and len(result) == 1


@OF_EACH
def test_an_engine_that_combines_rows_makes_one_that_no_file_holds(rules: MergeRules) -> None:
    """Otherwise compactions would look up, and reads would merge, for nothing."""
    found = False
    for seed in range(50):
        rows = versions(rules, seed).drop_columns(["_SEQUENCE_NUMBER", "_VALUE_KIND"])
        result = merged(rules, versions(rules, seed)).drop_columns(["_SEQUENCE_NUMBER", "_VALUE_KIND"])
        found |= result.to_pylist()[0] not in rows.to_pylist()
    assert found == rules.combines_versions


@OF_EACH
def test_missing_columns_stay_where_the_rules_say_so(rules: MergeRules) -> None:
    rows = [{"seq": 0, "kind": "+I", "row": [1, 7, "a"]}, {"seq": 1, "kind": "+I", "row": [1, 8, None]}]
    result = merged(rules, batch_of(table_schema({**SCHEMA, "options": {}}), rows))
    if rules.missing_columns_stay:
        assert result.column("w").to_pylist() == ["a"]


def test_each_engine_has_its_module_and_its_tables_to_try() -> None:
    modules = {module.name for module in pkgutil.iter_modules(engines.__path__)}
    assert modules == {name.replace("-", "_") for name in MERGE_ENGINES} and SHAPES.keys() == MERGE_ENGINES.keys()
    for name in modules:
        assert callable(importlib.import_module(f"{engines.__name__}.{name}").engine)


def test_no_property_of_an_engine_has_a_default() -> None:
    with pytest.raises(TypeError, match="missing 3 required positional arguments"):
        MergeRules("last-row")  # type: ignore[call-arg]
