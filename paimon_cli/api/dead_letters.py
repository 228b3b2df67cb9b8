"""Events that could not be applied: the error about one, and the file in which they are set apart."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import BinaryIO

from paimon_cli.errors import BadInput, UsageError, of_system
from paimon_cli.ingest.changes.event_decoder import DEAD_LETTER
from paimon_cli.ingest.changes.event_lines import BadEvent
from paimon_cli.options.option_text import printable

MAX_LETTERS = 1_000_000
"""More bad events than this come from a wrong format or a table that does not fit, and not from single events."""
MOST_SHOWN = 200
"""Characters of an event that a message shows."""


def bad_event(event: BadEvent) -> BadInput:
    """The error for an event that cannot be applied."""
    text = printable(event.text[:MOST_SHOWN].decode(errors="replace"))
    where = f"{event.source}: the event at {event.unit} {event.position}"
    of_table = f" of {printable(event.table[:MOST_SHOWN])}" if event.table else ""
    return BadInput(
        f"{where}{of_table} cannot be applied",
        event.reason,
        "--on-error FILE sets such events apart, and goes on",
        source=event.source,
        position=event.position,
        event=text,
    )


class DeadLetters:
    """The file of events that could not be applied, one JSON object a line, which `ingest` reads like the events themselves.

    It is added to. An event is in it once, however often its source is read; another one at the same place, in a file that has
    replaced the first, is another event.
    """

    def __init__(self, path: str | None, sources: Sequence[str]) -> None:
        self._path, self._sources = path, sources
        self._file: BinaryIO | None = None
        self._is_new = False
        self._known = set[int]()

    def __enter__(self) -> DeadLetters:
        if self._path is None:
            return self
        if "://" in self._path:
            raise UsageError(f"--on-error {self._path}", "events are set apart in a local file", "name a local file")
        if any(os.path.exists(one) and os.path.realpath(one) == os.path.realpath(self._path) for one in self._sources):
            raise self._is_a_source()
        try:
            self._file = self._opened(self._path)
            self._read_known(self._file)
        except (PermissionError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            why = f"the file cannot be written: {error.strerror or error}"
            raise UsageError(f"--on-error {self._path}", why, "name a file in a directory that exists") from error
        except OSError as error:
            raise of_system(error) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"--on-error {self._path}", "it holds something else than events set apart", "name a new file"
            ) from error
        return self

    def _opened(self, path: str) -> BinaryIO:
        try:
            made = open(path, "a+b", opener=lambda name, flags: os.open(name, flags | os.O_EXCL, 0o666))  # noqa: SIM115
        except FileExistsError:  # or a link, which leads to one that does not
            return open(path, "a+b")
        self._is_new = True
        return made

    def expect_apart(self, files: Iterable[str]) -> None:
        """Raise `UsageError` if the file is one of these that are read: a directory or a pattern may have it among its files."""
        if self._file is None:
            return
        own = os.fstat(self._file.fileno())
        for path in files:
            try:
                is_own = os.path.samestat(os.stat(path), own)
            except OSError:  # it is gone, or in an object store
                continue
            if is_own:
                if self._is_new and not own.st_size and self._path is not None:
                    os.remove(self._path)
                raise self._is_a_source()

    def _is_a_source(self) -> UsageError:
        return UsageError(f"--on-error {self._path} is one of the sources", "it would grow while it is read", "name another file")

    def _read_known(self, file: BinaryIO) -> None:
        """Read which events the file has. The beginning of one at its end is cut off: a process died while it wrote it, before
        any table remembered to be past its event.
        """
        file.seek(0)
        end = 0
        for line in file:
            try:
                letter = json.loads(line)
            except ValueError:
                if line.endswith(b"\n") or not DEAD_LETTER.startswith(line[: len(DEAD_LETTER)]):
                    raise
                file.truncate(end)
                return
            facts = letter["dead_letter"]
            self._known.add(_identity(facts["source"], facts["position"], letter["event"]))
            if len(self._known) > MAX_LETTERS:
                return
            end += len(line)
            if not line.endswith(b"\n"):
                file.write(b"\n")

    def add(self, event: BadEvent, format: str) -> bool:
        """Set an event apart. Returns whether it was not before."""
        if self._file is None:
            return True
        text = event.text.decode(errors="surrogateescape")
        if (known := _identity(event.source, event.position, text)) in self._known:
            return False
        self._known.add(known)
        facts = {
            "source": event.source,
            "position": event.position,
            "table": event.table,
            "reason": event.reason,
            "format": format,
        }
        letter = json.dumps({"dead_letter": facts, "event": text}, separators=(",", ":"))
        self._file.write(letter.encode() + b"\n")
        return True

    def expect_room(self) -> None:
        """Raise `BadInput` if there are too many to remember."""
        if len(self._known) >= MAX_LETTERS:
            raise BadInput(
                f"{self._path} has {MAX_LETTERS:,} events set apart",
                "this many are no exceptions: the format is wrong, or a table does not fit",
                "mend the cause, apply the file with ingest, and name another one",
            )

    def flush(self) -> None:
        """Make what was added durable, before tables remember that they are past it."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _identity(source: str, position: int, text: str) -> int:
    """An event at its place, in 16 bytes."""
    named = json.dumps([source, position]).encode() + text.encode(errors="surrogatepass")
    return int.from_bytes(hashlib.sha256(named).digest()[:16], "big")
