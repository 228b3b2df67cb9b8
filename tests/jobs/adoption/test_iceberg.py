"""Iceberg tables as sources: what is adopted, and what is refused."""

from __future__ import annotations

import datetime
import io
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform, Transform
from pyiceberg.types import DateType, ListType, LongType, NestedField, StringType, StructType

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.errors import BadInput, Conflict, DamagedFile, NotFound, NotSupported, Refused
from paimon_cli.metadata.avro_reader import open_container
from paimon_cli.metadata.avro_writer import zstd_module
from paimon_cli.storage.confined_storage import ConfinedStorage
from tests.hostile.bombs import container

DAYS = [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2), None]


def iceberg(tmp_path: Path, transform: Transform[Any, Any] | None = None) -> Any:
    """A table of two appends of three rows each."""
    (tmp_path / "ice").mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/ice/c.db", warehouse=f"file://{tmp_path}/ice/wh")
    catalog.create_namespace("d")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "dt", DateType()), NestedField(3, "v", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, transform, "p")) if transform is not None else PartitionSpec()
    table = catalog.create_table("d.t", schema, partition_spec=spec)
    for first in () if isinstance(transform, DayTransform) else (0, 10):  # pyiceberg itself cannot write by day
        table.append(pa.table({"id": pa.array([first, first + 1, first + 2], pa.int64()), "dt": DAYS, "v": ["a", "b", None]}))
    return table


def place(table: Any) -> Path:
    return Path(table.location().removeprefix("file://"))


def adopt(tmp_path: Path, source: Path) -> Table:
    Catalog(runtime=Runtime(engine="local")).adopt(str(source), table=str(tmp_path / "t"))
    return Table.open(str(tmp_path / "t"), runtime=Runtime(engine="local"))


@pytest.mark.parametrize("transform", [None, IdentityTransform()])
def test_adopted(tmp_path: Path, transform: Transform[Any, Any] | None) -> None:
    source = place(iceberg(tmp_path, transform))
    moved = tmp_path / "moved"
    shutil.move(source, moved)
    table = adopt(tmp_path, moved)
    rows = {row["id"]: (row["dt"], row["v"]) for row in table.scan().to_arrow().to_pylist()}
    assert rows == {first + n: (DAYS[n], ["a", "b", None][n]) for first in (0, 10) for n in range(3)}
    assert table.context.schema.partition_keys == (() if transform is None else ("dt",))
    assert not table.verify(level="full").violations


def only_the_newest_counts(table: Any) -> None:
    table.overwrite(pa.table({"id": pa.array([5], pa.int64()), "dt": DAYS[:1], "v": ["z"]}))


def test_files_of_older_snapshots_do_not_count(tmp_path: Path) -> None:
    made = iceberg(tmp_path)
    only_the_newest_counts(made)
    assert adopt(tmp_path, place(made)).scan().to_arrow().to_pydict()["id"] == [5]


def new_column(table: Any) -> None:
    with table.update_schema() as update:
        update.add_column("w", LongType())


def new_partitions(table: Any) -> None:
    with table.update_spec() as update:
        update.add_identity("v")


def rewritten(table: Any, change: Callable[[dict[str, Any]], None]) -> None:
    newest = max((place(table) / "metadata").glob("*.metadata.json"))
    content = json.loads(newest.read_text())
    change(content)
    newest.write_text(json.dumps(content))


def lists_elsewhere(table: Any) -> None:
    rewritten(table, lambda content: content["snapshots"][-1].update({"manifest-list": "file:///etc/passwd"}))


def climbs(table: Any) -> None:
    above = f"{table.location()}/../../../../../../../etc/passwd"
    rewritten(table, lambda content: content["snapshots"][-1].update({"manifest-list": above}))


def claims_another_place(table: Any) -> None:
    """Its files lie below a location that is not that of the directory."""
    rewritten(table, lambda content: content.update({"location": "file:///etc"}))
    shutil.move(place(table), place(table).parent / "elsewhere")


