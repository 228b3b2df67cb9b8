"""Who judges what is stored reads it again, whatever the same handle of the table has read before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_cli.api.table import Table


def _damaged(path: Path) -> None:
    path.write_bytes(b"damaged" + path.read_bytes()[7:])


@pytest.mark.parametrize("harm", [_damaged, Path.unlink], ids=["damaged", "deleted"])
@pytest.mark.parametrize("kind", ["manifest-[0-9a-f]*", "manifest-list-*-1"], ids=["manifest", "list"])
def test_a_table_that_was_read_before(tmp_path: Path, kind: str, harm: Callable[[Path], None]) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "v INT"], primary_key=["k"])
    for k in range(2):
        table.write([{"k": k, "v": 1}])
    assert table.to_arrow().num_rows == 2 and not table.verify(level="meta").violations
    harm(max((tmp_path / "t/manifest").glob(kind), key=lambda path: path.stat().st_mtime_ns))
    for level in ("meta", "files", "full"):
        assert table.verify(level=level).violations, level
    assert table.plan_repair().plan.steps
