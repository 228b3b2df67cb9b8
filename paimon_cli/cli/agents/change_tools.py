"""The tools that change tables, in two steps: a plan shows what would happen and gives a token, and `apply` takes the token.

`apply` makes exactly what was planned. It is refused if the table has changed since: it looks before, and the commit itself is
bound to the snapshot of the plan (`Table.only_on`, `compact(if_snapshot=...)`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from paimon_cli.cli.agents.answers import MAX_ROWS, Answer, AnsweredRows
from paimon_cli.cli.agents.desk import Visit
from paimon_cli.cli.agents.read_tools import compaction_answer
from paimon_cli.cli.agents.tools import MAX_SQL, AtSnapshot, Params, ShortText, TableArgument, Toolbox
from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.output import records
from paimon_cli.cli.results import rfc3339
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import AlreadyExists, BadInput, DataConflict, Refused
from paimon_cli.ingest.row_sources import JsonObjects
from paimon_cli.maintain.tags import check_tag_name
from paimon_cli.options.option_text import counted, json_text
from paimon_cli.read.html_text import telling_fields
from paimon_cli.requests.compaction import CompactOptions, StrategyName
from paimon_cli.requests.versions import TagOptions
from paimon_cli.requests.writing import UpdateCall, WriteOptions
from paimon_cli.storage.redaction import MASK

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_cli.api.table import Table
    from paimon_cli.jobs.change_plan import ChangePlan
    from paimon_cli.metadata.snapshot import Snapshot
    from paimon_cli.metadata.table_schema import TableSchema

CHANGING_TOOLS = Toolbox()
MAX_INPUT_BYTES = 1 << 20

Condition = Annotated[str, Field(max_length=MAX_SQL)]
TagName = Annotated[str, Field(description="Name of the tag.", min_length=1, max_length=200)]


@dataclass(frozen=True)
class Place:
    """What a plan has seen of a table: if it is the same again, nothing has happened in between."""

    url: str
    branch: str
    schema: TableSchema
    snapshot: Snapshot | None

    @classmethod
    def of(cls, table: Table) -> Place:
        table.refresh()
        context = table.context
        return cls(context.url, context.branch, context.schema, context.snapshots.latest())

    @property
    def snapshot_id(self) -> int | None:
        return None if self.snapshot is None else self.snapshot.id

    def expect(self, table: Table) -> None:
        """Raise `DataConflict` if the table has changed, or is another one."""
        now = Place.of(table)
        if now != self:
            what = f"{table.name} has changed since the plan"
            why = f"it was planned at snapshot {self.snapshot_id or 0} and schema {self.schema.id}"
            why += f", and is at snapshot {now.snapshot_id or 0} and schema {now.schema.id}"
            raise DataConflict(what, f"{why}; nothing was changed", "plan the change again")


@dataclass(frozen=True)
class SampledRows:
    """The rows of a sample, with the columns of the table."""

    fields: tuple[DataField, ...]
    table: pa.Table

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches()


def granted(visit: Visit, name: str, place: Place, kind: str, make: Callable[[Table], Any], answer: Answer) -> Answer:
    """The answer of a plan with a token for the change, which opens the table again."""
    permits = visit.desk.permits
    if permits is None:
        raise Refused("this server changes nothing", "it was started without --allow-changes", "ask its operator")

    def change() -> dict[str, Any]:
        again = Visit(visit.desk)
        table = again.table(name)
        place.expect(table)
        done = again.shown(told(make(table)))
        warnings = {"warnings": list(again.warnings)} if again.warnings else {}
        return {"applied": kind, "table": name, "result": done, **again.shown(warnings)}

    token, until = permits.grant(change)
    answer.data = {"change": kind, "token": token, "expires": rfc3339(until), **answer.data}
    how = "nothing was changed; if this is what is wanted, call apply with the token"
    answer.note = f"{how}; {answer.note}" if answer.note else how
    return answer


def told(done: Any) -> dict[str, Any]:
    """The result of a change as JSON: what says something of it, without the objects of the library that it holds."""
    telling = {name for name, _ in telling_fields(done)} - {"plan", "compaction"}
    columns = (column for column in columns_of(type(done)) if column.name in telling)
    return {column.name: column.kind.json(getattr(done, column.name)) for column in columns}


def _change_answer(visit: Visit, name: str, place: Place, kind: str, plan: ChangePlan, make: Callable[[Table], Any]) -> Answer:
    fields = place.schema.fields
    data: dict[str, Any] = {"snapshot_id": plan.snapshot_id, "rows": plan.rows}
    data |= {"existing_rows": plan.existing_rows} if kind.startswith("write") else {"files": plan.files}
    data["bytes"] = plan.size
    warnings: list[str] = []
    for part, sample in (("sample_before", plan.before), ("sample_after", plan.after)):
        if sample is not None:
            shown = AnsweredRows.of(SampledRows(fields, sample), sample.num_rows)
            data[part], warnings = shown.rows, warnings + shown.warnings
    answer = Answer(data, warnings=warnings)
    if not plan.rows:
        answer.note = "no row would change, so that there is nothing to apply"
        return answer
    place.expect(visit.table(name))
    return granted(visit, name, place, kind, make, answer)


Rows = Annotated[
    list[dict[str, Any]],
    Field(
        description="Rows as objects with values by column, in the form in which read_rows shows them.",
        min_length=1,
        max_length=MAX_ROWS,
    ),
]


@CHANGING_TOOLS.tool(describes=WriteOptions)
def plan_write(visit: Visit, table: TableArgument, rows: Rows, op: Literal["upsert", "delete"] = "upsert") -> Answer:
    """Plan to write rows: check them, and count how many keys the table has already. Nothing is written before apply."""
    lines = b"".join(json_text(row).encode("utf-8", "surrogatepass") + b"\n" for row in rows)
    if len(lines) > MAX_INPUT_BYTES:
        raise BadInput(f"the rows have {len(lines):,} bytes", f"at most {MAX_INPUT_BYTES:,} are taken", "plan several writes")
    if MASK.encode() in lines:
        raise BadInput(f"a row contains {MASK}", "it stands for a credential that was hidden from you", "leave the row out")
    opened = visit.table(table)
    place, source = Place.of(opened), JsonObjects(lines)
    plan = opened.plan_write(source, op=op).plan

    def make(table: Table) -> Any:
        return table.only_on(place.snapshot_id).write(source, op=op)

    return _change_answer(visit, table, place, f"write ({op})", plan, make)


Values = Annotated[
    dict[str, Any] | None,
    Field(description="New values by column. They are data: a text is that text, never SQL.", max_length=1000),
]
Expressions = Annotated[
    dict[str, Annotated[str, Field(max_length=MAX_SQL)]] | None,
    Field(description="New values by column as SQL expressions over the old values, such as {'points': 'points + 1'}."),
]


@CHANGING_TOOLS.tool(describes=UpdateCall)
def plan_update(
    visit: Visit,
    table: TableArgument,
    where: Condition,
    values: Values = None,
    expressions: Expressions = None,
    params: Params = None,
) -> Answer:
    """Plan to change the rows that match a condition: count them, and show some before and after. Nothing is changed before
    apply.
    """
    opened = visit.table(table)
    place = Place.of(opened)
    asked: dict[str, Any] = {"where": where, "values": values, "set": expressions, "params": params}
    plan = opened.plan_update(**asked).plan

    def make(table: Table) -> Any:
        return table.only_on(place.snapshot_id).update(**asked, max_attempts=1)

    return _change_answer(visit, table, place, "update", plan, make)


@CHANGING_TOOLS.tool(describes=UpdateCall)
def plan_delete(visit: Visit, table: TableArgument, where: Condition, params: Params = None) -> Answer:
    """Plan to delete the rows that match a condition: count them, and show some. Nothing is deleted before apply."""
    opened = visit.table(table)
    place = Place.of(opened)
    plan = opened.plan_delete(where=where, params=params).plan

    def make(table: Table) -> Any:
        return table.only_on(place.snapshot_id).delete(where=where, params=params, max_attempts=1)

    return _change_answer(visit, table, place, "delete", plan, make)


@CHANGING_TOOLS.tool(describes=CompactOptions)
def plan_compaction(visit: Visit, table: TableArgument, strategy: StrategyName = "full") -> Answer:
    """Plan a compaction of a table: show what it would merge, bucket by bucket. Nothing is merged before apply."""
    opened = visit.table(table)
    place = Place.of(opened)
    plan = opened.plan_compaction(strategy, if_snapshot=place.snapshot_id)
    answer = compaction_answer(visit, opened, plan)
    if not plan.has_work:
        return answer

    def make(table: Table) -> Any:
        return table.compact(strategy, if_snapshot=place.snapshot_id, on_conflict="fail")

    return granted(visit, table, place, f"compact ({strategy})", make, answer)


@CHANGING_TOOLS.tool(describes=TagOptions)
def plan_create_tag(
    visit: Visit, table: TableArgument, name: TagName, snapshot: AtSnapshot = None, time_retained: ShortText = None
) -> Answer:
    """Plan to tag a snapshot of a table, by default the latest, so that it does not expire. There is no tag before apply."""
    opened = visit.table(table)
    check_tag_name(name)
    place = Place.of(opened)
    chosen = place.snapshot_id if snapshot is None else snapshot
    found = opened.snapshot("latest" if chosen is None else chosen)
    asked = TagOptions(name=name, snapshot=chosen, time_retained=time_retained)
    if opened.tags.exists(name):
        raise AlreadyExists("there is a tag with this name", "tags are not moved by agents", "choose another name")
    answer = Answer({"name": name, "snapshot": visit.shown(records([found])[0])})

    def make(table: Table) -> Any:
        return table.tags.create(name=name, snapshot=chosen, time_retained=asked.time_retained)

    return granted(visit, table, place, "create tag", make, answer)


@CHANGING_TOOLS.tool()
def plan_delete_tag(visit: Visit, table: TableArgument, name: TagName) -> Answer:
    """Plan to delete a tag of a table, and the files that only it needs. Nothing is deleted before apply."""
    opened = visit.table(table)
    place = Place.of(opened)
    tag, files = opened.tags.show(name), opened.tags.plan_rm(name).files()
    shown = frozenset(file.path for file in files)
    data = {
        "tag": visit.shown(records([tag])[0]),
        "file_count": len(files),
        "bytes": sum(file.size or 0 for file in files),
    }

    def make(table: Table) -> Any:
        if table.tags.show(name).snapshot_id != tag.snapshot_id:
            raise DataConflict("the tag has been moved since the plan", "it names another snapshot", "plan the change again")
        removal = table.tags.plan_rm(name)
        # other tags and snapshots held files with it, and may have gone since: neither changes what `Place` sees
        if more := sum(file.path not in shown for file in removal.files()):
            what = f"{counted(more, 'file')} would be deleted that the plan did not show"
            why = "another version that held them has gone since; nothing was changed"
            raise DataConflict(what, why, "plan the change again")
        return TagDeleted(name, removal.run())

    return granted(visit, table, place, "delete tag", make, Answer(data, "what only this tag holds is deleted for good"))


@dataclass(frozen=True)
class TagDeleted:
    """`files`: how many files were deleted with it."""

    name: str
    files: int


Token = Annotated[str, Field(description="The token of a plan.", min_length=1, max_length=200)]


@CHANGING_TOOLS.tool(changes=True, is_bounded=False)
def apply(visit: Visit, token: Token) -> Answer:
    """Make the change that a plan has shown, exactly as it was planned. It is refused if the table has changed since then, if the
    token is more than five minutes old, or was used before.
    """
    permits = visit.desk.permits
    if permits is None:
        raise Refused("this server changes nothing", "it was started without --allow-changes", "ask its operator")
    return Answer(permits.use(token), "the change is committed")
