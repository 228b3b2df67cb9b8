"""A table gets a directory of its own; the error names what lies there instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.catalog.table_site import check_site
from paimon_cli.errors import NotFound, StorageUnavailable, UsageError
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import FileStatus
from tests.catalog.test_create_table import create
from tests.tables import make_table


def files(*names: str) -> Callable[[Path], None]:
    def put(folder: Path) -> None:
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("precious")

    return put


_LATE = f"commit-user/commit-{'0a' * 32}-7-12345678-1234-1234-1234-123456789abc"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (files("thesis.txt", "src/a.py"), "it contains src/, thesis.txt"),
        (files(".git/config"), "it contains .git/"),
        (files(*"abcdefg"), "it contains a, b, c, d, e and 2 more"),
        (files("_delta_log/00000000000000000000.json"), "Delta Lake table"),
        (files("metadata/v1.metadata.json", "data/x.parquet"), "Iceberg table"),
        (files(".hoodie/hoodie.properties"), "Hudi table"),
        (files("a/schema/schema-0", "b/schema/schema-0", "c/x"), "a database directory with the tables a, b"),
        (files("shop.db/orders/schema/schema-0"), "a warehouse with the database shop"),
        (files("snapshot/snapshot-1"), "it contains snapshot/"),
        (files("schema/notes.txt"), "it contains schema/"),
        (files("commit-user/notes.txt"), "it contains commit-user/"),
        (files("commit-user"), "it contains commit-user"),
        (files("snapshot"), "it contains snapshot"),
        (files(f"{_LATE}-made-5", "LATEST"), "it contains LATEST, commit-user/"),
    ],
)
def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path, content: Callable[[Path], None], reason: str) -> None:
    content(tmp_path / "t")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="is not empty") as refused:
        create(tmp_path / "t", "id INT")
    assert reason in refused.value.why and sorted(tmp_path.rglob("*")) == before


def test_an_empty_directory_and_an_unfinished_table_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert create(tmp_path / "empty", "id INT").created
    files("schema/.schema-0.0815.tmp", ".commit-probe-4711/probe")(tmp_path / "begun")
    assert create(tmp_path / "begun", "id INT").created


def test_what_a_commit_wrote_after_a_drop_is_cleared_away(tmp_path: Path) -> None:
    files("snapshot/LATEST", f"{_LATE}-after-4", f"{_LATE}-made-5")(tmp_path / "t")
    assert create(tmp_path / "t", "id INT").created
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["schema"]


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    files("t")(tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        create(tmp_path / "t", "id INT")


@pytest.mark.parametrize("inner", ["bucket-0", "dt=1/bucket-0/deep", "x"])
def test_a_table_inside_of_a_table_is_refused(tmp_path: Path, inner: str) -> None:
    create(tmp_path / "t", "id INT")
    with pytest.raises(UsageError, match="is inside the table"):
        create(tmp_path / "t" / inner, "id INT")
    assert not (tmp_path / "t" / inner).exists()


def test_a_link_does_not_lead_into_a_table_either(tmp_path: Path) -> None:
    create(tmp_path / "t", "id INT")
    (tmp_path / "t" / "x").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t" / "x")
    with pytest.raises(UsageError, match="is inside the table"):
        create(tmp_path / "link", "id INT")


def test_object_stores_are_checked_in_the_same_way() -> None:
    storage = MemoryStorage("site")
    storage.write_new("memory://b/wh/t/schema/schema-0", b"{}")
    assert check_site(storage, "memory://b/wh/u") == []
    with pytest.raises(UsageError, match="is inside the table memory://b/wh/t"):
        check_site(storage, "memory://b/wh/t/dt=1/u")
    with pytest.raises(UsageError, match="it is a database directory with the table t"):
        check_site(storage, "memory://b/wh")


class Narrow(LocalStorage):
    """A storage whose user may only list directories below one prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def list_directory(self, path: str) -> list[FileStatus]:
        if not path.startswith(self._prefix):
            raise StorageUnavailable(f"no access to {path}")
        return super().list_directory(path)


def test_a_directory_above_that_cannot_be_listed_is_a_warning(tmp_path: Path) -> None:
    warnings = check_site(Narrow(f"{tmp_path}/own"), f"{tmp_path}/own/t")
    assert f"cannot determine whether {tmp_path} is itself a table" in warnings[0]


def test_an_existing_table_is_left_as_it_is_if_asked(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    assert not create(Path(context.url), "id INT", if_not_exists=True).created


@pytest.mark.parametrize(
    ("marker", "reason"),
    [("_delta_log/0.json", "Delta Lake"), ("metadata/v1.metadata.json.gz", "Iceberg"), ("metadata/version-hint.text", "Iceberg")],
)
def test_tables_of_other_formats_are_named_when_one_is_opened(tmp_path: Path, marker: str, reason: str) -> None:
    files(marker)(tmp_path / "t")
    with pytest.raises(NotFound) as missing:
        open_table(locate_table(str(tmp_path / "t")))
    assert reason in missing.value.why