@pytest.mark.parametrize(
    ("harm", "match"),
    [
        (new_column, "columns .* have changed"),
        (new_partitions, "partitions .* have changed"),
        (lists_elsewhere, "lie elsewhere"),
        (climbs, "lie elsewhere"),
        (claims_another_place, "lie elsewhere"),
    ],
)
def test_refused(tmp_path: Path, harm: Callable[[Any], None], match: str) -> None:
    made = iceberg(tmp_path)
    harm(made)
    source = place(made) if place(made).exists() else place(made).parent / "elsewhere"
    with pytest.raises(NotSupported, match=match):
        adopt(tmp_path, source)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("name", ["v5.gz.metadata.json", "v5.metadata.json.gz"])
@pytest.mark.parametrize(("hint", "numbers"), [("5", (5,)), ("5", (4, 5)), ("4", (4, 5)), ("x", (4, 5))])
def test_compressed_metadata_is_not_supported(tmp_path: Path, hint: str, numbers: tuple[int, ...], name: str) -> None:
    """Also where an older version is not compressed: it has fewer rows."""
    source = versions(iceberg(tmp_path), hint, *numbers)
    (source / "metadata" / "v5.metadata.json").rename(source / "metadata" / name)
    with pytest.raises(NotSupported, match="gzip"):
        adopt(tmp_path, source)
    assert not (tmp_path / "t").exists()


def test_of_a_version_with_and_without_compression_the_plain_one_counts(tmp_path: Path) -> None:
    """As Iceberg does."""
    source = versions(iceberg(tmp_path), "5", 5)
    for name in ("v5.gz.metadata.json", "v5.metadata.json.gz"):
        (source / "metadata" / name).write_bytes(b"")
    assert adopt(tmp_path, source).count() == 6


def test_a_version_that_the_hint_names_is_lost(tmp_path: Path) -> None:
    """The one before has fewer rows."""
    source = versions(iceberg(tmp_path), "3", 2, 3)
    (source / "metadata/v3.metadata.json").unlink()
    with pytest.raises(DamagedFile, match=r"v3\.metadata\.json is missing.*newest one is of version 2"):
        adopt(tmp_path, source)
    assert not (tmp_path / "t").exists()
    assert adopt(tmp_path, source / "metadata/v2.metadata.json").count() == 3


def versions(table: Any, hint: str, *numbers: int) -> Path:
    """The metadata of a Hadoop catalog: the last files of the table as versions with these numbers."""
    folder = place(table) / "metadata"
    found = sorted(folder.glob("*.metadata.json"))
    for number, file in zip(numbers, found[-len(numbers) :], strict=True):
        file.rename(folder / f"v{number}.metadata.json")
    for file in found[: -len(numbers)]:
        file.unlink()
    (folder / "version-hint.text").write_text(hint)
    return place(table)


@pytest.mark.parametrize(("hint", "numbers", "rows"), [("2", (2, 3), 6), ("3", (2, 3), 6), ("2", (2, 4), 3), ("x", (2, 3), 6)])
def test_a_late_hint_of_the_version_is_followed(tmp_path: Path, hint: str, numbers: tuple[int, ...], rows: int) -> None:
    assert adopt(tmp_path, versions(iceberg(tmp_path), hint, *numbers)).count() == rows


def test_of_two_files_of_a_version_the_catalog_knows_the_right_one(tmp_path: Path) -> None:
    source = place(iceberg(tmp_path))
    right = max((source / "metadata").glob("*.metadata.json"))
    shutil.copy(
        sorted((source / "metadata").glob("*.metadata.json"))[-2], right.parent / f"{right.name.split('-')[0]}-zz.metadata.json"
    )
    with pytest.raises(Refused, match="2 metadata files of version 2"):
        adopt(tmp_path, source)
    assert adopt(tmp_path, right).count() == 6
    with pytest.raises(DamagedFile, match="is missing"):
        adopt(tmp_path / "other", source / "metadata/00009-a.metadata.json")
    with pytest.raises(NotFound, match="is not the metadata of an Iceberg table"):
        adopt(tmp_path / "other", source / "data/metadata/00009-a.metadata.json")


