"""What the formats of change streams have in common, and where they differ: keys of the envelope, and the kinds of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paimon_cli.ingest.changes.event_cuts import EventOrder, EventPart
from paimon_cli.ingest.changes.event_images import ImageKeys


class EventKind:
    """What an event does to rows; a truncation empties its table."""

    CREATE, UPDATE, DELETE, TRUNCATE = range(4)


class Unchanging:
    """Kinds of events that change no rows."""

    TRANSACTION, SCHEMA_CHANGE, HEARTBEAT, TOMBSTONE = "transaction", "schema change", "heartbeat", "tombstone"


NO_TEXT = ""
PLAIN_JSON = "json"
WHOLE_ROW_CONNECTORS = frozenset(("mysql", "mariadb", "sqlserver", "db2"))
"""Debezium's connectors that refuse to run where the database does not log whole rows. PostgreSQL's and others do not."""
Path = tuple[str, ...]


@dataclass(frozen=True)
class EventFormat:
    """A format of change events, each a JSON object on a line.

    `operation`: the path of the text that says what an event does, `operations`: the codes by that text; without an `operation`
    all events insert. `database`, `schema`, `table`: the paths of names, tried in turn. `marks`: paths of texts that only events
    without rows have, and the kind of such an event. `images`: where its rows are. `deleted`: the path of a text that is `true`
    in a deletion. `wraps`: it may come with its schema, as `{"schema": ..., "payload": ...}`. `key_names`: the path of the names
    of its primary key; `key_prefix`: with which they begin in the keys of messages. `types`: the key with the types of its
    columns by name. `connector`: where events may name Debezium's connector, as `ReadEvents.part` takes it; `sends_whole_rows`:
    nulls in an image before are always values of the row. `order`: how its keys are usually written.
    """

    name: str
    images: ImageKeys
    operation: Path = ()
    operations: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    database: tuple[Path, ...] = ()
    schema: tuple[Path, ...] = ()
    table: tuple[Path, ...] = ()
    marks: Mapping[Path, str] = field(default_factory=dict)
    deleted: Path = ()
    wraps: bool = False
    key_names: str = ""
    key_prefix: str = ""
    types: str = ""
    names_tables: bool = True
    connector: tuple[str, ...] = ()
    sends_whole_rows: bool = False
    order: EventOrder | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All paths that are read before the images."""
        single = [path for path in (self.operation, self.deleted) if path]
        return tuple(dict.fromkeys([*single, *self.database, *self.schema, *self.table, *self.marks]))


_DEBEZIUM = EventFormat(
    "debezium",
    ImageKeys("after", "before"),
    operation=("op",),
    operations={
        "c": EventKind.CREATE,
        "r": EventKind.CREATE,
        "u": EventKind.UPDATE,
        "d": EventKind.DELETE,
        "t": EventKind.TRUNCATE,
    },
    others={"m": "message"},
    database=(("source", "db"),),
    schema=(("source", "schema"),),
    table=(("source", "table"), ("source", "collection")),
    marks={("status",): Unchanging.TRANSACTION, ("ddl",): Unchanging.SCHEMA_CHANGE},
    wraps=True,
    connector=("source.connector",),
    order=EventOrder(EventPart.IMAGES, {b',"source":': EventPart.FRAME}, b'{"before":', images_first=True),
)
_DEBEZIUM_FLAT = EventFormat(
    "debezium-flat",
    ImageKeys("", not_columns="__"),
    operation=("__op",),
    operations={
        "c": EventKind.CREATE,
        "r": EventKind.CREATE,
        "u": EventKind.UPDATE,
        "d": EventKind.DELETE,
        NO_TEXT: EventKind.UPDATE,
    },
    database=(("__db",), ("__source_db",)),
    schema=(("__schema",), ("__source_schema",)),
    table=(("__table",), ("__source_table",)),
    deleted=("__deleted",),
    wraps=True,
    names_tables=False,
    connector=("__connector", "__source_connector"),
)
_CANAL = EventFormat(
    "canal",
    ImageKeys("data", "old", is_list=True, is_partial=True),
    operation=("type",),
    operations={
        "INSERT": EventKind.CREATE,
        "ROW": EventKind.CREATE,
        "UPDATE": EventKind.UPDATE,
        "DELETE": EventKind.DELETE,
        "TRUNCATE": EventKind.TRUNCATE,
    },
    others=dict.fromkeys(
        (
            "CREATE",
            "ALTER",
            "ERASE",
            "RENAME",
            "CINDEX",
            "DINDEX",
            "QUERY",
            "GTID",
            "XACOMMIT",
            "XAROLLBACK",
            "MHEARTBEAT",
        ),
        Unchanging.SCHEMA_CHANGE,
    ),
    database=(("database",),),
    table=(("table",),),
    key_names="pkNames",
    types="mysqlType",
    sends_whole_rows=True,
    order=EventOrder(
        EventPart.IMAGES,
        {
            b',"database":': EventPart.FRAME,
            b',"mysqlType":': EventPart.REPEATED,
            b',"old":': EventPart.IMAGES,
            b',"pkNames":': EventPart.FRAME,
            b',"sqlType":': EventPart.REPEATED,
            b',"table":': EventPart.FRAME,
        },
        b'{"data":',
        images_first=True,
    ),
)
_MAXWELL = EventFormat(
    "maxwell",
    ImageKeys("data", "old", is_partial=True),
    operation=("type",),
    operations={
        "insert": EventKind.CREATE,
        "bootstrap-insert": EventKind.CREATE,
        "update": EventKind.UPDATE,
        "delete": EventKind.DELETE,
    },
    others={
        **dict.fromkeys(("bootstrap-start", "bootstrap-complete"), Unchanging.TRANSACTION),
        **dict.fromkeys(("table-create", "table-alter", "table-drop"), Unchanging.SCHEMA_CHANGE),
        **dict.fromkeys(("database-create", "database-alter", "database-drop"), Unchanging.SCHEMA_CHANGE),
    },
    database=(("database",),),
    table=(("table",),),
    key_names="primary_key_columns",
    key_prefix="pk.",
    sends_whole_rows=True,
    order=EventOrder(EventPart.FRAME, {b',"data":': EventPart.IMAGES}),
)
_PLAIN = EventFormat(PLAIN_JSON, ImageKeys(""), names_tables=False)
EVENT_FORMATS = {one.name: one for one in (_DEBEZIUM, _DEBEZIUM_FLAT, _CANAL, _MAXWELL, _PLAIN)}
