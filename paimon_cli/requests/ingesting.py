"""The options of `ingest`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Literal

from paimon_cli.errors import UsageError
from paimon_cli.options.choices import OnError
from paimon_cli.requests.fields import Option, Parsed, Request, Size, Texts, Time

MAX_SETTINGS_BYTES = 1 << 16
INTERVAL_MILLIS = 10_000
"""The interval of `--follow`, if none is given."""
TABLES, FOLLOWING = "Tables", "Following"
FormatName = Literal["debezium", "debezium-flat", "canal", "maxwell", "json"]


class BadEvents(Parsed[str, str]):
    """What becomes of events that cannot be applied: `fail`, or the name of a file for them."""

    metavar = "fail|FILE"

    def parse(self, given: str) -> str:
        if not given:
            raise UsageError("--on-error is empty", "it names no file", "fail, or a file such as bad.ndjson")
        if given.lower() == OnError.SKIP:
            raise UsageError(
                "--on-error cannot be skip", "no event is left out silently", "name a FILE, from which they can be ingested later"
            )
        return OnError.FAIL if given.lower() == OnError.FAIL else given


class HiddenSettings(dict[str, str]):
    """Settings by name, some of which may be secrets: they are not shown."""

    def __repr__(self) -> str:
        return repr(dict.fromkeys(self, "***"))


class KafkaConf(Parsed[str | Sequence[str] | Mapping[str, str] | None, Mapping[str, str]]):
    """Settings of librdkafka by name."""

    metavar, written, unit = "KEY=VALUE", list[str] | None, "a mapping, or texts like `linger.ms=5`"

    def parse(self, given: str | Sequence[str] | Mapping[str, str] | None) -> Mapping[str, str]:
        if isinstance(given, Mapping):
            return HiddenSettings(given)
        found = HiddenSettings()
        for text in (given,) if isinstance(given, str) else given or ():
            for line in _lines_of(text[1:]) if text.startswith("@") else (text,):
                name, sign, value = line.partition("=")
                if not sign or not name.strip():
                    raise UsageError("--kafka-conf must be KEY=VALUE", "it has no name or no =", "such as security.protocol=SSL")
                found[name.strip()] = value.strip()
        return found


def _lines_of(path: str) -> list[str]:
    """The lines of a file of settings, without comments."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_SETTINGS_BYTES + 1)
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"--kafka-conf @{path} cannot be read", str(problem)) from None
    if len(text) > MAX_SETTINGS_BYTES:
        raise UsageError(f"--kafka-conf @{path} is no file of settings", f"it has more than {MAX_SETTINGS_BYTES:,} characters")
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