@pytest.mark.parametrize("kind", [LongType(), ListType(5, StructType(NestedField(6, "my-col", LongType())))])
def test_a_column_with_another_name_in_the_files_is_refused(tmp_path: Path, kind: Any) -> None:
    made = iceberg(tmp_path)
    with made.update_schema() as update:
        update.add_column("my-col" if kind == LongType() else "plain", kind)
    rewritten(made, lambda content: content.update({"schemas": content["schemas"][-1:]}))
    with pytest.raises(NotSupported, match="has a column `my-col`"):
        adopt(tmp_path, place(made))


def test_other_transforms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match=r"partitioned by day\(dt\)"):
        adopt(tmp_path, place(iceberg(tmp_path, DayTransform())))


def test_delete_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.manifest import ManifestContent, ManifestFile

    made = iceberg(tmp_path)
    monkeypatch.setattr(ManifestFile, "content", property(lambda manifest: ManifestContent.DELETES))
    with pytest.raises(NotSupported, match="has delete files"):
        adopt(tmp_path, place(made))


def cut_metadata(source: Path) -> None:
    newest = max((source / "metadata").glob("*.metadata.json"))
    newest.write_text(newest.read_text()[:200])


def no_current_snapshot(source: Path) -> None:
    newest = max((source / "metadata").glob("*.metadata.json"))
    newest.write_text(json.dumps(json.loads(newest.read_text()) | {"current-snapshot-id": 77}))


def missing_list(source: Path) -> None:
    for path in (source / "metadata").glob("snap-*.avro"):
        path.unlink()


def another_file(source: Path) -> None:
    first, second, *_ = sorted(source.glob("data/**/*.parquet"))
    second.write_bytes(first.read_bytes())
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(first).slice(0, 1), second)


