"""An entry of the trash: what was dropped, and until when it is kept (FORMAT.md, section 13.9)."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from typing import Any

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.table_layout import is_plain_name

_VERSION = 1


@dataclass(frozen=True)
class TrashEntry:
    """A dropped table: its name, where it was, and until when it is kept. Times are epoch millis.

    `is_moved`: its directory is in the trash; otherwise only its version files are, and the data is where it was. `is_going`: it
    is being deleted for good, so that some of its files may be gone.
    """

    id: str
    table: str
    url: str
    dropped: int
    until: int
    snapshots: int
    files: int
    size: int
    is_moved: bool
    is_going: bool = False

    def to_json(self) -> str:
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=2)

    @staticmethod
    def from_json(content: bytes, path: str) -> TrashEntry:
        """Parse an entry. Raises `DamagedFile` for anything that no drop would write."""
        try:
            found = json.loads(content)
            is_going = found.get("is_going", False)
            if found["version"] != _VERSION or not isinstance(found["is_moved"], bool) or not isinstance(is_going, bool):
                raise ValueError("it is of another version")
            name, table, url = (_text(found[key]) for key in ("id", "table", "url"))
            if not is_plain_name(name):
                raise ValueError("its id is no name of a directory")
            times = _number(found["dropped"]), _number(found["until"])
            counts = _number(found["snapshots"]), _number(found["files"]), _number(found["size"])
            return TrashEntry(name, table, url, *times, *counts, is_moved=found["is_moved"], is_going=is_going)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            why = "it is not what a drop writes"
            raise DamagedFile(f"cannot read {path}", why, _if_unreadable(path), path=path) from error


def _if_unreadable(path: str) -> str:
    """The hint about an entry: without it nothing says what its table was, but the table may be whole."""
    directory = path.rpartition("/")[0]
    table = shlex.quote(f"{directory}/table")
    return f"its table may be whole (paimon-cli read {table}): move that directory back; deleting {directory} discards it"


def _text(found: Any) -> str:
    if not isinstance(found, str) or not found:
        raise ValueError("a text is missing")
    return found


def _number(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**63:
        raise ValueError(f"{str(found)[:40]!r} is not a whole number")
    return found
