"""Values for the parameters of conditions: `id = :id` with `{"id": 7}`, so that SQL is never built out of data."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, NamedTuple

from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import Option, Parsed, Request


class BoundSql(NamedTuple):
    """A condition in SQL, with the values of its parameters."""

    sql: str
    params: Mapping[str, Any] | None = None


class Params(Parsed[Mapping[str, Any] | None, Mapping[str, Any] | None]):
    """Values by the names of parameters."""

    metavar, written, unit = "NAME=VALUE", list[str] | None, 'such as `{"id": 7}`'

    def parse(self, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        found = dict(given or {})
        for name in found:
            if not name.isidentifier():
                raise UsageError(f"parameter '{name}'", "a name has letters, digits and _", "such as id=7 for :id")
        return found

    @classmethod
    def read(cls, written: Sequence[str] | None) -> Mapping[str, str] | None:
        """Values are texts; a number or a time that is compared with such a column may be written as a text."""
        if not written:
            return None
        pairs = [text.partition("=") for text in written]
        for name, equals, _ in pairs:
            if not equals:
                raise UsageError(f"--param {name}", "it must be NAME=VALUE", "such as --param id=7 for :id")
            if [other for other, _, _ in pairs].count(name) > 1:
                raise UsageError(f"--param {name} is given twice", "a parameter has one value")
        return {name: value for name, _, value in pairs}


PARAM = Option(
    "Value of :NAME in the SQL, which is data and never SQL; repeatable.",
    flags=("--param",),
    library="Values of parameters, which are written as `:name` in SQL. They are data, never SQL: texts, numbers, times, "
    "booleans, bytes and None; a list for `IN :name`",
)


class Conditional(Request):
    """A request with a condition, which may have parameters."""

    _: KW_ONLY
    params: Annotated[Params, PARAM] = Params()
