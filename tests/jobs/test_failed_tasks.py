"""A task that fails takes its files away itself: it may run in another process, after its job has ended and cleaned up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs import table_change
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.staging.writer_order import Shift, write_shifted
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.local_storage import LocalStorage
from tests.pieces import injected
from tests.tables import compact, data_files, make_table, write

KEYED = {"write-only": "true", "target-file-row-num": "3", "changelog-producer": "input"}
LOOKING_UP = {**KEYED, "changelog-producer": "lookup"}
APPENDED = {"write-only": "true", "target-file-row-num": "3"}


@dataclass
class FailsAtFile(WrappedStorage):
    """Fails when the file with this number is opened for the rows of a bucket, counted from 1."""

    number: int
    opened: int = 0

    def __post_init__(self) -> None:
        super().__init__(LocalStorage())

    def before(self, call: str, path: str) -> None:
        if call == "open_output" and "/bucket-" in path:
            self.opened += 1
            if self.opened == self.number:
                raise StorageUnavailable("the store does not answer", "a test", "none")


def new_rows(context: TableContext) -> None:
    write(context, [{"id": number, "v": -number} for number in range(5, 25)])


def changed_rows(context: TableContext) -> None:
    run_update(context, UpdateRequest("true", ("v = v + 1",)), LocalEngine(1), NoProgress())


def compacted(context: TableContext) -> None:
    compact(context, strategy="full")


def shifted(context: TableContext) -> None:
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        write_shifted(context, new_stamp(context), Shift(bucket.bucket_id, bucket.files, 100))


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("key", "options", "job"),
    [
        *((key, options, job) for key, options in (("id", KEYED), ("", APPENDED)) for job in (new_rows, changed_rows)),
        *(("id", options, compacted) for options in (KEYED, LOOKING_UP)),
        ("", APPENDED, compacted),
        ("id", KEYED, shifted),
    ],
)
def test_whatever_file_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, options: dict[str, str], job: Callable[[TableContext], None]
) -> None:
    buckets = (2 if job is new_rows else 1) if key else -1  # of the other jobs each bucket is a task, which keeps its files
    context = make_table(tmp_path / "t", {"id": "INT", "v": "INT"}, [key] if key else [], options=options, bucket=buckets)
    for first in (0, 10):
        write(context, [{"id": number, "v": number} for number in range(first, first + 12)])
    before = data_files(context)
    monkeypatch.setattr(table_change, "delete_stamped_files", lambda *_: 0)
    for number in range(1, 100):
        storage = FailsAtFile(number)
        with injected(4):
            try:
                job(TableContext.open(context.url, storage=storage))
            except StorageUnavailable:
                assert data_files(context) == before, f"after file {number} could not be written"
                continue
        break
    assert storage.opened < number >= 4
    assert data_files(context) > before
