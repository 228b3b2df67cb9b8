"""Files of a table are never taken for loose files, however they are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.ingest.inference import columns_of_file
from paimon_cli.ingest.input_files import CLONE, source_files
from paimon_cli.storage.memory_storage import MemoryStorage

MARKERS = {
    "a Paimon table": "schema/schema-0",
    "a Delta Lake table": "_delta_log/00000000000000000000.json",
    "a Hudi table": ".hoodie/hoodie.properties",
    "an Iceberg table": "metadata/00000-a.metadata.json",
}


def _files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("k\n1\n")


def _refusal(source: str, instead: str = CLONE) -> UsageError:
    with pytest.raises(UsageError, match="table") as caught:
        source_files([source], None, {}, instead=instead)
    return caught.value


@pytest.fixture(params=MARKERS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """The directory of a table with a partition, and its format."""
    _files(tmp_path / "wh" / "t", MARKERS[request.param], "dt=1/data/x.csv", "y.csv")
    return tmp_path / "wh" / "t", request.param


@pytest.mark.parametrize("source", ["t", "t/", "t/dt=1", "t/dt=1/data", "t/y.csv", "t/*.csv", "t/**/*.csv", "t/dt=*", "*/y.csv"])
def test_a_table_is_refused_at_every_path_to_its_files(source: str, table: tuple[Path, str]) -> None:
    directory, format = table
    assert format in _refusal(f"{directory.parent}/{source}").what


@pytest.mark.parametrize("source", ["wh", ".", "w*", "**"])
def test_a_directory_that_contains_a_table_is_refused(source: str, table: tuple[Path, str], tmp_path: Path) -> None:
    _files(tmp_path, "wh/loose.csv")
    assert table[1] in _refusal(f"{tmp_path}/{source}").what


def test_links_lead_to_the_table_too(table: tuple[Path, str], tmp_path: Path) -> None:
    directory, format = table
    (tmp_path / "to_table").symlink_to(directory)
    (tmp_path / "to_partition").symlink_to(directory / "dt=1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.csv").symlink_to(directory / "y.csv")
    for name in ("to_table", "to_partition", "folder", "folder/x.csv", "folder/*.csv"):
        assert format in _refusal(f"{tmp_path}/{name}").what


def test_a_table_without_data_files_is_refused_as_well(tmp_path: Path) -> None:
    _files(tmp_path, "t/schema/schema-0")
    assert "is a Paimon table" in _refusal(str(tmp_path / "t")).what


def test_the_files_of_a_new_table_are_refused(table: tuple[Path, str]) -> None:
    with pytest.raises(UsageError, match=table[1]):
        columns_of_file(str(table[0] / "y.csv"))


def test_the_hint_names_the_command_that_reads_the_table(tmp_path: Path) -> None:
    _files(tmp_path / "my t", "schema/schema-0", "bucket-0/x.csv")
    given = _refusal(str(tmp_path / "my t" / "bucket-0"), instead="paimon-cli write a --from-table {table}")
    assert given.hint == f"paimon-cli write a --from-table '{tmp_path}/my t'"
    assert f"tables clone '{tmp_path}/my t'" in _refusal(str(tmp_path / "my t")).hint
    _files(tmp_path / "d", "_delta_log/0.json", "x.csv")
    assert f'spark.read.format("delta").load("{tmp_path}/d")' in _refusal(str(tmp_path / "d")).hint


def test_prefixes_of_an_object_store_are_examined() -> None:
    storage = MemoryStorage()
    for name in ("t/_delta_log/0.json", "t/a=1/x.csv", "loose/x.csv"):
        storage.write_new(f"memory://input-files/{name}", b"k\n1\n")
    for source in ("t", "t/a=1/x.csv", "t/a=*/x.csv", "", "*/a=1/x.csv"):
        assert "a Delta Lake table" in _refusal(f"memory://input-files/{source}").what
    assert [file.size for file in source_files(["memory://input-files/loose/*"], None, {})] == [4]


def test_files_beside_a_table_are_loose(table: tuple[Path, str], tmp_path: Path) -> None:
    _files(tmp_path, "wh/loose.csv", "wh/metadata/notes.csv", "wh/schema/columns.csv")
    assert (
        len(source_files([str(tmp_path / "wh" / "*.csv"), str(tmp_path / "wh/metadata"), str(tmp_path / "wh/schema")], None, {}))
        == 3
    )
    assert [file.size for file in source_files([f"{tmp_path}/wh/*/columns.csv"], None, {})] == [4]
