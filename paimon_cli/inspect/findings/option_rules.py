"""Rules about options: values that cannot be read, options that contradict each other or have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeGuard

from paimon_cli.bucket.file_encoders import CODECS
from paimon_cli.catalog.option_values import NEARLY, check_listed_value, codecs_unknown_to_java, formats_and_codecs
from paimon_cli.commit.automatic_tags import checked_rules
from paimon_cli.errors import BadOption, PaimonError
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import ERROR, WARNING, Finding, Topic, rule, well
from paimon_cli.options.option_catalog import find_option, nearest_key
from paimon_cli.options.option_text import counted, plain_number
from paimon_cli.options.table_options import TYPED_OPTIONS, unset_command

STOP_TRIGGER = "num-sorted-run.stop-trigger"
SHORT_RETENTION_MILLIS = 600_000
"""Details of errors about options that were read with a table."""
OF_COLUMNS_AND_FORMATS = ("fields.", "file-index.", "parquet.", "orc.", "avro.")
"""How names of options begin that hold names of columns, or are passed on to libraries."""


def _conflict(table: ExaminedTable, subject: str, message: str, change: tuple[str, str], threshold: str = "") -> Finding:
    """The finding about options, with the key and the value that mend it; without a value the option is removed."""
    command, remedy = table.altered(*change), table.setting(*change) if change[1] else None
    if not command:
        message = f"{message}{'' if message.endswith('?') else ';'} {change[0]} is an option of this call, not of the table"
    return Finding("PD018", WARNING, subject, message, command, threshold=threshold, remedy=remedy)


@rule(Topic.OPTIONS, "PD018")
def values_can_be_read(table: ExaminedTable) -> Iterator[Finding]:
    """Values that stop the operations which use them."""
    options = table.context.options
    for name, option in TYPED_OPTIONS.items():
        given = [key for key in (option.key, *option.older_keys) if key in options.raw]
        if not given:
            continue
        try:
            getattr(options, name)
        except BadOption as error:
            yield unreadable_option(table.argument, error)


@rule(Topic.OPTIONS, "PD018")
def values_are_allowed(table: ExaminedTable) -> Iterator[Finding]:
    """Values that other engines refuse, of options that this one does not use."""
    options = table.context.options
    used = {key for option in TYPED_OPTIONS.values() for key in (option.key, *option.older_keys)}
    for key in options.raw.keys() - used:
        try:
            check_listed_value(key, options.raw[key])
        except BadOption as error:
            options.explain(error)
            yield unreadable_option(table.argument, error)


@rule(Topic.OPTIONS, "PD018")
def files_can_be_written(table: ExaminedTable) -> Iterator[Finding]:
    """Formats and codecs that stop whatever writes a file."""
    options = table.context.options
    wrong: dict[str, tuple[str, ...]] = {}
    for format_key, file_format, codec_key, codec in formats_and_codecs(options):
        codecs = CODECS.get(file_format)
        if codecs is None:
            wrong[format_key] = tuple(CODECS)
        elif codec not in codecs:
            wrong[codec_key] = tuple(codecs)
    for key, allowed in wrong.items():
        value = options.raw.get(key, "")
        what, hint = f"option '{key}' cannot be '{value}'", f"set {key} to an allowed value"
        error = BadOption(what, f"allowed: {', '.join(allowed)}", hint, key=key, value=value)
        options.explain(error)
        yield unreadable_option(table.argument, error)


@rule(Topic.OPTIONS, "PD018")
def java_can_write(table: ExaminedTable) -> Iterator[Finding]:
    """Names of codecs that stop the writers of other engines."""
    for key, (message, value) in codecs_unknown_to_java(table.context.options).items():
        yield _conflict(table, f"option {key}", message, (key, value))


@rule(Topic.OPTIONS, "PD018")
def tags_can_be_created(table: ExaminedTable) -> Iterator[Finding]:
    """Settings of automatic tags with which no commit can be made; `values_can_be_read` tells of those that cannot be read."""
    with suppress(BadOption):
        table.context.options.check()
        try:
            checked_rules(table.context.options)
        except BadOption as error:
            yield unreadable_option(table.argument, error)


def is_of_option(error: PaimonError) -> TypeGuard[BadOption]:
    """Whether an option of the table or of the call that cannot be read is what stops a rule, or the opening of the table."""
    return isinstance(error, BadOption) and bool(error.of_call or error.of_table)


def unreadable_option(argument: str, error: BadOption) -> Finding:
    """The finding about a value that cannot be read, from the error that names its option."""
    command = unset_command(argument, error.key) if error.of_table else ""
    message = error.message if command else f"{error.message}; {error.hint}"
    return Finding("PD018", ERROR, "options", message, command, Topic.OPTIONS, {"option": error.key, "value": error.value})


@rule(Topic.OPTIONS, "PD018")
def options_are_known(table: ExaminedTable) -> Iterator[Finding]:
    """Options that Paimon does not have, mostly misspelt ones."""
    raw = table.context.options.raw
    unknown = [key for key in raw if find_option(key) is None and not key.startswith(OF_COLUMNS_AND_FORMATS)]
    if not unknown:
        yield well("option names", f"{counted(len(raw), 'option')}, all of them known", options=len(raw))
    for key in unknown:
        meant = nearest_key(key, NEARLY)
        question = f"; did you mean '{meant}'?" if meant else ""
        yield _conflict(table, f"option {key}", f"Paimon has no option with this name{question}", (key, ""))


@rule(Topic.OPTIONS, "PD018")
def retention_is_consistent(table: ExaminedTable) -> Iterator[Finding]:
    """Limits of the retention that contradict each other, or are shorter than a read takes. What a call or a policy gives instead
    is no fault of the table.
    """
    options, given = table.context.options, table.context.given
    least, most = options.snapshot_num_retained_min, options.snapshot_num_retained_max
    if least > most:
        message = f"snapshot.num-retained.min={least} is above snapshot.num-retained.max={most}"
        yield _conflict(table, "options", message, ("snapshot.num-retained.max", str(least)))
    if options.snapshot_time_retained < SHORT_RETENTION_MILLIS and "snapshot.time-retained" not in given:
        message = f"snapshot.time-retained is {options.snapshot_time_retained // 1000} s; reads that take longer may fail"
        yield _conflict(table, "options", message, ("snapshot.time-retained", "1 h"), threshold="10 min")


@rule(Topic.OPTIONS, "PD018")
def triggers_are_consistent(table: ExaminedTable) -> Iterator[Finding]:
    """A stop trigger below the compaction trigger."""
    text, trigger = table.context.options.raw.get(STOP_TRIGGER), table.context.options.compaction_trigger
    stop = None if text is None else plain_number(text)
    if stop is not None and stop < trigger:
        message = f"{STOP_TRIGGER}={stop} is below the compaction trigger and has no effect"
        yield _conflict(table, "options", message, (STOP_TRIGGER, ""), threshold=f"{trigger} sorted runs")


@rule(Topic.OPTIONS, "PD018")
def changelogs_can_be_made(table: ExaminedTable) -> Iterator[Finding]:
    """Deletion vectors or a changelog producer that the other options rule out."""
    options = table.context.options
    vectors, producer = options.deletion_vectors_enabled, options.changelog_producer
    if vectors and options.merge_engine.oldest_wins:
        message = f"deletion vectors cannot be combined with merge-engine={options.merge_engine.name}"
        yield _conflict(table, "options", message, ("deletion-vectors.enabled", ""))
    if vectors and producer.compares_top_levels:
        message = "deletion vectors need a changelog-producer of none, input or lookup"
        yield _conflict(table, "options", message, ("changelog-producer", "lookup"))
    if options.write_only and producer.reports_compactions and not table.was_compacted:
        message = f"write-only=true with changelog-producer={producer.name}: only compactions write changelogs"
        command = table.compacted("--watch")
        yield Finding("PD018", WARNING, "options", message, command)
