"""What an ingest did to a table."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.read.html_text import ShownAsTable

APPLYING, STOPPED = "applied", "stopped"


@dataclass(frozen=True)
class IngestedTable(ShownAsTable):
    """What an ingest did to a table. `sources`: tables of the source; `state`: `applied`, or `stopped` with the `error` and its
    code.

    `inserts`, `updates`, `deletes`: rows by kind; `truncations`: how often it was emptied; `bad_events`: stopped it, or set
    apart. `created`, `columns_added`, `types_changed`: its schema. `incomplete`: updates without the row before.
    """

    table: str
    sources: tuple[str, ...] = ()
    state: str = APPLYING
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncations: int = 0
    bad_events: int = 0
    incomplete: int = 0
    created: bool = False
    columns: tuple[str, ...] = ()
    columns_added: tuple[str, ...] = ()
    types_changed: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    snapshots: tuple[int, ...] = ()
    error: str | None = None
    error_code: int | None = None
