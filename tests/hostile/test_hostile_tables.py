"""Tables made to harm: names and links that lead out, files that unfold without end. One clear line, nothing touched outside."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.avro_reader import decode_container, refuse_endless
from paimon_cli.metadata.avro_writer import RecordSchema
from paimon_cli.metadata.manifests import decode_manifest_list
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.confined_storage import ConfinedStorage
from tests import tables
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.goldens import golden_table
from tests.invariants.damaged_tables import Bench, keyed_table
from tests.invariants.damages import vector_entry

EVIL_NAMES = ("../../etc/x", "/etc/passwd", "a\0b", "..", ".", "", "a/../../b", "..\\..\\x", "bucket-0/../../../x")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "canary").mkdir()
    (tmp_path / "canary/secret").write_text("secret")
    return Bench(keyed_table(tmp_path))


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_names_in_manifests(run: Run, bench: Bench, name: str) -> None:  # noqa: F811
    bench.lie(bench.live(level=0)[-1], file_name=name)
    for command in (("read", bench.root), ("compact", bench.root, "--engine", "local"), ("files", "ls", bench.root)):
        answer = run(*command, code=10)
        assert "manifest" in answer.err and "must not lead" in answer.err
    assert "PV005" in run("verify", bench.root, code=4).out


@pytest.mark.parametrize("key", ["baseManifestList", "deltaManifestList", "indexManifest", "changelogManifestList", "statistics"])
@pytest.mark.parametrize("name", (*EVIL_NAMES[:3], "\ud800"), ids=ascii)
@pytest.mark.in_part(4)
def test_names_in_snapshots(run: Run, bench: Bench, key: str, name: str) -> None:  # noqa: F811
    bench.edit_json("snapshot/snapshot-4", **{key: name})
    assert "snapshot-4" in run("read", bench.root, code=10).err
    assert "PV002" in run("verify", bench.root, code=4).out


@pytest.mark.parametrize("name", EVIL_NAMES[:4])
def test_names_in_extra_files_and_vectors(tmp_path: Path, bench: Bench, name: str) -> None:
    bench.lie(bench.live(level=0)[-1], extra_files=(name,))
    with pytest.raises(DamagedFile, match="names a file"):
        bench.live()
    vectors = Bench(golden_table("java-0.9", "dv_dedup", tmp_path))
    entry = vector_entry(vectors)
    evil = replace(entry, index_file=replace(entry.index_file, file_name=name))
    vectors.reforge(indexes=lambda entries: [evil if e == entry else e for e in entries])
    with pytest.raises(DamagedFile, match="names a file"):
        tables.rows(vectors.context)


def test_external_paths_are_never_opened(run: Run, tmp_path: Path, bench: Bench) -> None:  # noqa: F811
    bench.lie(bench.live(level=0)[-1], external_path=str(tmp_path / "canary/secret"))
    assert "outside of the table" in run("read", bench.root, code=7).err
    verified = run("verify", bench.root, "--level", "full", code=7).out
    assert "PV028" in verified and "repair" not in verified
    vectors = Bench(golden_table("java-0.9", "dv_dedup", tmp_path))
    entry = vector_entry(vectors)
    evil = replace(entry, index_file=replace(entry.index_file, external_path="/etc/passwd"))
    vectors.reforge(indexes=lambda entries: [evil if e == entry else e for e in entries])
    with pytest.raises(NotSupported, match="outside of the table"):
        tables.rows(vectors.context)
    run("read", vectors.root, code=NotSupported.exit_code)
    verified = run("verify", vectors.root, code=NotSupported.exit_code).out  # no configuration allows it
    assert "PV071" in verified and "repair" not in verified


def _link_file(bench: Bench, outside: Path) -> None:
    path = bench.path(bench.live(level=0)[-1])
    target = outside / "secret"
    target.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(target)


def _link_bucket(bench: Bench, outside: Path) -> None:
    directory = bench.path(bench.live(level=0)[-1]).parent
    directory.rename(outside / "bucket")
    directory.symlink_to(outside / "bucket")


def _link_manifest_directory(bench: Bench, outside: Path) -> None:
    (bench.root / "manifest").rename(outside / "manifest")
    (bench.root / "manifest").symlink_to(outside / "manifest")


def _link_snapshot(bench: Bench, outside: Path) -> None:
    (bench.root / "snapshot/snapshot-4").rename(outside / "secret")
    (bench.root / "snapshot/snapshot-4").symlink_to(outside / "secret")


@pytest.mark.parametrize("link", [_link_file, _link_bucket, _link_manifest_directory, _link_snapshot])
def test_links_out_of_the_table(run: Run, tmp_path: Path, bench: Bench, link: Callable[[Bench, Path], None]) -> None:  # noqa: F811
    link(bench, tmp_path / "canary")
    before = _content(tmp_path / "canary")
    answer = run("read", bench.root, code=10)
    assert "lies outside of the table" in answer.err and str(tmp_path / "canary") in answer.err
    assert run("compact", bench.root, "--engine", "local", code=None).code in (9, 10), "9: the other bucket was compacted"
    run("expire", bench.root, "--retain-max", 1, "--retain-min", 1, "--older-than", "0s", "-y", code=None)
    assert _content(tmp_path / "canary") == before


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_links_that_stay_inside_or_lead_to_the_table(tmp_path: Path, bench: Bench) -> None:
    expected = tables.rows(bench.context)
    path = bench.path(bench.live(level=0)[-1])
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))
    (tmp_path / "alias").symlink_to(bench.root)
    assert tables.rows(TableContext.open(str(tmp_path / "alias"))) == expected


def test_confined_storage_travels(tmp_path: Path) -> None:
    import pickle

    storage = pickle.loads(pickle.dumps(ConfinedStorage(str(tmp_path))))
    (tmp_path / "link").symlink_to("/etc")
    calls: list[Callable[[], object]] = [
        lambda: storage.read_bytes(f"{tmp_path}/link/passwd"),
        lambda: storage.list_directory(f"{tmp_path}/link"),
        lambda: storage.delete(f"{tmp_path}/link/x"),
        lambda: storage.delete_directory(f"{tmp_path}/link/x"),
        lambda: storage.write_new(f"{tmp_path}/link/x", b""),
        lambda: storage.put_if_absent(f"{tmp_path}/link/x", b""),
        lambda: storage.overwrite(f"{tmp_path}/link/x", b""),
        lambda: storage.file_size(f"{tmp_path}/link/passwd"),
    ]
    for call in calls:
        with pytest.raises(DamagedFile, match="outside of the table"):
            call()


@pytest.mark.parametrize(
    ("schema", "endless"),
    [
        ({"type": "array", "items": "null"}, True),
        ({"type": "array", "items": {"type": "record", "name": "r", "fields": []}}, True),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, True),
        ({"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": {"type": "null"}}}]}, True),
        *(
            (
                {
                    "type": "record",
                    "name": "r",
                    "namespace": "n",
                    "fields": [
                        {"name": "one", "type": {"type": "record", "name": "E", "fields": []}},
                        {"name": "many", "type": {"type": "array", "items": items}},
                    ],
                },
                True,
            )
            for items in ("E", "n.E", {"type": "E"}, {"type": "n.E"})
        ),
        ({"type": "array", "items": ["null", "long"]}, False),
        ({"type": "map", "values": "null"}, False),
        ({"type": "array", "items": {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]}}, False),
    ],
)
def test_arrays_of_nothing(schema: Any, endless: bool) -> None:
    if not endless:
        refuse_endless(schema)
        return
    with pytest.raises(ValueError, match="no bytes"):
        refuse_endless(schema)


def _bomb(size: int) -> bytes:
    """A manifest list whose one block unfolds to `size` zeros."""
    from paimon_cli.metadata.avro_writer import zstd_module

    schema = {"type": "record", "name": "record", "fields": [{"name": "x", "type": "int"}]}
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"zstandard"}
    import io

    out = io.BytesIO()
    out.write(b"Obj\x01")
    fastavro.schemaless_writer(out, {"type": "map", "values": "bytes"}, header)
    packed = zstd_module().compress(bytes(size))
    out.write(b"m" * 16)
    for number in (size, len(packed)):
        fastavro.schemaless_writer(out, "long", number)
    return out.getvalue() + packed + b"m" * 16


def test_a_block_that_expands_without_end() -> None:
    expected = RecordSchema({"type": "record", "name": "record", "fields": [{"name": "x", "type": "int"}]})
    data = _bomb(1 << 28)
    assert len(data) < 20_000
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFile, match="the-list"):
            decode_container(data, "the-list", expected)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 150 << 20
    with pytest.raises(DamagedFile):
        decode_manifest_list(data, "the-list")


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 100_000, '{"id":' + "9" * 5000 + "}", "{" + '"x":1,' * 100_000 + '"id":1}']
)
def test_json_bombs(text: str) -> None:
    for decode in (Snapshot.from_json, TableSchema.from_json):
        with pytest.raises(DamagedFile, match="the-file"):
            decode(text.encode(), "the-file")


def test_a_footer_of_absurd_size(run: Run, bench: Bench) -> None:  # noqa: F811
    path = bench.path(bench.live(level=0)[-1])
    for size in (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0"):
        path.write_bytes(path.read_bytes()[:-8] + size + b"PAR1")
        assert str(path) in run("read", bench.root, code=10).err


def test_reads_of_damaged_tables_in_a_process_of_their_own(bench: Bench) -> None:
    """As a user runs it: exit code 10, the file's name, no traceback."""
    path = bench.path(bench.live(level=0)[-1])
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    done = subprocess.run([sys.executable, "-m", "paimon_cli", "read", str(bench.root)], capture_output=True, text=True)
    assert done.returncode == 10 and str(path) in done.stderr and "Traceback" not in done.stderr
