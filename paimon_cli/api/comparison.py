"""Opens the sides of a comparison by name: a table, a version of a table, or files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from paimon_cli.errors import NotFound, TableNotFound, UsageError
from paimon_cli.ingest.text_form import given_form
from paimon_cli.requests.comparison import CompareOptions

if TYPE_CHECKING:
    from paimon_cli.api.runtime import Runtime
    from paimon_cli.api.scan import Scan
    from paimon_cli.api.table import Table
    from paimon_cli.ingest.text_form import TextForm
    from paimon_cli.jobs.comparison import Comparison
    from paimon_cli.jobs.comparison_sides import FileSide, TableSide
    from paimon_cli.metadata.snapshot import Snapshot
    from paimon_cli.read.difference import FileChange


class Tables(Protocol):
    """The catalog in which the sides are looked up."""

    runtime: Runtime

    def table(self, name: str, *, branch: str | None = None) -> Table: ...


NAMING_HINT = "name a table by its path, or as db.table with --warehouse"


class CompareCall(CompareOptions):
    """A comparison, in which files may have a format of their own."""

    _: KW_ONLY
    form: TextForm | None = None


@dataclass(frozen=True)
class ComparedVersions:
    """Two versions of one table, by their snapshots: what lies between them."""

    table: Table
    before: Snapshot
    after: Snapshot

    def file_changes(self) -> list[FileChange]:
        """The data files that only one of the versions has."""
        from paimon_cli.read.difference import file_changes

        return file_changes(self.table.context, self.before, self.after)

    def changelog(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Scan:
        """The row changes after the first version, up to the second, as `changelog read` has them.

        Raises `UsageError` if the first version is the newer one.
        """
        if self.before.id > self.after.id:
            what = f"snapshot {self.before.id} is newer than snapshot {self.after.id}"
            raise UsageError(what, "a changelog goes from the older to the newer", "swap the two sides")
        begin, limit = (self.after.id, 0) if self.before.id == self.after.id else (self.before.id + 1, limit)
        return self.table.changelog(begin, self.after.id, columns=columns, where=where, params=params, limit=limit)


def compared_versions(catalog: Tables, call: CompareOptions) -> ComparedVersions:
    """The two versions that the sides name. Raises `UsageError` unless both are versions of one table."""
    from paimon_cli.api.table import Table

    here = _table_side(catalog, call.here, call.snapshot_a, call.tag_a, call.branch_a)
    there = _table_side(catalog, call.there, call.snapshot_b, call.tag_b, call.branch_b)
    if here is None or there is None:
        name = call.here if here is None else call.there
        hint = _naming_hint(catalog, name) or "paimon-cli compare ./wh/shop.db/orders@1 ./wh/shop.db/orders@4"
        raise NotFound(f"there is no table {name}", "two versions of one table are compared", hint)
    if (here.table.url, here.table.branch) != (there.table.url, there.table.branch):
        what = f"{here.name} and {there.name} are not versions of one table"
        raise UsageError(what, "other tables and branches have other files and changelogs", "leave out --files and --changelog")
    if here.snapshot is None or there.snapshot is None:
        raise NotFound(f"{here.name} has no snapshots", "nothing was written to the table")
    return ComparedVersions(Table(here.table, catalog.runtime), here.snapshot, there.snapshot)


def compare_sides(catalog: Tables, call: CompareCall) -> Comparison:
    """Open both sides and compare them. Files are read with the column types of the table on the other side.

    Raises `UsageError` if neither side is a table, `NotFound` if a side does not exist.
    """
    from paimon_cli.datatypes.type_text import quoted_names
    from paimon_cli.jobs.comparison import compare

    names = (call.here, call.there)
    found = [
        _table_side(catalog, call.here, call.snapshot_a, call.tag_a, call.branch_a),
        _table_side(catalog, call.there, call.snapshot_b, call.tag_b, call.branch_b),
    ]
    table = next((side for side in found if side is not None), None)
    if table is None:
        raise UsageError(
            f"neither {names[0]} nor {names[1]} is a table",
            "files are read with the types of a table",
            next(filter(None, (_naming_hint(catalog, name) for name in names)), "name a table on one side"),
        )
    here, there = (
        side if side is not None else _file_side(catalog, name, table, call.format, given_form(call.form))
        for name, side in zip(names, found, strict=True)
    )
    for warning in dict.fromkeys(side.waiting_text for side in found if side is not None and side.waiting_text):
        catalog.runtime.warn(warning)
    progress = catalog.runtime.new_progress()
    progress.start("Reading rows", None)
    chosen = quoted_names(call.columns) if isinstance(call.columns, str) else call.columns or ()
    try:
        return compare(
            here, there, key=call.key, columns=chosen, where=call.condition, limit=call.limit, advance=progress.advance
        )
    finally:
        progress.finish()


def _table_side(catalog: Tables, text: str, snapshot: int | str | None, tag: str | None, branch: str | None) -> TableSide | None:
    """The table with this name, at a version if one is given; None if the name is not a table."""
    from paimon_cli.jobs.comparison_sides import TableSide
    from paimon_cli.jobs.row_scan import ReadRequest

    opened = _opened(catalog, text, branch)
    name, _, version = text.rpartition("@")
    if opened is None and name and "/" not in version:
        opened = _opened(catalog, name, branch)
        if opened is not None:
            if not version:
                raise UsageError(
                    f"{text} names no version", "nothing follows the @", f"write {name}@12, {name}@TAG, or {name} for the latest"
                )
            if snapshot is not None or tag is not None:
                raise UsageError(f"two versions are given for {name}", f"{text} already names one", "remove one of them")
            snapshot = version
    if opened is None:
        if any(version is not None for version in (snapshot, tag, branch)):
            raise TableNotFound(f"there is no table {text}", "only tables have snapshots, tags and branches", NAMING_HINT)
        return None
    shown = opened.name if snapshot is None and tag is None else f"{opened.name}@{tag if snapshot is None else snapshot}"
    return TableSide(shown, opened.context, ReadRequest(snapshot=snapshot, tag=tag))


def _opened(catalog: Tables, name: str, branch: str | None) -> Table | None:
    try:
        return catalog.table(name, branch=branch)
    except (NotFound, UsageError):
        if branch is not None:
            raise
        return None


def _naming_hint(catalog: Tables, name: str) -> str:
    """The hint about a name that nearly is that of a table; empty for other names."""
    try:
        catalog.table(name)
    except NotFound as missing:
        return missing.hint if missing.is_about_a_name else ""
    except UsageError:
        return ""
    return ""


def _file_side(catalog: Tables, path: str, table: TableSide, format: str | None, form: TextForm) -> FileSide:
    """Files read with the column types of the table; columns that the table lacks keep the types of the files."""
    from paimon_cli.ingest.inference import columns_of_file
    from paimon_cli.ingest.row_sources import FileRows
    from paimon_cli.jobs.comparison_sides import FileSide

    options, known = table.table.place.store_options, {field.name: field for field in table.fields}
    try:
        inferred = columns_of_file(path, format, form, options, {name: field.type for name, field in known.items()}).fields
    except NotFound as error:
        hint = _naming_hint(catalog, path) or NAMING_HINT
        raise NotFound(f"there is neither a table nor a file {path}", error.why, hint) from None
    fields = tuple(known.get(field.name, field) for field in inferred)
    return FileSide(path, FileRows((path,), format, form, options), fields)