def damaged_manifest(source: Path) -> None:
    (manifest, *_) = [path for path in sorted((source / "metadata").glob("*.avro")) if not path.name.startswith("snap-")]
    content = manifest.read_bytes()
    manifest.write_bytes(content[: len(content) // 2] + bytes(byte ^ 255 for byte in content[len(content) // 2 :]))


def data_file_is_a_link(source: Path) -> None:
    first, *_ = sorted(source.glob("data/**/*.parquet"))
    first.rename(source / "real.parquet")
    first.symlink_to(source / "real.parquet")


@pytest.mark.parametrize(
    "harm", [cut_metadata, no_current_snapshot, missing_list, another_file, damaged_manifest, data_file_is_a_link]
)
def test_damage_is_said(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    source = place(iceberg(tmp_path))
    harm(source)
    with pytest.raises((DamagedFile, BadInput)) as said:
        adopt(tmp_path, source)
    assert "paimon-cli verify" not in said.value.hint, "there is no table to verify"
    assert not (tmp_path / "t").exists()


def missing_data_file(source: Path) -> None:
    next(iter(sorted(source.glob("data/**/*.parquet")))).unlink()


def expired_by_a_writer(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another commit replaces the metadata, and deletes a manifest, after the metadata was read."""
    (newest,) = sorted((source / "metadata").glob("*.metadata.json"))[-1:]
    read_bytes = ConfinedStorage.read_bytes

    def deleting(storage: Any, path: str) -> bytes:
        content = read_bytes(storage, path)
        if path == str(newest):
            missing_list(source)
            (source / "metadata/99999-x.metadata.json").write_bytes(content)
        return content

    monkeypatch.setattr(ConfinedStorage, "read_bytes", deleting)


def test_a_concurrent_writer_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = place(iceberg(tmp_path))
    expired_by_a_writer(source, monkeypatch)
    with pytest.raises(Conflict, match="has a new snapshot"):
        adopt(tmp_path, source)
    monkeypatch.undo()
    assert not (tmp_path / "t").exists()


def test_a_commit_between_the_list_and_the_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = versions(iceberg(tmp_path), "2", 2, 3)
    later = (source / "metadata/v3.metadata.json").rename(tmp_path / "later")
    read_bytes = ConfinedStorage.read_bytes

    def committing(storage: Any, path: str) -> bytes:
        if path.endswith("version-hint.text") and later.exists():
            later.rename(source / "metadata/v3.metadata.json")
            (source / "metadata/version-hint.text").write_text("3")
        return read_bytes(storage, path)

    monkeypatch.setattr(ConfinedStorage, "read_bytes", committing)
    assert adopt(tmp_path, source).count() == 6


@pytest.mark.parametrize("at", ["version-hint.text", "v3.metadata.json", "manifest"])
def test_a_table_that_is_dropped_meanwhile_is_a_conflict(tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = versions(iceberg(tmp_path), "3", 2, 3)
    read_bytes = ConfinedStorage.read_bytes

    def dropping(storage: Any, path: str) -> bytes:
        if source.exists() and (path.endswith(at) or (at == "manifest" and path.endswith(".avro"))):
            shutil.rmtree(source)
        return read_bytes(storage, path)

    monkeypatch.setattr(ConfinedStorage, "read_bytes", dropping)
    with pytest.raises(Conflict, match=r"dropped|has changed"):
        adopt(tmp_path, source)
    assert not source.exists() and not (tmp_path / "t").exists()


def test_a_data_file_that_has_just_gone_is_a_conflict(tmp_path: Path) -> None:
    source = place(iceberg(tmp_path))
    missing_data_file(source)
    with pytest.raises(Conflict, match="is missing"):
        adopt(tmp_path, source)


def _deflated(size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()


def _zstd(size: int) -> bytes:
    packed: bytes = zstd_module().ZstdCompressor(level=3).compress(bytes(size))
    return packed


def _snappy(size: int) -> bytes:
    """Only the size that it claims, and no more."""
    claimed = bytearray()
    while size > 0x7F:
        claimed.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*claimed, size]) + bytes(8)


BOMBS = {
    "deflate": [(1, _deflated(64 << 20))],
    "zstandard": [(1, _zstd(64 << 20))],
    "snappy": [(1, _snappy((1 << 32) - 1))],
    "null": [(1 << 61, bytes(100))],
}


@pytest.mark.in_part(3)
@pytest.mark.parametrize("codec", [*BOMBS, "many blocks"])
@pytest.mark.parametrize("name", ["snap-*.avro", "*-m0.avro"])
def test_bombs_are_bounded(tmp_path: Path, codec: str, name: str) -> None:
    source = place(iceberg(tmp_path))
    blocks, named = ([(1, _deflated(15 << 20))] * 40, "deflate") if codec == "many blocks" else (BOMBS[codec], codec)
    for bombed in (source / "metadata").glob(name):
        bombed.write_bytes(container(open_container(io.BytesIO(bombed.read_bytes())).schema, named, *blocks))
    with pytest.raises(DamagedFile, match=r"unreasonably large|cannot hold"):
        adopt(tmp_path, source)
    assert not (tmp_path / "t").exists()


def test_columns_have_the_order_of_the_table_and_not_of_its_files(tmp_path: Path) -> None:
    made = iceberg(tmp_path)
    with made.update_schema() as update:
        update.move_first("v")
    adopted = adopt(tmp_path, place(made))
    assert [field.name for field in adopted.context.schema.fields] == ["v", "id", "dt"]
    assert {row["id"]: row["v"] for row in adopted.scan().to_arrow().to_pylist()}[11] == "b"
    assert adopted.scan(where="id = 11").to_arrow().num_rows == 1 and not adopted.verify(level="full").violations


def test_partitions_that_were_changed_before_there_was_a_file(tmp_path: Path) -> None:
    """Each manifest says by which partitions its files are divided."""
    (tmp_path / "ice").mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/ice/c.db", warehouse=f"file://{tmp_path}/ice/wh")
    catalog.create_namespace("d")
    made = catalog.create_table("d.t", Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType())))
    with made.update_spec() as update:
        update.add_identity("v")
    made.append(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", None]}))
    table = adopt(tmp_path, place(made))
    assert table.context.schema.partition_keys == ("v",) and len(table.partitions()) == 3
    assert {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == {1: "a", 2: "b", 3: None}
