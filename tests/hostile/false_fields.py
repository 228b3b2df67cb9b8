"""Tables in which one field of one metadata file is false, with right sizes and names, so that the false value is what is met.

Commands run in this process, one after the other, each on a copy of its own. They must end with a documented exit code and
without a traceback, and touch nothing outside of the table. A read that succeeds must return the rows of the sound table, unless
the field has that meaning.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any

import fastavro
from typer.testing import CliRunner

from paimon_cli.cli.app import app
from tests import tables
from tests.goldens import golden_table
from tests.invariants.damaged_tables import keyed_table

MAX_SECONDS = 30
EXIT_CODES = {0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
"""All documented ones but 1, which is a bug."""
STAGE = "staged.json"
SECRET = "what nobody may read"
HUGE = 2**62
_ABSENT = object()

NUMBERS = (-1, -7, 0, 1, 7, 2**31, HUGE, -HUGE)
TEXTS = ("", "unknown", "../../outside/secret", "/etc/passwd", "a\0b", "\x1b[31mred", "%2e%2e%2foutside", "x" * 5000)
BYTES = (b"", bytes(11), bytes(20), b"\xff" * 12, b"\x7f\xff\xff\xff" + bytes(20), bytes(300))
WRONG: tuple[Any, ...] = (
    None,
    _ABSENT,
    True,
    1.5,
    -1,
    HUGE,
    10**30,
    "",
    "text",
    "../../outside/secret",
    [],
    [None],
    {},
    {"a": None},
)
"""Values for JSON, whatever the field holds."""

MEANINGFUL = {
    "snapshot *.indexManifest = None": "a snapshot without vectors is as valid; `verify` compares it with the snapshot before",
    "snapshot *.indexManifest = absent": "the same",
    "schema *.fields*": "fewer or other columns are as valid: files may hold columns that were dropped; Java too looks for those "
    "of the schema only",
    "schema *.options*": "options decide how versions of a row are merged, and which levels are shown",
    "manifest _FILE._LEVEL": "no file knows its level, but tables with deletion vectors hide level 0; `verify --level full` "
    "finds keys that are visible twice (PV033)",
    "index manifest _DELETIONS_VECTORS_RANGES.f0": "Java leaves vectors of files that are gone; `verify` names them (PV016)",
}
"""Fields, or fields with one value, with which `read` may return other rows, and why no reader can tell."""

READING = (
    "read {t} -o ndjson",
    "read {t} --count",
    "read {t} -l 1",
    "describe {t}",
    "describe {t} -o json",
    "cost {t}",
    "snapshots ls {t}",
    "snapshots show {t} latest",
    "snapshots diff {t} 1 2",
    "tags ls {t}",
    "tags show {t} kept",
    "branches ls {t}",
    "consumers ls {t}",
    "manifests ls {t}",
    "files ls {t}",
    "files ls {t} -o json",
    "lsm show {t}",
    "lsm explain {t}",
    "compactions ls {t}",
    "compactions show {t}",
    "partitions ls {t}",
    "buckets ls {t}",
    "buckets plan {t}",
    "indexes ls {t}",
    "dv ls {t}",
    "dv ls {t} --dangling",
    "schemas ls {t}",
    "schemas show {t}",
    "options ls {t}",
    "orphans ls {t} --older-than 0s",
    "changelog read {t}",
    "verify {t}",
    "verify {t} --level full --all-snapshots",
    "repair {t}",
    "doctor {t}",
    "health {t}",
    "health --database w --warehouse {place}",
    "stage show {t}/staged.json",
    "export iceberg {t} --output-path {out}/iceberg",
    "advise {t}",
    "report {t} --html {out}/r.html",
    "compare {t} {sound}",
    "bisect {t} -w 1=1",
    "blame {t} --key k=1",
    "history check {t}",
    "ls {w}",
    "tables ls {w}",
    "read {t} --snapshot 1",
    "read {t} --tag kept",
    "read {t}$branch_b",
    "read {t} --incremental 1..2",
    "sql SELECT_COUNT",
    "simulate {t}",
)
CHANGING = (
    "compact {t} --engine local",
    "compact {t} --strategy full --engine local",
    "compact-manifests {t}",
    "write {t} {rows} --engine local",
    "ingest {rows} --format json --into {t}",
    "update {t} --set n=1 -w k=1",
    "delete {t} -w k=1",
    "expire {t} --retain-max 1 --retain-min 1 --older-than 0s -y",
    "expire {t} --what tags -y",
    "expire {t} --what changelogs --retain-max 1 --retain-min 1 -y",
    "orphans rm {t} --older-than 0s -y",
    "repair {t} --apply -y",
    "erase {t} -w k=1 --older-than 0s -y --engine local",
    "rollback {t} --to 1 -y",
    "rollback {t} --to 1 --as-new -y",
    "tags create {t} new",
    "tags rm {t} kept",
    "tags rename {t} kept other",
    "tags replace {t} kept --snapshot 2",
    "branches create {t} c --snapshot 1",
    "branches rm {t} b -y",
    "branches rename {t} b d",
    "branches fast-forward {t} b -y",
    "consumers reset {t} reader --next 1",
    "consumers rm {t} reader",
    "truncate {t} -y",
    "drop {t} -y",
    "alter {t} set a.b=c",
    "alter {t} comment other",
    "rescale {t} --buckets 3 -y --engine local",
    "analyze {t}",
    "tables clone {t} {out}/clone",
    "partitions mark-done {t} dt=a",
    "compact --all-tables --warehouse {w} --engine local",
    "compact --database w --warehouse {place} --engine local",
    "compact {t} --watch --max-rounds 1 --engine local",
    "compact {t} --dedicated --watch --expire --max-rounds 1 --engine local",
    "export iceberg {t}",
    "stage commit {t}/staged.json --table {t}",
)


@dataclass(frozen=True)
class Lie:
    """A false value: `where` is the kind of the file and the field, `value` shows what stands there."""

    shape: str
    where: str
    value: str
    path: str
    content: bytes
    resized: bool = False
    """Whether the sizes that other files record must be corrected."""


@dataclass
class Figures:
    cases: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def shapes(folder: Path) -> dict[str, Path]:
    """Sound tables with every kind of metadata file: one with keys, one with deletion vectors, one with hash indexes."""
    return {
        "keyed": _staged(keyed_table(folder), {"dt": "a", "k": 1, "v": "new", "n": 5}),
        "vectors": golden_table("java-0.9", "dv_dedup", folder),
        "append-vectors": _append_table(folder),
        "dynamic": golden_table("java-0.9", "dynamic_bucket", folder),
    }


def _staged(root: Path, row: dict[str, Any]) -> Path:
    """The table with data files that are not committed, and the file that describes them."""
    rows, stage = root.with_suffix(".json"), root / STAGE
    rows.write_text(json.dumps(row))
    answer = CliRunner().invoke(app, ["write", str(root), str(rows), "--engine", "local", "--stage", str(stage)])
    assert answer.exit_code == 0, answer.output
    return root


def _append_table(folder: Path) -> Path:
    options = {"deletion-vectors.enabled": "true"}
    context = tables.make_table(folder / "append", {"k": "INT", "v": "STRING", "n": "INT"}, [], (), -1, options)
    tables.write(context, [{"k": k, "v": "x", "n": k} for k in range(20)])
    answer = CliRunner().invoke(app, ["delete", context.url, "-w", "k = 2"])
    assert answer.exit_code == 0, answer.output
    return _staged(Path(context.url), {"k": 1, "v": "new", "n": 5})


def lies(shape: str, root: Path) -> Iterator[Lie]:
    """Every field of every kind of metadata file of the table, set to each false value."""
    newest = json.loads(max(root.glob("snapshot/snapshot-*"), key=lambda p: int(p.name[9:])).read_text())
    json_files = {
        "snapshot": f"snapshot/snapshot-{newest['id']}",
        "older snapshot": "snapshot/snapshot-1",
        "schema": "schema/schema-0",
        "tag": "tag/tag-kept",
        "changelog": "changelog/changelog-1",
        "consumer": "consumer/consumer-reader",
        "branch snapshot": "branch/branch-b/snapshot/snapshot-1",
        "branch schema": "branch/branch-b/schema/schema-0",
    }
    for kind, name in json_files.items():
        if (root / name).exists():
            yield from _false_json(shape, kind, name, json.loads((root / name).read_text()))
    if (root / STAGE).exists():
        yield from _false_stage(shape, json.loads((root / STAGE).read_text()))
    for name in ("LATEST", "EARLIEST"):
        for text in ("", "-1", "0", "99", "1.5", str(HUGE), "9" * 50, "../../outside/secret", "\0", "x" * 100_000):
            yield Lie(shape, f"hint {name}", text[:20], f"snapshot/{name}", text.encode())
    lists = {newest[key] for key in ("baseManifestList", "deltaManifestList")}
    manifests = {row["_FILE_NAME"] for name in lists for row in _records(root / "manifest" / name)[1]}
    avro = [*(("manifest list", name) for name in sorted(lists)), *(("manifest", name) for name in sorted(manifests)[-2:])]
    if newest.get("indexManifest"):
        avro.append(("index manifest", newest["indexManifest"]))
        for row in _records(root / "manifest" / newest["indexManifest"])[1][:1]:
            yield from _false_bytes(shape, root, f"index/{row['_FILE_NAME']}")
    for kind, name in avro:
        yield from _false_avro(shape, kind, root / "manifest" / name)


def _false_json(shape: str, kind: str, name: str, sound: Any) -> Iterator[Lie]:
    for steps in _places(sound):
        for value in WRONG:
            if len(steps) > 4 and value not in (None, -1, "text"):
                continue
            content = json.dumps(_with(sound, steps, value)).encode()
            yield Lie(shape, f"{kind} {name.rpartition('-')[0]}.{'.'.join(map(str, steps))}", _shown(value), name, content)


def _false_stage(shape: str, sound: Any) -> Iterator[Lie]:
    """Stage files with right checksums."""
    for lie in _false_json(shape, "stage", STAGE, sound["content"]):
        yield replace(lie, content=_signed(sound, json.loads(lie.content)))


def _signed(document: Any, content: Any) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps({**document, "sha256": hashlib.sha256(text.encode()).hexdigest(), "content": content}).encode()


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*at, key)
        yield from _places(inner, (*at, key))


def _with(value: Any, steps: tuple[Any, ...], new: Any) -> Any:
    """A copy of the value with something else at one place."""
    key, *rest = steps
    copy = dict(value) if isinstance(value, dict) else list(value)
    if not rest and new is _ABSENT:
        del copy[key]
    else:
        copy[key] = _with(value[key], tuple(rest), new) if rest else new
    return copy


def _records(path: Path) -> tuple[Any, list[dict[str, Any]]]:
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        return json.loads(reader.metadata["avro.schema"]), [dict(row) for row in reader if isinstance(row, dict)]


def _false_avro(shape: str, kind: str, path: Path) -> Iterator[Lie]:
    schema, rows = _records(path)
    firsts = (0, len(rows) - 1) if len(rows) > 1 else (0,)
    for (steps, declared), first in product(_avro_fields(schema), firsts):
        for value in _false_values(declared):
            changed = [*rows[:first], *(_set(row, steps, value) for row in rows[first:])]
            content = _encoded(_retyped(schema, steps, value), changed)
            if content is not None:
                where, of = f"{kind} {'.'.join(steps)}", " in the last" if first else ""
                yield Lie(shape, where, _shown(value) + of, f"manifest/{path.name}", content, resized=True)


def _avro_fields(schema: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    kind = next((part for part in schema if part != "null"), "null") if isinstance(schema, list) else schema
    if isinstance(kind, dict) and kind["type"] == "array":
        yield from _avro_fields(kind["items"], at)
    elif isinstance(kind, dict) and kind["type"] == "record":
        for one in kind["fields"]:
            yield (*at, one["name"]), one["type"]
            yield from _avro_fields(one["type"], (*at, one["name"]))


def _false_values(declared: Any) -> tuple[Any, ...]:
    kinds = json.dumps(declared)
    if "record" in kinds or "array" in kinds:
        return (None, [], "text", -1)
    if '"long"' in kinds or '"int"' in kinds:
        return (*NUMBERS, None, "text", b"\1")
    return (*(BYTES if '"bytes"' in kinds else TEXTS), None, -1)


def _set(value: Any, steps: tuple[str, ...], new: Any) -> Any:
    """The record with a new value at the path, in all items of the lists on the way."""
    if isinstance(value, list):
        return [_set(item, steps, new) for item in value]
    if not isinstance(value, dict):
        return value
    return {**value, steps[0]: _set(value[steps[0]], steps[1:], new) if len(steps) > 1 else new}


_TYPES = {type(None): "null", int: "long", str: "string", bytes: "bytes"}


def _retyped(schema: Any, steps: tuple[str, ...], value: Any) -> Any:
    """The schema in which the field may hold the value."""
    copy = json.loads(json.dumps(schema))
    parts: Any = copy
    for step in steps:
        parts = _record_in(parts)
        found = next(one for one in parts["fields"] if one["name"] == step)
        parts = found["type"]
    wanted = _TYPES.get(type(value))
    kinds = found["type"] if isinstance(found["type"], list) else [found["type"]]
    if wanted is not None and wanted not in kinds and not (wanted == "long" and "int" in kinds and abs(value) < 2**31):
        found["type"] = [*kinds, "null"] if wanted == "null" else wanted
    found.pop("default", None)
    return copy


def _record_in(schema: Any) -> Any:
    if isinstance(schema, list):
        return _record_in(next(part for part in schema if part != "null"))
    return _record_in(schema["items"]) if schema["type"] == "array" else schema


def _encoded(schema: Any, rows: list[dict[str, Any]]) -> bytes | None:
    """None for a value that Avro cannot hold."""
    out = io.BytesIO()
    try:
        fastavro.writer(out, fastavro.parse_schema(schema), rows)
    except (ValueError, TypeError, OverflowError, AttributeError):
        return None
    return out.getvalue()


def _false_bytes(shape: str, root: Path, name: str) -> Iterator[Lie]:
    """An index file whose header says something else; its size stays right."""
    sound = (root / name).read_bytes()
    for place in (0, 1, 5, 9, 13, len(sound) - 4):
        for new in (b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff"):
            content = (sound[:place] + new + sound[place + 4 :])[: len(sound)]
            yield Lie(shape, f"index file byte {place}", new.hex(), name, content)


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else repr(value)[:40]


def plant(root: Path, lie: Lie) -> None:
    """Put the false file in place and correct the sizes that the lists and snapshots record."""
    (root / lie.path).write_bytes(lie.content)
    if (root / STAGE).exists():
        document = json.loads((root / STAGE).read_text())
        if (table := document["content"].get("table")) and Path(str(table)).name in ("keyed", "append"):
            (root / STAGE).write_bytes(_signed(document, {**document["content"], "table": str(root)}))
    if not lie.resized:
        return
    for path in root.glob("manifest/manifest-list-*"):
        schema, rows = _records(path)
        named = Path(lie.path).name
        if path.name != named and any(row["_FILE_NAME"] == named for row in rows):
            changed = [{**row, "_FILE_SIZE": len(lie.content)} if row["_FILE_NAME"] == named else row for row in rows]
            path.write_bytes(_encoded(schema, changed) or b"")
    for path in [*root.glob("snapshot/snapshot-*"), *root.glob("tag/tag-*"), *root.glob("changelog/changelog-*")]:
        snapshot = json.loads(path.read_text())
        for key in [key for key in snapshot if key.endswith("ManifestListSize") and snapshot[key] is not None]:
            snapshot[key] = (root / "manifest" / snapshot[key[:-4]]).stat().st_size
        path.write_text(json.dumps(snapshot))


def commands_of(lie: Lie) -> list[str]:
    """All commands but the first that meet the file."""
    return [command for command in (*READING[1:], *CHANGING) if lie.path != STAGE or STAGE in command]


def may_change_rows(where: str, value: str) -> bool:
    return any(fnmatch(f"{where} = {value}", name if " = " in name else f"{name} = *") for name in MEANINGFUL)


class Trial:
    """Runs commands against hostile tables, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sound = shapes(folder / "sound")
        (folder / "outside").mkdir()
        (folder / "outside/secret").write_text(SECRET)
        (folder / "out").mkdir()
        (folder / "rows.json").write_text('{"dt": "a", "k": 1, "v": "new", "n": 5}\n')
        self.figures = Figures()
        self.rows = {shape: self._read(root) for shape, root in self.sound.items()}
        (folder / "case").mkdir()
        self.outside = self._outside()

    def all_lies(self) -> list[Lie]:
        return [lie for shape, root in self.sound.items() for lie in lies(shape, root)]

    def _read(self, root: Path) -> list[str]:
        return sorted(CliRunner().invoke(app, ["read", str(root), "-o", "ndjson"]).stdout.splitlines())

    def pairs(self, count: int, seed: int) -> list[tuple[Lie, str]]:
        """`count` of all pairs of a lie and a command; every lie is read at least once if there is room."""
        chance = random.Random(seed)
        all_lies = self.all_lies()
        pairs = [(lie, READING[0]) for lie in all_lies if lie.path != STAGE]
        chance.shuffle(pairs)
        others = [(lie, command) for lie in all_lies for command in commands_of(lie)]
        reads = pairs[: count // 3]
        chosen = reads + chance.sample(others, min(count - len(reads), len(others)))
        chance.shuffle(chosen)  # a run that ends early has met every command
        return chosen

    def run(self, lie: Lie, command: str) -> None:
        place = self.folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        root = place / "w.db" / "t"
        shutil.copytree(self.sound[lie.shape], root)
        plant(root, lie)
        if command.startswith("sql"):
            words = ["sql", f"SELECT count(*) FROM '{root}'"]
        else:
            names: Mapping[str, object] = {
                "t": root,
                "w": place / "w.db",
                "place": place,
                "out": place / "out",
                "rows": self.folder / "rows.json",
                "sound": self.sound[lie.shape],
            }
            words = [word.format(**names) for word in command.split()]
        (place / "out").mkdir()
        code, said = self._invoke(words)
        self.figures.cases += 1
        self.figures.codes[code] += 1
        if lie.path == STAGE and code == 0 and (after := self._invoke(["read", str(root)]))[0]:
            self.figures.faults.append(f"{lie.shape}: {lie.where} = {lie.value}; {command}: then read: {after}")
        for fault in self._faults(lie, command, code, said):
            self.figures.faults.append(f"{lie.shape}: {lie.where} = {lie.value}; {command}: {fault}")
        before, self.outside = self.outside, self._outside()
        if self.outside != before:
            self.figures.faults.append(f"{lie.shape}: {lie.where} = {lie.value}; {command}: files outside of the table changed")

    def _invoke(self, words: list[str]) -> tuple[int, str]:
        def over(number: int, frame: object) -> None:
            raise TimeoutError(f"more than {MAX_SECONDS} s")

        old = signal.signal(signal.SIGALRM, over)
        signal.alarm(MAX_SECONDS)
        try:
            result = CliRunner().invoke(app, words)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, old)
        return result.exit_code, result.output

    def _faults(self, lie: Lie, command: str, code: int, said: str) -> Iterator[str]:
        if code not in EXIT_CODES or "Traceback" in said:
            yield f"exit code {code}: {said[-300:]!r}"
        if SECRET in said:
            yield "shows a file outside of the table"
        if command == READING[0] and code == 0 and not may_change_rows(lie.where, lie.value):
            found = sorted(line for line in said.splitlines() if line.startswith("{"))
            if found != self.rows[lie.shape]:
                yield f"exit code 0 with {len(found)} rows instead of {len(self.rows[lie.shape])}, or others"

    def _outside(self) -> dict[str, object]:
        kept: dict[str, object] = {}
        for top in ("outside", "sound"):
            for place, _, names in os.walk(self.folder / top):
                for name in names:
                    status = os.stat(f"{place}/{name}")
                    kept[f"{place}/{name}"] = (status.st_size, status.st_mtime_ns)
        kept.update({str(path): () for path in self.folder.iterdir()})
        return kept
