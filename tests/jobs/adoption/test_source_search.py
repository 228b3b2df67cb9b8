"""What counts as a file of a source, and what of a hostile one is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.errors import BadInput, DamagedFile, NotFound, NotSupported, PaimonError, UsageError
from paimon_cli.jobs.adoption.footers import Footers
from paimon_cli.jobs.adoption.source import Source
from paimon_cli.jobs.adoption.source_search import find_source


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1]}), path)


def found(root: Path) -> Source:
    return find_source(str(root), {}, 2)


def test_files_and_partitions(tmp_path: Path) -> None:
    write(tmp_path / "a b=x%3Dy/n=1/f")
    write(tmp_path / "a b=__HIVE_DEFAULT_PARTITION__/n=2/g.parquet")
    (tmp_path / "_temporary/n=1").mkdir(parents=True)
    source = found(tmp_path)
    assert source.keys == ("a b", "n") and source.kind == "files" and source.rows is None
    assert {(file.path, file.partition) for file in source.files} == {
        ("a b=x%3Dy/n=1/f", ("x=y", "1")),
        ("a b=__HIVE_DEFAULT_PARTITION__/n=2/g.parquet", (None, "2")),
    }


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="is a file"):
        found(tmp_path / "a.parquet")
    (tmp_path / "empty").mkdir()
    for name in ("empty", "none"):
        with pytest.raises(NotFound, match="there are no files"):
            found(tmp_path / name)


def link_to_file(root: Path) -> None:
    (root.parent / "secret.parquet").write_bytes(b"PAR1")
    (root / "f.parquet").symlink_to(root.parent / "secret.parquet")


def link_to_directory(root: Path) -> None:
    write(root.parent / "other/f.parquet")
    (root / "dt=1").symlink_to(root.parent / "other")


def pipe(root: Path) -> None:
    os.mkfifo(root / "f.parquet")


@pytest.mark.parametrize("harm", [link_to_file, link_to_directory, pipe])
def test_links_and_pipes_are_refused(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    root = tmp_path / "source"
    write(root / "a.parquet")
    harm(root)
    with pytest.raises((BadInput, DamagedFile)):
        Footers(found(root), 2).read()


@pytest.mark.parametrize(
    ("paths", "error", "match"),
    [
        ([], NotFound, "there are no files"),
        (["_SUCCESS"], NotFound, "there are no files"),
        (["_delta_log/0.json", "a.parquet"], NotSupported, "a Delta table"),
        ([".hoodie/x", "a.parquet"], NotSupported, "a Hudi table"),
        (["schema/schema-0", "snapshot/LATEST"], UsageError, "a table of Paimon already"),
        (["a.parquet", "dt=1/b.parquet"], UsageError, "is a directory"),
        (["sub/a.parquet"], UsageError, "no partition"),
        (["dt=1/a.parquet", "day=2/b.parquet"], UsageError, "beside it are partitions of"),
        (["dt=1/dt=2/a.parquet"], UsageError, "so is a directory above it"),
        (["dt=%FF/a.parquet"], BadInput, "not UTF-8"),
        (["d%FFt=1/a.parquet"], BadInput, "not UTF-8"),
        (["x%60 INT -- =1/a.parquet"], UsageError, "backtick"),
        (["a\x1b[31m.parquet"], BadInput, "not plain text"),
        (["/".join(f"k{n}=1" for n in range(20)) + "/a.parquet"], UsageError, "below 15 directories"),
    ],
)
def test_other_directories_are_refused(tmp_path: Path, paths: list[str], error: type[PaimonError], match: str) -> None:
    for path in paths:
        write(tmp_path / "source" / path)
    with pytest.raises(error, match=match):
        found(tmp_path / "source")


@pytest.mark.parametrize(
    ("log", "source", "what"),
    [
        ("_delta_log/0.json", "dt=1", "a Delta table"),
        ("_delta_log/0.json", "dt=1/h=2", "a Delta table"),
        ("dt=1/_delta_log/0.json", "", "a Delta table"),
        ("dt=1/.hoodie/x", "", "a Hudi table"),
        ("metadata/v1.metadata.json", "data", "an Iceberg table"),
        ("metadata/v1.metadata.json", "data/dt=1", "an Iceberg table"),
    ],
)
def test_a_part_of_a_table_with_a_log_is_no_source(tmp_path: Path, log: str, source: str, what: str) -> None:
    """Its log may say that files there no longer count."""
    write(tmp_path / "t" / log)
    write(tmp_path / "t" / source / ("dt=1/a.parquet" if not source else "a.parquet"))
    with pytest.raises(NotSupported, match=what):
        found(tmp_path / "t" / source)


def test_other_directories_beside_the_source_do_not_matter(tmp_path: Path) -> None:
    write(tmp_path / "t" / "metadata" / "notes.txt")
    write(tmp_path / "t" / "data" / "a.parquet")
    assert len(found(tmp_path / "t" / "data").files) == 1


@pytest.mark.parametrize("name", ["bucket-0", "bucket-postpone"])
def test_a_bucket_of_a_table_is_no_source(tmp_path: Path, name: str) -> None:
    write(tmp_path / "t" / name / "data-1.parquet")
    with pytest.raises(UsageError, match="is a bucket of a table of Paimon"):
        found(tmp_path / "t" / name)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\xff" * 100, b"ORC" + b"\0" * 50, b"hello world"])
def test_files_that_are_damaged_or_something_else(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "source/a.parquet")
    (tmp_path / "source/b.parquet").write_bytes(content)
    with pytest.raises(BadInput):
        Footers(found(tmp_path / "source"), 2).read()
