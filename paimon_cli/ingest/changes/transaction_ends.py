"""Where transactions of the source end in its stream, so that no commit has a part of one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.event_lines import EventLines

_MAXWELL = "maxwell"
_BEFORE_ROW = r'^\{(?:[^{"]|"(?:[^"\\]|\\.)*")*'
_COMMITS, _IN_TRANSACTION = _BEFORE_ROW + r'"commit"\s*:\s*true', _BEFORE_ROW + r'"xid"\s*:\s*\d'
"""What precedes the row of Maxwell's events: `commit` is in the last one of a transaction, `xid` in all of them. Texts before it,
such as the statement of `output_row_query`, may hold brackets."""
_ID = r'"transaction"\s*:\s*\{[^{}]*?"id"\s*:\s*"(?P<id>[^"]*)"'


def complete_events(lines: EventLines, format: str) -> int:
    """How many events of a block belong to transactions that end in it. The others begin one whose end is still to come.

    Maxwell marks the last event of a transaction. Debezium writes the id of the transaction into each event
    (`provide.transaction.metadata`), so that it ends where another one, or an event of none, follows. All events are complete if
    the stream marks nothing.
    """
    if not len(lines):
        return 0
    if format == _MAXWELL:
        opens = _flags(pc.match_substring_regex(lines.texts, _IN_TRANSACTION))
        ends = np.flatnonzero(_flags(pc.match_substring_regex(lines.texts, _COMMITS)) | ~opens)
        return int(ends[-1]) + 1 if len(ends) else 0
    last = lines.texts[len(lines) - 1 :]
    if not pc.match_substring_regex(last, _ID)[0].as_py():
        return len(lines)
    ids = pc.struct_field(pc.extract_regex(lines.texts, _ID), "id")
    others = np.flatnonzero(~_flags(pc.fill_null(pc.equal(ids, ids[len(ids) - 1]), False)))
    return int(others[-1]) + 1 if len(others) else 0


def _flags(found: pa.Array) -> np.ndarray:
    return found.to_numpy(zero_copy_only=False)


@dataclass
class HeldTransaction:
    """The events at the end of what was read of a source whose transaction has not ended. `limit`: about how many bytes they may
    have; a longer transaction is cut.
    """

    format: str
    limit: int
    events: EventLines | None = None

    @property
    def nbytes(self) -> int:
        """The text of the events that are held."""
        return 0 if self.events is None else int(self.events.texts.nbytes)

    def released(self, lines: EventLines) -> EventLines | None:
        """What can be applied now that these events came, too; None if nothing can."""
        whole = lines if self.events is None else self.events.followed_by(lines)
        count = complete_events(whole, self.format)
        self.events = None
        if count == len(whole):
            return whole
        if not count:
            if whole.texts.nbytes >= self.limit:
                return whole
            self.events = whole
            return None
        self.events = whole.take(np.arange(count, len(whole)))
        return replace(whole.take(np.arange(count)), end=int(whole.positions[count]))

    def rest(self) -> EventLines | None:
        """The events of a transaction whose end is awaited no longer."""
        found, self.events = self.events, None
        return found
