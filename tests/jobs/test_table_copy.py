"""The copy of a table by itself: which files it has after each try, and what it leaves when it ends before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import DamagedFile, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.copy_plan import CopyPortion
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.table_copy import TableCopy
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.pieces import PIECES
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.file_copy import FileToCopy
from paimon_cli.storage.storage import Storage
from tests.jobs.backups import WRITES, Recording, check_same, check_whole, opened
from tests.rivals import Meddler
from tests.tables import make_table, write


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    """Three snapshots, each with a file of its own."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
    for number in range(3):
        write(context, [{"k": number, "v": f"v{number}"}], compact="none")
    return context


def copy_of(table: TableContext, folder: Path, storage: Storage | None = None, **given: Any) -> TableCopy:
    there = storage or ConfinedStorage(str(folder))
    return TableCopy(table, there, TableLayout(str(folder)), LocalEngine(), NoProgress(), **given)


def copied(copy: TableCopy, numbers: Sequence[int]) -> None:
    copy.copy_schemas(copy.source)
    copy.copy_snapshots(copy.source, iter(numbers))


def written_to(storage: Recording) -> list[str]:
    """The names of the data and metadata files that were written."""
    paths = {path for call, path in storage.calls if call in WRITES}
    return sorted(path.rpartition("/")[2] for path in paths if "/bucket-" in path or "/manifest/" in path)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def of_data(folder: Path) -> dict[str, bytes]:
    return {path: content for path, content in files_in(folder).items() if path.startswith(("bucket-", "manifest/"))}


def test_a_copy_that_tries_again_asks_for_the_same_snapshots(table: TableContext, tmp_path: Path) -> None:
    """A snapshot expires after its file was read, and is left out; those that follow are not."""
    gone = (*(tmp_path / "t/snapshot").glob("snapshot-1"), *_files_of_first(table))

    def expire() -> None:
        for path in gone:
            path.unlink(missing_ok=True)

    first = next(path.name for path in gone if path.name.startswith("manifest-list"))
    source = replace(table, storage=Meddler("read_bytes", first, expire), cache=table.cache.renewed())
    meddled = copy_of(source, tmp_path / "c", is_new=True)
    copied(meddled, [1, 2, 3])
    assert opened(tmp_path / "c").snapshots.ids() == [2, 3]
    check_whole(opened(tmp_path / "c"))


def _files_of_first(table: TableContext) -> list[Path]:
    """The lists of snapshot 1, which only it names."""
    snapshot = table.snapshots.get(1)
    names = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return [Path(table.layout.manifest(name)) for name in names]


def test_each_file_is_copied_once_whatever_the_copy_has(table: TableContext, tmp_path: Path) -> None:
    """Also those that the newest of its snapshots names, and not the oldest."""
    copied(copy_of(table, tmp_path / "c", is_new=True), [1, 2])
    before = of_data(tmp_path / "c")
    storage = Recording(ConfinedStorage(str(tmp_path / "c")))
    copied(copy_of(table, tmp_path / "c", storage), [1, 2, 3])
    new = of_data(tmp_path / "c").keys() - before.keys()
    assert written_to(storage) == sorted(path.rpartition("/")[2] for path in new)
    check_same(table, opened(tmp_path / "c"))


@pytest.mark.parametrize("number", range(3))
def test_a_file_that_is_gone_is_missed_whatever_its_task(
    table: TableContext, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "copied_task_files", 1)
    path = sorted((tmp_path / "t/bucket-0").iterdir())[number]
    path.unlink()
    with pytest.raises(DamagedFile, match=path.name):
        copied(copy_of(table, tmp_path / "c", is_new=True), [1, 2, 3])
    assert not (tmp_path / "c/snapshot/snapshot-3").exists(), "a version that names the file is not there"


@pytest.mark.parametrize("is_new", [False, True])
def test_the_beginning_of_a_file_is_replaced_by_the_whole(table: TableContext, tmp_path: Path, is_new: bool) -> None:
    """An earlier copy was killed. One that is new and not resumed meets nothing of its own, and writes over nothing."""
    copied(copy_of(table, tmp_path / "c", is_new=True), [1, 2, 3])
    whole = files_in(tmp_path / "c")
    halves = [path for path in whole if path.startswith(("bucket-", "manifest/"))]
    for path in halves:
        (tmp_path / "c" / path).write_bytes(whole[path][:4])
    for version in (tmp_path / "c/snapshot").iterdir():
        version.unlink()
    copied(copy_of(table, tmp_path / "c", is_new=is_new, is_resumed=is_new), [1, 2, 3])
    assert files_in(tmp_path / "c") == whole and len(halves) > 6


def test_what_is_undone_leaves_nothing_of_a_new_copy_and_all_of_another_job(table: TableContext, tmp_path: Path) -> None:
    copy = copy_of(table, tmp_path / "c", is_new=True)
    create_tag(table, "kept", 2)
    copied(copy, [1, 2, 3])
    copy.copy_tags(table)
    copy.undo()
    assert not (tmp_path / "c").exists()
    other = tmp_path / "d/snapshot/snapshot-2"
    other.parent.mkdir(parents=True)
    other.write_text("of another job")
    late = copy_of(table, tmp_path / "d", is_new=True)
    with pytest.raises(UsageError, match="is not empty"):
        copied(late, [1, 2, 3])
    late.undo()
    assert files_in(tmp_path / "d") == {"snapshot/snapshot-2": b"of another job"}


def test_what_a_directory_has_is_listed_before_anything_is_added_to_it(table: TableContext, tmp_path: Path) -> None:
    """What was copied into a directory does not hide what else is in it."""
    copied(copy_of(table, tmp_path / "c", is_new=True), [1, 2, 3])
    storage = Recording(ConfinedStorage(str(tmp_path / "c")))
    copy = copy_of(table, tmp_path / "c", storage)
    first, *others = [
        FileToCopy(str(path.relative_to(tmp_path / "t")), path.stat().st_size)
        for path in sorted((tmp_path / "t/bucket-0").iterdir())
    ]
    copy.copy_files(CopyPortion(files={0: {first.path: first}}))
    every = {file.path: file for file in (first, *others)}
    copy.copy_files(CopyPortion(files={0: every}, may_exist=set(every)))
    assert written_to(storage) == [first.path.rpartition("/")[2]], "only what nobody said might be there"


def test_schemas_are_copied_up_to_and_including_the_one_that_is_asked_for(table: TableContext, tmp_path: Path) -> None:
    for number in (1, 2):
        table.schemas.commit(replace(table.schema, id=number, comment=f"{number}"))
    copy_of(table, tmp_path / "copy").copy_schemas(table, up_to=1)
    assert sorted(path.name for path in (tmp_path / "copy" / "schema").iterdir()) == ["schema-0", "schema-1"]


def test_what_is_named_is_copied_before_what_names_it(table: TableContext, tmp_path: Path) -> None:
    """A copy that is killed has no manifest that names a file that is missing."""
    storage = Recording(ConfinedStorage(str(tmp_path / "copy")))
    copied(copy_of(table, tmp_path / "copy", storage), [1, 2, 3])
    order = [path.rpartition("/")[2] for call, path in storage.calls if call in WRITES]
    data, lists, manifests, snapshots = (
        [place for place, name in enumerate(order) if name.startswith(kind)]
        for kind in ("data-", "manifest-list-", "manifest-", "snapshot-")
    )
    manifests = [place for place in manifests if place not in lists]
    assert data and max(data) < min(manifests) <= max(manifests) < min(lists) <= max(lists) < min(snapshots)
