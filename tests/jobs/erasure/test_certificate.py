"""The certificate of an erasure is true, shows no one whose keys they were, and replaces nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.jobs.erasure.certificate import Certificate
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys, ErasedMatches, key_fields
from tests.tables import make_table

SECRET = bytes(range(32))
PROOF = {"found": [], "manifests": 1234, "index_files": 1, "data_files": 2, "rows": 5678, "unnamed_files": 3}
FILES = [{"old": "bucket-0/a", "new": "bucket-0/b", "rows": 2}, {"old": "bucket-1/a", "new": None, "rows": 1}]
CONTENT: dict[str, Any] = {
    **{
        "table": "shop.orders",
        "time": "2026-01-02T03:04:05+00:00",
        "rows": 3,
        "files": FILES,
        "versions": ["snapshot-1", "tag-x"],
    },
    **{"snapshots": [4], "proof": PROOF, "outside": ["a clone", "Kafka é"], "trash": []},
}


def code(message: str) -> str:
    return hmac.new(SECRET, message.encode(), hashlib.sha256).hexdigest()


@pytest.fixture
def keys(tmp_path: Path) -> ErasedKeys:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "name": "STRING NOT NULL", "v": "INT"}, ["id", "name"])
    schema = pa.schema([arrow_field(one) for one in key_fields(context.schema)])
    rows = [{"id": number, "name": f"é{number}"} for number in range(9)]
    return ErasedKeys.of(context.schema, [pa.RecordBatch.from_pylist(rows, schema=schema)])


@pytest.fixture
def matches() -> ErasedMatches:
    return ErasedMatches({})


def test_who_has_the_secret_can_check_keys_and_seal(tmp_path: Path, keys: ErasedKeys) -> None:
    """With another program: HMAC-SHA256 over compact JSON."""
    Certificate(str(tmp_path / "c"), SECRET).write(keys, None, CONTENT)
    found = json.loads((tmp_path / "c").read_text())
    assert found["keys"] == sorted(code(f'{{"id":{number},"name":"é{number}"}}') for number in range(9))
    assert {name: found[name] for name in CONTENT} == CONTENT and found["condition"] is None
    seal = found.pop("seal")
    assert seal == code(json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["c", "c.txt"]


def test_a_condition_does_not_stand_in_the_certificate(tmp_path: Path, matches: ErasedMatches) -> None:
    Certificate(str(tmp_path / "c"), SECRET).write(matches, "name = 'Zoe'", CONTENT)
    assert json.loads((tmp_path / "c").read_text())["condition"] == code("name = 'Zoe'")
    assert "Zoe" not in (tmp_path / "c").read_text() + (tmp_path / "c.txt").read_text()


def test_the_text_has_all_that_was_done(tmp_path: Path, keys: ErasedKeys) -> None:
    trash = [
        {"path": "/trash/1", "files": 2, "searched": 9, "found": []},
        {"path": "/trash/2", "files": 1, "searched": 8, "found": ["x"]},
    ]
    Certificate(str(tmp_path / "c"), SECRET).write(keys, None, {**CONTENT, "trash": trash})
    found = json.loads((tmp_path / "c").read_text())
    assert (tmp_path / "c.txt").read_text().splitlines() == [
        *("Certificate of an erasure from shop.orders", ""),
        "finished         2026-01-02T03:04:05+00:00",
        "rows             3 of 9 keys",
        "data files       2 written again without them",
        "versions         2 replaced",
        "proof            FOUND in 1 file",
        "                 read: 2 data files with 5,678 rows, 1,234 manifests and lists, 1 index file,",
        "                 3 files that no version names",
        "earlier table    /trash/1: 2 data files written again, nothing was found of 9 files",
        "earlier table    /trash/2: 1 data file written again, FOUND in 1 file of 8 files",
        *("", "Not part of the table, and not erased from:", "  - a clone", "  - Kafka é"),
        *("", "Files that were replaced:", "  bucket-0/a -> bucket-0/b (2 rows erased)"),
        "  bucket-1/a -> nothing is left (1 row erased)",
        *("", "Keys (HMAC-SHA256 with the secret of the certificate):", *(f"  {key}" for key in found["keys"])),
        *("", f"seal             {found['seal']}"),
    ]


@pytest.mark.parametrize(
    ("left", "verdict"), [([], "nothing was found"), (["a"], "FOUND in 1 file"), (["a", "b"], "FOUND in 2 files")]
)
def test_the_text_says_what_was_found(tmp_path: Path, matches: ErasedMatches, left: list[str], verdict: str) -> None:
    Certificate(str(tmp_path / "c"), SECRET).write(matches, "v", {**CONTENT, "proof": {**PROOF, "found": left}})
    lines = (tmp_path / "c.txt").read_text().splitlines()
    assert f"proof            {verdict}" in lines and "rows             3" in lines


def test_the_secret_is_kept_for_a_command_that_goes_on(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        first = Certificate.begin(str(tmp_path / "c"))
    finally:
        os.umask(old)
    secret = tmp_path / "c.secret"
    assert secret.stat().st_mode & 0o777 == 0o600 and secret.read_text() == first.secret.hex() and len(first.secret) == 32
    assert Certificate.begin(str(tmp_path / "c")) == first
    secret.write_text(first.secret.hex() + "\n")
    assert Certificate.begin(str(tmp_path / "c")) == first
    assert Certificate.begin(str(tmp_path / "d")).secret != first.secret


@pytest.mark.parametrize("content", [b"", b"ab" * 31, b"ab" * 33, b"ab" * 32 + b"c", b"zz" * 32, b"\xff" * 64])
def test_what_is_no_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.secret").write_bytes(content)
    with pytest.raises(UsageError, match="holds no secret"):
        Certificate.begin(str(tmp_path / "c"))
    assert (tmp_path / "c.secret").read_bytes() == content


@pytest.mark.parametrize("suffix", ["", ".txt", ".new", ".txt.new"])
def test_no_other_file_is_replaced(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"notes{suffix}").symlink_to("elsewhere")
    for may_exist in (False, True):
        with pytest.raises(UsageError, match=f"notes{suffix} exists"):
            Certificate.check_new(str(tmp_path / "notes"), "t", may_exist=may_exist)


def test_a_certificate_is_whole_or_not_there(tmp_path: Path, matches: ErasedMatches, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = Certificate(str(tmp_path / "c"), SECRET)
    certificate.write(matches, "v", CONTENT)
    before = (tmp_path / "c").read_bytes(), (tmp_path / "c.txt").read_bytes()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StorageUnavailable, match="cannot write"):
        certificate.write(matches, "other", {**CONTENT, "rows": 9})
    assert ((tmp_path / "c").read_bytes(), (tmp_path / "c.txt").read_bytes()) == before


def test_all_is_on_the_disk_before_it_counts(tmp_path: Path, matches: ErasedMatches, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it the record of the erasure goes, which alone could tell the keys once more."""
    log: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        assert path.stat().st_size, "all was written before"
        log.append(path.name)

    def replaced(old: str, new: str) -> None:
        replace(old, new)
        log.append(f"-> {Path(new).name}")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    Certificate.begin(str(tmp_path / "c")).write(matches, "v", CONTENT)
    assert log == ["c.secret", "c.new", "-> c", "c.txt.new", "-> c.txt"]


def test_the_certificate_of_another_table_is_not_replaced(tmp_path: Path, matches: ErasedMatches) -> None:
    """Though an erasure from this one is to be finished, and the secret is there."""
    path = str(tmp_path / "c")
    Certificate.begin(path).write(matches, "v", CONTENT)
    Certificate.check_new(path, "shop.orders", may_exist=True)
    with pytest.raises(UsageError, match="never replaced"):
        Certificate.check_new(path, "shop.customers", may_exist=True)
    (tmp_path / "c").write_text("[" * 100_000)
    Certificate.check_new(path, "shop.customers", may_exist=True)
