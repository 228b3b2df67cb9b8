"""How tools are declared: a function whose docstring describes it, and whose parameters are its arguments.

    @READING_TOOLS.tool(describes=ScanCall)
    def count_rows(visit: Visit, table: TableArgument, where: str | None = None) -> Answer:

The first parameter is the call. The others are checked strictly: a missing, an unknown, or a wrongly typed argument is refused.
What an option of a command means, its request says (`requests/`).
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from paimon_cli.cli.agents.answers import MAX_ROWS, Answer
from paimon_cli.cli.agents.desk import Desk
from paimon_cli.command_texts import in_python
from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import declared

MAX_SQL = 20_000
MAX_FAULTS = 5

TableArgument = Annotated[str, Field(description="The table, as database.table.", max_length=300)]
Where = Annotated[str | None, Field(max_length=MAX_SQL)]
Params = Annotated[dict[str, Any] | None, Field(max_length=100)]
Columns = Annotated[list[str] | None, Field(max_length=1000)]
Limit = Annotated[int, Field(description="At most this many.", ge=1, le=MAX_ROWS)]
AtSnapshot = Annotated[int | None, Field(ge=1)]
ShortText = Annotated[str | None, Field(max_length=300)]

Work = Callable[..., Answer]


@dataclass(frozen=True)
class AgentTool:
    """A tool. `run`: what it does in a call. `changes`: it commits something; `is_bounded`: it is given up after its time."""

    name: str
    description: str
    arguments: type[BaseModel]
    run: Work
    changes: bool = False
    is_bounded: bool = True

    @property
    def input_schema(self) -> dict[str, Any]:
        return self.arguments.model_json_schema()

    def checked(self, given: dict[str, Any] | None) -> dict[str, Any]:
        """The arguments by name. Raises `UsageError`, which quotes nothing of them."""
        try:
            found = self.arguments.model_validate(given or {})
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False, include_context=False)
            shown = "; ".join(f"{'.'.join(map(str, fault['loc']))[:100]}: {fault['msg'][:200]}" for fault in faults[:MAX_FAULTS])
            more = f"; and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
            raise UsageError(f"{self.name} cannot take these arguments", shown + more, "see the schema of the tool") from None
        return {name: getattr(found, name) for name in type(found).model_fields}


@dataclass
class Toolbox:
    """Tools by name, in the order in which they are listed."""

    tools: dict[str, AgentTool] = field(default_factory=dict)

    def tool(self, *, describes: Any = None, changes: bool = False, is_bounded: bool = True) -> Callable[[Work], Work]:
        """Decorator: declare a tool. `describes`: the request whose options its arguments are."""

        def declare(function: Work) -> Work:
            text = " ".join((function.__doc__ or "").split())
            model = _model_of(function, describes)
            self.tools[function.__name__] = AgentTool(function.__name__, text, model, function, changes, is_bounded)
            return function

        return declare

    def __add__(self, other: Toolbox) -> Toolbox:
        return Toolbox({**self.tools, **other.tools})


def _model_of(function: Work, request: Any) -> type[BaseModel]:
    hints = typing.get_type_hints(function, include_extras=True)
    meanings = {} if request is None else {one.name: in_python(one.meaning) for one in declared(request) if one.meaning}
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        hint, name = hints[parameter.name], parameter.name
        if name in meanings:
            hint = Annotated[hint, Field(description=f"{meanings[name]}.")]
        fields[name] = (hint, ... if parameter.default is inspect.Parameter.empty else parameter.default)
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid", strict=True), **fields)


def run_tool(desk: Desk, tool: AgentTool, given: dict[str, Any] | None) -> Answer:
    """The answer of a tool. Raises `PaimonError`."""
    arguments = tool.checked(given)
    answer, warnings = desk.answer(tool.name, lambda visit: tool.run(visit, **arguments), is_bounded=tool.is_bounded)
    answer.warnings[:0] = warnings
    return answer
