"""What each kind of file index must keep: it finds all values that were added, in parts, after a merge and from its bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.file_index import FileIndex, IndexKind
from paimon_cli.bucket.file_indexes import INDEX_KINDS, FileIndexes
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import NotSupported
from paimon_cli.history.live_files import bucket_files
from paimon_cli.invariants.check import check_table
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES
from tests.tables import compact, make_table, rows, write

VALUES: dict[str, list[Any]] = {
    "INT": [-7, None, 1, 2, 3, 2**31 - 1],
    "BIGINT": [-(2**63), 0, None, 2**63 - 1],
    "STRING": ["", "a", None, "ab", "x" * 70, "ä"],
    "DOUBLE": [-1.5, 0.25, None, 1e300],
    "BOOLEAN": [True, False],
}


def takes(kind: IndexKind, sql: str) -> bool:
    try:
        kind.check(DataField(0, "c", parse_sql_type(sql)))
    except NotSupported:
        return False
    return True


TAKEN = [(kind, sql) for kind in INDEX_KINDS for sql in VALUES if takes(kind, sql)]
OF_EACH = pytest.mark.parametrize(("kind", "sql"), TAKEN, ids=[f"{kind.name}-{sql}" for kind, sql in TAKEN])


def index_of(kind: IndexKind, sql: str, *parts: list[Any]) -> FileIndex:
    field = DataField(0, "c", parse_sql_type(sql))
    index = kind.empty(field, TableOptions({}))
    for part in parts:
        index.add(values_to_arrow(part, field.type))
    return index


@OF_EACH
def test_all_values_are_found(kind: IndexKind, sql: str) -> None:
    values, t = [*VALUES[sql], *VALUES[sql]], parse_sql_type(sql)  # a value may come again in a later part
    field = DataField(0, "c", t)
    whole = index_of(kind, sql, values)
    column = values_to_arrow(values, t)
    if whole.to_bytes() is None:
        assert kind.name == "bsi" and -(2**63) in values, "only this number cannot be expressed"
    assert whole.may_hold(column).tolist() == [True] * (len(column) - column.null_count)
    for cut in range(len(values) + 1):
        assert index_of(kind, sql, values[:cut], values[cut:]).to_bytes() == whole.to_bytes()
        merged, other = index_of(kind, sql, values[:cut]), index_of(kind, sql, values[cut:])
        assert merged.fits(other)
        merged.merge(other)
        assert merged.to_bytes() == whole.to_bytes()
        parts = values[:cut], values[cut:], VALUES[sql][::-1]
        bodies = [index_of(kind, sql, part).to_bytes() for part in parts]
        if None not in bodies:
            read, *rest = [kind.decoded(field, body or b"", len(part)) for body, part in zip(bodies, parts, strict=True)]
            for index in rest:
                read.merge(index)
            read.add(column)
            assert read.to_bytes() == index_of(kind, sql, *parts, values).to_bytes()
    if (body := whole.to_bytes()) is None:
        return
    decoded = kind.decoded(DataField(0, "c", t), body, len(values))
    assert np.array_equal(decoded.may_hold(column), whole.may_hold(column))
    assert decoded.to_bytes() == whole.to_bytes() and decoded.fits(whole)
    if kind.name != "bloom-filter":  # the others count rows: positions in a merged index would be wrong
        for rows_of_file in (len(values) - 1, len(values) + 1):
            with pytest.raises(ValueError, match=f"its file has {rows_of_file}"):
                kind.decoded(DataField(0, "c", t), body, rows_of_file)


@OF_EACH
def test_an_empty_index_rules_all_values_out(kind: IndexKind, sql: str) -> None:
    assert not index_of(kind, sql).may_hold(values_to_arrow(VALUES[sql], parse_sql_type(sql))).any()
    assert not index_of(kind, sql, [None]).may_hold(values_to_arrow(VALUES[sql], parse_sql_type(sql))).any()


@OF_EACH
def test_bytes_that_are_cut_off_are_refused(kind: IndexKind, sql: str) -> None:
    with pytest.raises(ValueError):
        kind.decoded(DataField(0, "c", parse_sql_type(sql)), b"", 9)


@pytest.mark.parametrize("kind", INDEX_KINDS, ids=[kind.name for kind in INDEX_KINDS])
def test_writers_readers_copies_and_checks_know_the_kind(
    kind: IndexKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "min_group_bytes", 0)
    context = make_table(tmp_path, {"v": "INT", "t": "STRING"}, [], bucket=-1, options={kind.columns_option: "v"})
    for first in (0, 100, 200):
        write(context, [{"v": n, "t": f"{n}"} for n in range(first, first + 20)])
    before = rows(context)
    assert compact(context).files_after == 1 and rows(context) == before
    ((file,),) = (bucket.files for bucket in bucket_files(context, context.snapshots.latest()).values())
    ((field, index),) = FileIndexes(context, b"", 0, file).known(context.schema.fields)
    stored = pq.read_table(context.data_file_path(b"", 0, file))["v"].to_pylist()  # some kinds know where a value is
    assert field.name == "v" and index.to_bytes() == _index(kind, field, stored) and len(stored) == len(before)
    assert not list(check_table(context, rows=True))


def _index(kind: IndexKind, field: DataField, values: list[int]) -> bytes | None:
    index = kind.empty(field, TableOptions({}))
    index.add(values_to_arrow(values, field.type))
    return index.to_bytes()


def test_each_kind_has_its_own_name_and_takes_some_type() -> None:
    names = [kind.name for kind in INDEX_KINDS]
    assert sorted(set(names)) == sorted(names) and {kind.name for kind, _ in TAKEN} == set(names)
