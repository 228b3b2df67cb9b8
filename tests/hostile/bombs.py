"""Metadata that claims more than it holds: huge counts and lengths, deep nesting, blocks that expand without end.

Each bomb takes the place of a file of a sound table. Commands meet it in processes of their own: they must end soon, with one
clear error, and must not take memory as the bomb says.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro

from paimon_cli.metadata.avro_writer import zstd_module
from tests.tables import compact, make_table, write

HUGE = 1 << 61
MAX_MEMORY = 900 << 20
MAX_SECONDS = 60.0
"""Limit for processor time; commands take one or two seconds."""
MARKER = b"m" * 16
COMMANDS = (
    "read",
    "files ls",
    "verify",
    "expire --retain-max 1 --retain-min 1 --older-than 0s --dry-run",
    "compact --engine local",
)
EXIT_CODES = {4, 8, 9, 10}
Place = Callable[[Path], Path]


def long(number: int) -> bytes:
    return encoded("long", number)


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def container(schema: bytes, codec: str, *blocks: tuple[int, bytes]) -> bytes:
    """An Avro file whose blocks claim these numbers of records."""
    header = encoded({"type": "map", "values": "bytes"}, {"avro.schema": schema, "avro.codec": codec.encode()})
    parts = [long(count) + long(len(block)) + block + MARKER for count, block in blocks]
    return b"Obj\x01" + header + MARKER + b"".join(parts)


def schema_of(path: Path) -> bytes:
    """The schema that a sound file has."""
    with path.open("rb") as stream:
        return json.dumps(fastavro.reader(stream).writer_schema).encode()


def zeros(size: int, codec: str) -> bytes:
    """`size` zero bytes, compressed."""
    portion = bytes(1 << 20)
    packer = zstd_module().ZstdCompressor() if codec == "zstandard" else zlib.compressobj(1, zlib.DEFLATED, -15)
    return b"".join([*(packer.compress(portion) for _ in range(size >> 20)), packer.flush()])


def unfolding(path: Path) -> Iterator[tuple[str, bytes]]:
    schema = schema_of(path)
    yield "zstd of 2 GiB", container(schema, "zstandard", (5, zeros(2 << 30, "zstandard")))
    yield "deflate of 256 MiB", container(schema, "deflate", (5, zeros(256 << 20, "deflate")))
    yield "snappy that claims 4 GiB", container(schema, "snappy", (5, b"\xff\xff\xff\xff\x0f" + bytes(40)))
    yield "a hundred blocks of 15 MiB", container(schema, "zstandard", *[(1, zeros(15 << 20, "zstandard"))] * 100)


def counting(path: Path) -> Iterator[tuple[str, bytes]]:
    schema = schema_of(path)
    yield "a block of 2^61 records", container(schema, "null", (HUGE, b"\0" * 50))
    yield "a block of -2^61 records", container(schema, "null", (-HUGE, b"\0" * 50))
    yield "a block of 2^61 bytes", b"".join([container(schema, "null"), long(1), long(HUGE), b"\0" * 50])
    yield "a string of 2^61 bytes", container(schema, "null", (1, long(HUGE) + b"\0" * 50))
    yield "lengths of 2^61 everywhere", container(schema, "null", (1, long(HUGE) * 30))
    yield "negative lengths everywhere", container(schema, "null", (1, long(-HUGE) * 30))
    yield "a header of 2^61 entries", b"Obj\x01" + long(HUGE) + b"\0" * 50
    nothing = {"type": "record", "name": "record", "fields": []}
    yield "2^61 records of nothing", container(json.dumps(nothing).encode(), "null", (HUGE, b""))
    endless = {"type": "record", "name": "record", "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}]}
    yield "an array of 2^61 nulls", container(json.dumps(endless).encode(), "null", (1, long(HUGE)))


def nesting(path: Path) -> Iterator[tuple[str, bytes]]:
    deep = b'{"type":"record","name":"record","fields":[{"name":"x","type":' + b'{"type":"array","items":' * 50_000
    yield "a schema of 50,000 levels", container(deep + b'"int"' + b"}" * 50_000 + b"}]}", "null", (1, b"\2"))
    itself = {"type": "record", "name": "record", "fields": [{"name": "x", "type": ["null", "record"]}]}
    yield "a record that holds itself", container(json.dumps(itself).encode(), "null", (1, b"\2" * 500_000 + b"\0"))


def texts(path: Path) -> Iterator[tuple[str, bytes]]:
    """Hostile texts for a JSON file."""
    sound = json.loads(path.read_text())
    yield "JSON of 200,000 levels", b"[" * 200_000
    yield "an object of 100,000 levels", b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    whole = json.dumps({**sound, "id": "ID"})
    yield "a number of a million digits", whole.replace('"ID"', "9" * 1_000_000).encode()
    yield "a number of 2^61", json.dumps({**sound, "id": HUGE}).encode()


def amplified(path: Path) -> Iterator[tuple[str, bytes]]:
    """A list that names its manifest very often, or says that a manifest has 2^61 entries."""
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        schema, records = reader.writer_schema, [dict(record) for record in reader if isinstance(record, dict)]
    for name, listed in (
        ("a manifest 3,000 times", records * 3000),
        ("manifests of 2^61 bytes", [{**one, "_FILE_SIZE": HUGE} for one in records]),
        ("manifests of 2^61 entries", [{**one, "_NUM_ADDED_FILES": HUGE, "_NUM_DELETED_FILES": HUGE} for one in records]),
    ):
        out = io.BytesIO()
        fastavro.writer(out, schema, listed, codec="deflate")
        yield name, out.getvalue()


def newest(root: Path) -> dict[str, Any]:
    number = max(int(path.name.rpartition("-")[2]) for path in root.glob("snapshot/snapshot-*"))
    found: dict[str, Any] = json.loads((root / f"snapshot/snapshot-{number}").read_text())
    return found


def manifest_list(root: Path) -> Path:
    return root / "manifest" / newest(root)["baseManifestList"]


def manifest(root: Path) -> Path:
    with manifest_list(root).open("rb") as stream:
        return root / "manifest" / next(record["_FILE_NAME"] for record in fastavro.reader(stream) if isinstance(record, dict))


def snapshot(root: Path) -> Path:
    return root / f"snapshot/snapshot-{newest(root)['id']}"


def schema(root: Path) -> Path:
    return root / "schema/schema-0"


SORTS: tuple[tuple[str, Place, Callable[[Path], Iterator[tuple[str, bytes]]]], ...] = (
    *((f"manifest list: {kind.__name__}", manifest_list, kind) for kind in (unfolding, counting, nesting, amplified)),
    *((f"manifest: {kind.__name__}", manifest, kind) for kind in (unfolding, counting, nesting)),
    ("snapshot", snapshot, texts),
    ("schema", schema, texts),
)


@dataclass(frozen=True)
class Met:
    """How a command ended that read a bomb. An expiry that cannot read a manifest leaves its files to orphan cleaning."""

    bomb: str
    command: str
    code: int
    seconds: float
    memory: int
    said: str

    @property
    def complaint(self) -> str:
        harmless = self.bomb.endswith(("2^61 entries", "3,000 times"))
        left_alone = self.bomb.startswith("manifest: ") and self.command.startswith("expire")
        if self.code not in EXIT_CODES and not (self.code == 0 and (harmless or left_alone)):
            return f"exit code {self.code}: {self.said[-800:]}"
        if "Traceback" in self.said:
            return f"a traceback: {self.said[-800:]}"
        if self.memory > MAX_MEMORY:
            return f"{self.memory >> 20} MB"
        return f"{self.seconds:.0f} s" if self.seconds > MAX_SECONDS else ""


def meet(root: Path, bomb: str, command: str) -> Met:
    words, _, options = command.partition(" --")
    line = [*words.split(), str(root), *(f"--{options}".split() if options else [])]
    said = root.parent / "said"
    with said.open("wb") as sink:
        process = subprocess.Popen([sys.executable, "-m", "paimon_cli", *line], stdout=sink, stderr=sink, preexec_fn=_bounded)
        begun = time.monotonic()
        while True:
            number, status, usage = os.wait4(process.pid, os.WNOHANG)
            if number:
                break
            if time.monotonic() - begun > 10 * MAX_SECONDS:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    return Met(bomb, command, process.returncode, seconds, usage.ru_maxrss << 10, said.read_text(errors="replace"))


def _bounded() -> None:
    """Let the kernel end endless loops, and refuse memory before the machine runs out of it."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(2 * MAX_SECONDS), int(2 * MAX_SECONDS) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def bombs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Each bomb with a table that holds it."""
    image, root = folder / "image", folder / "t"
    context = make_table(image, {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
    for number in range(3):
        write(context, [{"k": k, "v": str(number)} for k in range(5)])
    compact(context, strategy="full")
    for sort, place, kind in SORTS:
        for name, content in kind(place(image)):
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(image, root)
            place(root).write_bytes(content)
            yield f"{sort}: {name}", root
