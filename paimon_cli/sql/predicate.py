"""A filter on a table: which rows match, and which partitions, buckets and files can be skipped."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import pyarrow as pa

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.bucket_functions import bucket_key_limit, row_buckets
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from paimon_cli.sql.conditions import And, Compare, Condition, OneOf
from paimon_cli.sql.expressions import BoundsOf, ColumnValue

_MARK_WIDTHS = {"INT": 4, "DATE": 4, "BIGINT": 8}


@dataclass(frozen=True)
class Predicate:
    """A parsed condition. A row matches if the condition is TRUE, as in a WHERE clause. It is pickled as its SQL.

    `params`: the values of its parameters; `parameters`: their names in the SQL.
    """

    sql: str
    schema: TableSchema
    condition: Condition
    warnings: tuple[str, ...] = ()
    """Warnings about conditions that probably do not mean what the user intended."""
    params: Mapping[str, Any] | None = None
    parameters: frozenset[str] = frozenset()

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_predicate, (self.sql, self.schema, self.params)

    def joined(self, other: Predicate) -> Predicate:
        """Both conditions, joined by AND. Neither is parsed again: lists of values may be long."""
        params = {**(self.params or {}), **(other.params or {})}
        warnings = tuple(dict.fromkeys((*self.warnings, *other.warnings)))
        condition, parameters = And((self.condition, other.condition)), self.parameters | other.parameters
        return Predicate(f"({self.sql}\n) AND ({other.sql}\n)", self.schema, condition, warnings, params, parameters)

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that match. Raises `UsageError` if the condition cannot be evaluated for a row."""
        matches = self.condition.matches(batch)
        return batch if matches.true_count == len(matches) else batch.filter(matches)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition reads, without duplicates."""
        return tuple(dict.fromkeys(self.condition.columns()))

    def may_match(self, bounds_of: BoundsOf) -> bool:
        """False only if no row within these column bounds can match."""
        return self.condition.may_match(bounds_of)

    def must_match(self, bounds_of: BoundsOf) -> bool:
        """True only if every row within these column bounds matches."""
        return self.condition.must_match(bounds_of)

    def buckets(self, total_buckets: int) -> frozenset[int] | None:
        """The buckets that can hold matching rows; None if the condition does not determine the bucket key."""
        names, function = self.schema.bucket_key_names, self.schema.typed_options.bucket_function
        types = self.schema.types_of(names)
        if not names or total_buckets < 1 or bucket_key_limit(function, types) is not None:
            return None
        fixed = _fixed_values(self.condition)
        candidates = [fixed.get(name) for name in names]
        # 0.0 and -0.0 are equal but hash differently.
        if any(values is None for values in candidates) or any(t.root in ("FLOAT", "DOUBLE") for t in types):
            return None
        keys = list(product(*(values for values in candidates if values is not None)))
        if len(keys) > PIECES.max_bucket_keys:
            return None
        columns = [values_to_arrow([key[i] for key in keys], t) for i, t in enumerate(types)]
        return frozenset(row_buckets(columns, types, total_buckets, function).tolist())

    @cached_property
    def partition_marks(self) -> frozenset[bytes] | None:
        """Byte strings one of which occurs in the serialised form of every partition that can match, whichever engine wrote it.

        None if the condition does not determine the value of a partition column whose type has a known encoding.
        """
        fixed = _fixed_values(self.condition)
        marks = [_marks(self.schema.field(name).type.root, fixed.get(name)) for name in self.schema.partition_keys]
        known = [found for found in marks if found is not None]
        return max(known, key=lambda found: min(map(len, found), default=0), default=None)


def _marks(root: str, values: tuple[Any, ...] | None) -> frozenset[bytes] | None:
    if values is None:
        return None
    if root in ("VARCHAR", "STRING") and all(isinstance(value, str) for value in values):
        return frozenset(value.encode(errors="surrogatepass") for value in values)
    width = _MARK_WIDTHS.get(root, 0)
    if not all(isinstance(value, int) and value.bit_length() < 8 * width for value in values):
        return None
    return frozenset(value.to_bytes(width, "little", signed=True) for value in values)


def _fixed_values(condition: Condition) -> dict[str, tuple[Any, ...]]:
    """The columns that the condition restricts to a set of values, with these values."""
    if isinstance(condition, And):
        merged: dict[str, tuple[Any, ...]] = {}
        for part in condition.parts:
            for name, values in _fixed_values(part).items():
                known = merged.get(name)
                merged[name] = values if known is None else tuple(v for v in known if v in values)
        return merged
    if not isinstance(condition, (Compare, OneOf)) or condition.negated:
        return {}
    if not isinstance(condition.term, ColumnValue) or condition.term.path:
        return {}
    if isinstance(condition, OneOf):
        return {condition.term.name: tuple(dict.fromkeys(condition.values))}
    return {condition.term.name: (condition.value,)} if condition.op == "=" else {}


def check_all_used(params: Mapping[str, Any] | None, used: Collection[str]) -> None:
    """Raise `UsageError` for a parameter that no SQL of the call has (`used`: those that it has): it is probably misspelt."""
    for name in params or {}:
        if name not in used:
            what = f"parameter '{name}' is not used"
            raise UsageError(what, f"no condition or expression of the call has :{name}", f"write :{name}, or leave it out")


def parse_predicate(sql: str, schema: TableSchema, params: Mapping[str, Any] | None = None) -> Predicate:
    """Parse a SQL condition on the columns of a table. `params`: the values of parameters, which are written as `:name`.

    Supported are comparisons, <=>, IS [NOT] DISTINCT FROM, IN, BETWEEN, LIKE, IS NULL and isnan(..), combined by AND, OR and
    NOT; a condition in brackets may be compared, too: (a > 0) IS NULL. Other operands are columns, fields
    (a.b), the expressions of `parse_set_clause` and typed literals: DATE '..', TIMESTAMP '..', TIME '..' and X'..'. Names may be
    quoted by "" or ``. Raises `UsageError` for other SQL, unknown columns and values that cannot be compared with their column.
    """
    from paimon_cli.sql.predicate_sql import condition_of  # sqlglot takes long to import, and most reads have no filter

    found = condition_of(sql, schema, params)
    return Predicate(sql, schema, found.condition, found.warnings, params, found.parameters)
