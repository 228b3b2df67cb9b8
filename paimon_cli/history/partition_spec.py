"""Partitions as users write them: `dt=2026-11-21/hour=7`, with values in canonical form."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_cli.datatypes.canonical_form import canonical_json, from_canonical
from paimon_cli.datatypes.data_type import INTEGER_BITS, DataField, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.requests.selections import WrittenText

PartitionValues = Mapping[str, str | None]
"""Partition key -> value as a string, for some or all keys. Null is None, or the default partition name as a `WrittenText`."""
BOOLEAN_WORDS = {"true": True, "false": False}
_WHOLE = re.compile("[+-]?[0-9]{1,40}", re.ASCII)


@dataclass(frozen=True)
class PartitionSpec:
    """A condition on partitions. `matches`: whether a serialised partition satisfies it."""

    matches: Callable[[bytes], bool]

    @classmethod
    def everything(cls) -> PartitionSpec:
        return cls(lambda partition: True)

    @classmethod
    def exactly(cls, context: TableContext, partitions: Iterable[bytes]) -> PartitionSpec:
        """Partitions with the values of these ones, however writers serialise their nulls."""
        wanted = {context.partition_values(partition) for partition in partitions}
        return cls(lambda partition: context.partition_values(partition) in wanted)

    @classmethod
    def parse(cls, context: TableContext, values: PartitionValues) -> PartitionSpec:
        """Partitions with these values. Raises `UsageError` for unknown keys and invalid values."""
        keys = context.schema.partition_keys
        wanted: dict[int, Any] = {}
        for name, text in values.items():
            if name not in keys:
                what = f"the table's partition keys are {', '.join(keys)}" if keys else "the table is not partitioned"
                raise UsageError(f"'{name}' is not a partition key", what)
            wanted[keys.index(name)] = partition_value(context, name, text)

        def matches(partition: bytes) -> bool:
            found = context.partition_values(partition)
            return all(found[index] == value for index, value in wanted.items())

        return cls(matches)

    @classmethod
    def parse_any(cls, context: TableContext, partitions: Sequence[PartitionValues]) -> PartitionSpec:
        """Partitions that match one of several specifications; all partitions if there is none."""
        if not partitions:
            return cls.everything()
        specs = [cls.parse(context, one) for one in partitions]
        return cls(lambda partition: any(spec.matches(partition) for spec in specs))


def expect_partitions(context: TableContext, partitions: Sequence[PartitionValues], live: Collection[bytes]) -> None:
    """Raise `NotFound` for a specification that selects none of the live partitions."""
    for values in partitions:
        if not any(map(PartitionSpec.parse(context, values).matches, live)):
            pairs = ",".join(pairs_of(context, values))
            raise NotFound(f"no partition {pairs}", hint=f"paimon-cli partitions ls {context.layout.argument}")


def pairs_of(context: TableContext, values: PartitionValues) -> tuple[str, ...]:
    """The values as strings `key=value`, as a user would type them."""
    null = context.options.partition_default_name
    return tuple(f"{key}={null if text is None else text}" for key, text in values.items())


def partition_value(context: TableContext, name: str, text: str | None) -> Any:
    """The internal value of a partition column from its text; None for null. Raises `UsageError` for an invalid one."""
    try:
        return value_of_text(context.schema.field(name), None if is_null(context, text) else text)
    except UsageError as error:
        if text == context.options.partition_default_name:  # in the library, where it is a text as others
            error.set_hint("null is None in the library, and NULL in SQL")
        raise


def is_null(context: TableContext, text: str | None) -> bool:
    """Whether the value of a partition column is null. A row may hold the text that stands for null on the command line."""
    return text is None or (isinstance(text, WrittenText) and text == context.options.partition_default_name)


def value_of_text(column: DataField, text: str | None) -> Any:
    """The internal value of a column from its text. Raises `UsageError` for an invalid one."""
    if text is None:
        return None
    t = column.type
    try:
        return from_canonical(_json_value(text, t), t)
    except ValueError as error:
        raise UsageError(f"{column.name}={text}: the value is not of type {type_to_sql(t)}", str(error)) from error


def _json_value(text: str, t: DataType) -> Any:
    """The text as canonical JSON; as it is, if it is none of the type: that is refused with words of the type."""
    if t.root == "BOOLEAN":
        return BOOLEAN_WORDS.get(text.lower(), text)
    return int(text) if t.root in INTEGER_BITS and _WHOLE.fullmatch(text) else text


def partition_text(context: TableContext, partition: bytes, separator: str = "/") -> str:
    """A partition as a string; '' in an unpartitioned table. Null is shown as the table's default partition name."""
    keys = context.schema.partition_keys
    types = context.schema.types_of(keys)
    default = context.options.partition_default_name
    values = context.partition_values(partition)
    texts = [default if v is None else _text(canonical_json(v, t)) for v, t in zip(values, types, strict=True)]
    return separator.join(f"{key}={text}" for key, text in zip(keys, texts, strict=True))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
