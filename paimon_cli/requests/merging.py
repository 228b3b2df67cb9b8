"""The options of a merge, and its clauses."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from paimon_cli.requests.fields import Names
from paimon_cli.requests.writing import ChangeCall


@dataclass(frozen=True)
class MergeClause:
    """What a merge does to the rows for which `condition` holds (None: all): the first clause of their kind that holds counts.

    `when`: rows of the table that meet a row of the source, rows of the source that meet none, or rows of the table that meet
    none.
    `assignments`: `column = expression`; `values`: new values as Python has them; `takes_all`: all columns that both have.
    """

    when: Literal["matched", "not_matched", "not_matched_by_source"]
    action: Literal["update", "delete", "insert"]
    condition: str | None = None
    assignments: tuple[str, ...] = ()
    values: Mapping[str, Any] | None = None
    takes_all: bool = False


class MergeCall(ChangeCall):
    """A merge of rows into a table, `on` columns that are equal in both."""

    source: Any
    on: Names = Names()
    _: KW_ONLY
    timezone: str | None = None