class TableIngestOptions(Request):
    """How events are read and applied."""

    _: KW_ONLY
    format: Annotated[FormatName, Option("Format of the events; debezium may come with or without its schema part.")]
    on_error: Annotated[
        BadEvents,
        Option(
            "What to do with events that cannot be applied. fail: their table stops before the first one, and the others go on; "
            "FILE: set them apart there with source, position and reason. `ingest FILE` tries them again.",
        ),
    ] = BadEvents(OnError.FAIL)
    memory: Annotated[Size, Option("Memory for decoded events.")] = Size("512 mb")
    sequence: Annotated[
        str | None,
        Option(
            "Order the rows of a key by this number of their events, such as source.lsn, source.ts_ms or ts, and not by their "
            "arrival. It becomes a column, which new tables have as their sequence.field.",
            metavar="PATH",
        ),
    ] = None
    computed: Annotated[
        Texts,
        Option(
            "Add a column that is computed from another one, such as \"dt = date_format(created, 'yyyy-MM-dd')\"; repeatable. "
            "year, month, day, hour, minute, second, date_format, substring, truncate, upper, lower, trim.",
            metavar="COLUMN=FUNCTION",
        ),
    ] = Texts()
    metadata_column: Annotated[
        Texts,
        Option(
            "Add a column with a fact about each event: op_ts, database, schema, table, topic, partition or offset; repeatable.",
            metavar="[COLUMN=]FACT",
        ),
    ] = Texts()
    commit_user: Annotated[
        str | None,
        Option(
            "Name under which tables remember how far each source was read; default one for all. Another name reads all again.",
            metavar="NAME",
        ),
    ] = None
    kafka_conf: Annotated[
        KafkaConf,
        Option(
            "Setting of librdkafka for topics, such as sasl.password=...; repeatable. @FILE: a file with one a line.",
        ),
    ] = KafkaConf()
    follow: Annotated[bool, Option("Go on as files grow, and new ones or messages come, until stopped.", panel=FOLLOWING)] = False
    interval: Annotated[
        Time, Option("With --follow: how often to look for new events, and to commit. 10 s if not given.", panel=FOLLOWING)
    ] = Time()
    max_rounds: Annotated[
        int | None, Option("With --follow: stop after this many looks.", metavar="N", min=1, panel=FOLLOWING)
    ] = None

    def check(self) -> None:
        super().check()
        given = {"--interval": self.interval is not None, "--max-rounds": self.max_rounds is not None}
        if not self.follow and (named := [name for name, is_given in given.items() if is_given]):
            raise UsageError(
                f"{named[0]} is for --follow", "without it a run ends with its input", "leave it out, or add --follow"
            )


class IngestOptions(TableIngestOptions):
    """Which tables get the events."""

    _: KW_ONLY
    database_from: Annotated[
        Literal["source"] | None,
        Option(
            "source: each table goes into the database that has the name of its own. Without it, all go into --into.",
            panel=TABLES,
        ),
    ] = None
    table_prefix: Annotated[str, Option("Put this before the names of tables.", metavar="TEXT", panel=TABLES)] = ""
    table_mapping: Annotated[
        Texts,
        Option(
            "Another name for a table: `db.t=name` or `t=name`; repeatable. Tables with the same name are merged.",
            metavar="SOURCE=NAME",
            panel=TABLES,
        ),
    ] = Texts()
    include: Annotated[
        Texts, Option("Only tables that match, such as 'shop.order*'; repeatable.", metavar="GLOB", panel=TABLES)
    ] = Texts()
    exclude: Annotated[Texts, Option("Leave out tables that match; repeatable.", metavar="GLOB", panel=TABLES)] = Texts()
    primary_key: Annotated[
        Texts,
        Option(
            "Primary key of a new table, if the events do not name it: `db.t=id`, `t=a,b`, or just `a,b` for all; repeatable.",
            metavar="[TABLE=]COLUMNS",
            panel=TABLES,
        ),
    ] = Texts()

    def check(self) -> None:
        super().check()
        for mapping in self.table_mapping or ():
            if not all(mapping.partition("=")[::2]):
                raise UsageError(f"--table-mapping {mapping}", "it must be SOURCE=NAME", "such as shop.orders=orders")
        _refuse_twice("--table-mapping", (text.partition("=")[0] for text in self.table_mapping or ()), "name each source once")
        keys = [text.partition("=") if "=" in text else ("", "", text) for text in self.primary_key or ()]
        for name, sign, columns in keys:
            if not columns.strip(" ,"):
                raise UsageError(f"--primary-key {name}{sign}{columns}", "it names no column", "such as shop.orders=id")
        of_tables = (name or "all tables" for name, _, _ in keys)
        _refuse_twice("--primary-key", of_tables, "name all columns of a key in one text, such as id,region")


def _refuse_twice(flag: str, names: Iterable[str], hint: str) -> None:
    """Raise `UsageError` for a name that occurs twice: only the last of its values would count."""
    counts = Counter(names)
    if (twice := next((name for name, count in counts.items() if count > 1), None)) is not None:
        raise UsageError(f"{flag} is given twice for {twice}", "only one of them could count", hint)
