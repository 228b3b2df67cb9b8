"""The certificate of an erasure: which keys, which files, and the proof, without saying whose keys they were.

Identifiers can be guessed, and so can their plain hashes. The certificate has HMAC-SHA256 codes instead, with a secret that is
written to a file of its own: who has it can show that a certain key was erased, and others learn nothing.

    FILE           the certificate (JSON)
    FILE.txt       the same to read
    FILE.secret    the secret, 64 hexadecimal digits (mode 0600)

The code of a key is over its columns as compact JSON in the canonical form, such as `{"id":7}`; the seal is over the certificate
without it, as JSON with sorted keys.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from paimon_cli.datatypes.canonical_form import canonical_rows, compact_json
from paimon_cli.errors import UsageError, of_system
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys, ErasedRows, key_fields
from paimon_cli.options.option_text import counted

_SECRET_SUFFIX, _TEXT_SUFFIX = ".secret", ".txt"
_UNFINISHED = ".new"
_SECRET_BYTES = 32
_SECRET_DIGITS = 2 * _SECRET_BYTES
_VERSION = 1


@dataclass(frozen=True)
class Certificate:
    """Where a certificate goes, and its secret."""

    path: str
    secret: bytes

    @staticmethod
    def check_new(path: str, table: str, *, may_exist: bool) -> None:
        """Raise `UsageError` if there is a certificate, or another file that one would replace. `may_exist`: it may be that of an
        erasure from the table that is to be finished, whose secret is beside it.
        """
        if may_exist and os.path.exists(path + _SECRET_SUFFIX) and _table_of(path) in (None, table):
            return
        for file in (path, path + _TEXT_SUFFIX, path + _UNFINISHED, path + _TEXT_SUFFIX + _UNFINISHED):
            if os.path.lexists(file):
                why = "a certificate is never replaced, and replaces no other file; it is written when its erasure is done"
                raise UsageError(f"{file} exists", why, "name another file")

    @staticmethod
    def begin(path: str) -> Certificate:
        """Write the secret, or read that of a command that was killed, before anything is erased. Raises `StorageUnavailable` if
        the file cannot be written.
        """
        try:
            file = os.open(path + _SECRET_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return Certificate(path, _read_secret(path + _SECRET_SUFFIX))
        except OSError as error:
            raise of_system(error) from error
        secret = secrets.token_bytes(_SECRET_BYTES)
        with os.fdopen(file, "w") as sink:
            _write(sink, secret.hex())
        return Certificate(path, secret)

    def write(self, rows: ErasedRows, condition: str | None, content: Mapping[str, Any]) -> None:
        """Write the certificate of an erasure as JSON and as text."""
        keys: list[str] = []
        if isinstance(rows, ErasedKeys):
            fields = key_fields(rows.schema)
            keys = sorted(self._code(compact_json(row)) for row in canonical_rows(rows.rows, fields))
        found = {
            "version": _VERSION,
            "kind": "ErasureCertificate",
            **content,
            "keys": keys,
            "condition": None if condition is None else self._code(condition),
        }
        found["seal"] = self._code(json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
        self._put(self.path, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        self._put(self.path + _TEXT_SUFFIX, _text(found))

    def _code(self, message: str) -> str:
        return hmac.new(self.secret, message.encode(), hashlib.sha256).hexdigest()

    def _put(self, path: str, text: str) -> None:
        try:
            with open(path + _UNFINISHED, "w", encoding="utf-8") as sink:
                _write(sink, text)
            os.replace(path + _UNFINISHED, path)
        except OSError as error:
            raise of_system(error) from error


def _table_of(path: str) -> str | None:
    """The table that a certificate is about; None if there is none."""
    try:
        with open(path, encoding="utf-8") as source:
            return str(json.load(source)["table"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _write(sink: TextIO, text: str) -> None:
    """Write so that it is there after a power failure, too: what is erased, and its record, cannot be asked any more."""
    sink.write(text)
    sink.flush()
    os.fsync(sink.fileno())


def _read_secret(path: str) -> bytes:
    try:
        with open(path, encoding="ascii") as source:
            secret = bytes.fromhex(source.read(_SECRET_DIGITS + 1).strip())
    except (OSError, ValueError):
        secret = b""
    if len(secret) != _SECRET_BYTES:
        raise UsageError(f"{path} holds no secret of a certificate", "it must have 64 hexadecimal digits", "name another file")
    return secret


def _text(found: Mapping[str, Any]) -> str:
    """The certificate to read."""
    proof, keys, trash = found["proof"], found["keys"], found.get("trash", ())
    still = len(proof["found"]) + sum(len(table["found"]) for table in trash)
    verdict = f"FOUND in {counted(still, 'file')}" if still else "nothing was found"
    metadata = f"{proof['manifests']:,} manifests and lists, {counted(proof['index_files'], 'index file')}"
    lines = [
        f"Certificate of an erasure from {found['table']}",
        "",
        f"finished         {found['time']}",
        f"rows             {found['rows']:,}" + (f" of {counted(len(keys), 'key')}" if keys else ""),
        f"data files       {len(found['files']):,} written again without them",
        f"versions         {len(found['versions']):,} replaced",
        f"proof            {verdict}",
        f"                 read: {counted(proof['data_files'], 'data file')} with {counted(proof['rows'], 'row')}, {metadata},",
        f"                 {counted(proof['unnamed_files'], 'file')} that no version names",
        *(f"earlier table    {table['path']}: {_of_earlier(table)}" for table in trash),
        "",
        "Not part of the table, and not erased from:",
        *(f"  - {line}" for line in found["outside"]),
        "",
        "Files that were replaced:",
        *(_replaced(file) for file in found["files"]),
        "",
        "Keys (HMAC-SHA256 with the secret of the certificate):",
        *(f"  {key}" for key in keys),
        "",
        f"seal             {found['seal']}",
        "",
    ]
    return "\n".join(lines)


def _replaced(file: Mapping[str, Any]) -> str:
    return f"  {file['old']} -> {file['new'] or 'nothing is left'} ({counted(file['rows'], 'row')} erased)"


def _of_earlier(table: Mapping[str, Any]) -> str:
    found = f"FOUND in {counted(len(table['found']), 'file')}" if table["found"] else "nothing was found"
    return f"{counted(table['files'], 'data file')} written again, {found} of {counted(table['searched'], 'file')}"


def as_record(value: Any) -> dict[str, Any]:
    """A dataclass as a part of a certificate."""
    return {name: list(part) if isinstance(part, tuple) else part for name, part in asdict(value).items()}
