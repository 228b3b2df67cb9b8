"""What DuckDB and Arrow read of a table ends with the query, in whichever threads they do it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Catalog, Table
from paimon_cli.api import sql_dataset
from paimon_cli.api.sql_dataset import ClosableRows
from paimon_cli.api.sql_variants import with_json
from paimon_cli.errors import UsageError
from paimon_cli.pieces import PIECES

BATCH = pa.record_batch({"id": [1]})


def test_closing_waits_for_the_batch_that_is_being_made() -> None:
    begun, may_end, made = threading.Event(), threading.Event(), list[str]()

    def batches() -> Iterator[pa.RecordBatch]:
        begun.set()
        may_end.wait(30)
        made.append("batch")
        yield BATCH

    rows = ClosableRows(batches())
    reader = threading.Thread(target=next, args=(rows,))
    reader.start()
    begun.wait(30)

    def close() -> None:
        rows.close()
        made.append("closed")

    closer = threading.Thread(target=close)
    closer.start()
    may_end.set()
    closer.join(30)
    reader.join(30)
    assert made == ["batch", "closed"]
    with pytest.raises(ValueError, match="has ended"):
        next(rows)


@pytest.mark.parametrize("query", ["SELECT CAST(name AS INT) FROM d.t", "SELECT id FROM d.t LIMIT 1"])
def test_nothing_is_read_after_the_query(tmp_path: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python aborts a process that ends while one of Arrow's threads decodes rows."""
    monkeypatch.setattr(PIECES, "batch_rows", 10)
    table = Table.create(str(tmp_path / "d.db" / "t"), columns=["id INT", "name STRING"])
    table.write(pa.table({"id": pa.array(range(400), pa.int32()), "name": ["a"] * 400}))
    begun, ended, shown = list[int](), list[int](), with_json

    def slowly(*arguments: Any) -> Any:
        begun.append(len(begun))
        time.sleep(0.01)
        try:
            return shown(*arguments)
        finally:
            ended.append(len(ended))

    monkeypatch.setattr(sql_dataset, "with_json", slowly)
    result = Catalog(str(tmp_path)).sql(query) if "LIMIT" in query else None
    if result is None:
        with pytest.raises(UsageError, match="Could not convert"):
            Catalog(str(tmp_path)).sql(query).to_arrow()
    else:
        assert result.to_arrow().num_rows == 1
    count = len(begun)
    assert len(ended) == count > 0
    time.sleep(0.1)
    assert (len(begun), len(ended)) == (count, count)
