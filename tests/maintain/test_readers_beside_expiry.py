"""A reader gets its data, or an error that its version has gone, which differs from the error for damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.tags import create_tag
from tests.maintain.test_tags import KEEP_ONE, table_of_five


def test_a_version_that_expires_while_it_is_read(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    table = open_table(locate_table(context.url))
    create_tag(context, "three", 3)
    old, tagged, newest = (plan_rows(table, ReadRequest(**how)) for how in ({"snapshot": 2}, {"tag": "three"}, {}))
    expire_snapshots(context, KEEP_ONE)
    assert sum(batch.num_rows for batch in newest.batches()) == 4
    assert sum(batch.num_rows for batch in tagged.batches()) == 3
    Path(context.layout.tag("three")).unlink()
    for path in Path(context.url).glob("bucket-0/*"):
        path.unlink()
    with pytest.raises(NotFound, match=r"snapshot 2 .* no longer exists"):
        list(old.batches())
    with pytest.raises(NotFound, match=r"snapshot 3 .* no longer exists"):
        list(tagged.batches())
    with pytest.raises(DamagedFile):
        list(newest.batches())
