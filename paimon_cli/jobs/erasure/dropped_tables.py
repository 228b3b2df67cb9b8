"""Earlier tables at the place of a table, which are in the trash of the warehouse: what is erased must be gone from them, too."""

from __future__ import annotations

from paimon_cli.catalog.warehouse_trash import trash_of_table
from paimon_cli.errors import DamagedFile, Refused
from paimon_cli.history.table_context import TableContext


def dropped_tables(context: TableContext) -> list[TableContext]:
    """The tables in the trash that were dropped at the place of this one. Raises `Refused` for one with other keys, whose rows
    the request does not name, for one that is being deleted, and for entries of the trash that cannot be read.
    """
    trash = trash_of_table(context.place, context.layout.root, context.clock, context.random)
    if trash is None:
        return []
    hint, found = "delete it for good first: paimon-cli trash empty", list[TableContext]()
    try:
        entries = [entry for entry in trash.entries() if entry.is_moved and entry.url == context.layout.root]
    except DamagedFile as error:
        what = f"the trash of the warehouse may hold rows of {context.address}, and cannot be read"
        raise Refused(what, str(error), "repair or delete that entry") from error
    for entry in entries:
        path = trash.table_directory(entry)
        if entry.is_going:
            raise Refused(f"an earlier {entry.table} is being deleted from the trash", f"some of {path} is gone", hint)
        table = TableContext.open(path, storage=trash.open_table(path), clock=context.clock, random=context.random)
        ours, theirs = ([(f.name, f.type) for f in t.schema.fields_of(t.schema.primary_keys)] for t in (context, table))
        if ours != theirs:
            why = f"{path} is an earlier table of this place, in the trash, with another primary key"
            raise Refused(f"rows cannot be erased from {entry.table} alone", why, hint)
        found.append(table)
    return found
