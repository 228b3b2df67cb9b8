"""`variant_get(column, path, type)` and `try_variant_get` in conditions and assignments: typed parts of a VARIANT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from paimon_cli.datatypes.data_type import STRING, DataType, VariantType
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.variant_path import Steps, parse_variant_path, variant_get
from paimon_cli.errors import UsageError
from paimon_cli.sql.expressions import ColumnValue, Expression, as_kind, kind_of

_GET, _TRY_GET = "variant_get", "try_variant_get"
_FORM = "write variant_get(column, '$.field', 'INT'); without a type it is a STRING"


@dataclass(frozen=True)
class VariantPart:
    """The part of a VARIANT at a path, as a value of `type`; null where there is none, with `tries` also for any other part."""

    column: ColumnValue
    steps: Steps
    type: DataType
    tries: bool

    @property
    def kind(self) -> str:
        return kind_of(self.type)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return as_kind(variant_get(self.column.stored(batch), self.steps, self.type, tries=self.tries), self.kind)

    def columns(self) -> Iterator[str]:
        return self.column.columns()


def is_variant_get(node: exp.Expr) -> bool:
    """Whether the node calls `variant_get` or `try_variant_get`."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in (_GET, _TRY_GET)


def variant_part(node: exp.Expr, column: Expression | None) -> VariantPart:
    """The part that such a call names. `column`: its first argument. Raises `UsageError`."""
    arguments = node.expressions[1:]
    texts = [argument.this for argument in arguments if isinstance(argument, exp.Literal) and argument.is_string]
    is_variant = isinstance(column, ColumnValue) and isinstance(column.type, VariantType)
    if not isinstance(column, ColumnValue) or not is_variant or not 1 <= len(texts) == len(arguments) <= 2:
        why = "it takes a column of type VARIANT, a path, and a type, both as literals"
        raise UsageError(f"cannot read {node.name.lower()}", why, _FORM)
    t = parse_sql_type(texts[1]) if len(texts) == 2 else STRING
    return VariantPart(column, parse_variant_path(texts[0]), t, node.name.lower() == _TRY_GET)
