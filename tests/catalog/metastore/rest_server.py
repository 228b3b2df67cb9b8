"""A small REST catalog after Paimon's OpenAPI: names in memory, tables in a directory, one item a page, a bearer token."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from paimon_cli.api.table import Table
from paimon_cli.datatypes.field_types import parse_type, type_to_sql
from paimon_cli.errors import NotFound, PaimonError

Change = Callable[[Any, str, dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "setOption": lambda alter, column, step: alter.set({step["key"]: step["value"]}),
    "removeOption": lambda alter, column, step: alter.unset(step["key"]),
    "updateComment": lambda alter, column, step: alter.comment(step["comment"]),
    "addColumn": lambda alter, column, step: alter.add_column(
        f"{column} {type_to_sql(parse_type(step['dataType']))}", comment=step["comment"], **_placed(step["move"])
    ),
    "renameColumn": lambda alter, column, step: alter.rename_column(column, step["newName"]),
    "dropColumn": lambda alter, column, step: alter.drop_column(column),
    "updateColumnType": lambda alter, column, step: alter.alter_column(column, type=type_to_sql(parse_type(step["newDataType"]))),
    "updateColumnNullability": lambda alter, column, step: alter.alter_column(column, nullable=step["newNullability"]),
    "updateColumnComment": lambda alter, column, step: alter.alter_column(column, comment=step["newComment"] or ""),
    "updateColumnDefaultValue": lambda alter, column, step: alter.alter_column(column, default=step["newDefaultValue"]),
    "updateColumnPosition": lambda alter, column, step: alter.alter_column(step["move"]["fieldName"], **_placed(step["move"])),
}
"""How the library does what each step of a change of the schema asks for."""


def _placed(move: dict[str, Any] | None) -> dict[str, Any]:
    if move is None:
        return {}
    return {"first": True} if move["type"] == "FIRST" else {"after": move["referenceFieldName"]}


TOKEN, PREFIX, WAREHOUSE = "open-sesame", "my prefix", "lake"


class Answered(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RestServer:
    """Runs while its `with` block does. `faults` are taken by the next commits, or changes of versions: `lost` answers are never
    sent, `cut` connections break before anything is done, `refused` commits are not carried out, a number is that answer in their
    place, and `late` ones are carried out and answered with `success: false`.

    `requests`: the changes of versions, with what was sent.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.databases: dict[str, dict[str, dict[str, Any]]] = {}
        self.faults: list[str | int] = []
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.commits: list[dict[str, Any]] = []
        self.marks: list[tuple[str, list[dict[str, str]]]] = []
        self.overrides: dict[str, str] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> RestServer:
        rest = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer()

            do_POST = do_DELETE = do_GET

            def log_message(self, format: str, *arguments: Any) -> None:
                """Tests are quiet."""

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                address = urlsplit(self.path)
                try:
                    if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                        raise Answered(401, f"not with {self.headers.get('Authorization')}")
                    path = [unquote(part) for part in address.path.strip("/").split("/")]
                    query = {key: values[0] for key, values in parse_qs(address.query).items()}
                    with rest._lock:
                        status, content = 200, rest.handle(self.command, path, query, json.loads(body) if body else {})
                except Answered as error:
                    status, content = error.status, {"message": str(error), "code": error.status}
                except ConnectionAbortedError:
                    self.close_connection = True
                    return
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def handle(self, method: str, path: list[str], query: dict[str, str], content: dict[str, Any]) -> dict[str, Any]:
        match [method, *path]:
            case ["GET", "v1", "config"]:
                if query.get("warehouse") != WAREHOUSE:
                    raise Answered(404, "no such warehouse")
                return {"defaults": {"prefix": PREFIX}, "overrides": self.overrides}
            case [_, "v1", prefix, *rest] if prefix == PREFIX:
                return self._of_catalog(method, rest, query, content)
        raise Answered(404, "no such address")

    def _of_catalog(self, method: str, path: list[str], query: dict[str, str], content: dict[str, Any]) -> dict[str, Any]:
        match [method, *path]:
            case ["GET", "databases"]:
                return self._page("databases", sorted(self.databases), query)
            case ["POST", "databases"]:
                if content["name"] in self.databases:
                    raise Answered(409, f"Database {content['name']} already exists.")
                self.databases[content["name"]] = {}
            case ["POST", "tables", "rename"]:
                source, target = (self._named(content[key]) for key in ("source", "destination"))
                if target[1] in target[0]:
                    raise Answered(409, "the table exists")
                target[0][target[1]] = {**source[0].pop(source[1]), "name": target[1]}
            case ["GET", "databases", name]:
                self._tables(name)
                return {"name": name, "location": f"file:{self.directory}/{name}.db", "options": {}}
            case ["DELETE", "databases", name]:
                del self.databases[name]
            case ["GET", "databases", name, "table-details"]:
                return self._page("tableDetails", [table for _, table in sorted(self._tables(name).items())], query)
            case ["GET", "databases", name, "tables"]:
                return self._page("tables", sorted(self._tables(name)), query)
            case ["POST", "databases", name, "tables"]:
                self._create(name, content)
            case ["GET", "databases", name, "tables", table]:
                return self._table(name, table)
            case ["DELETE", "databases", name, "tables", table]:
                shutil.rmtree(self._table(name, table)["path"].removeprefix("file:"))
                del self.databases[name][table]
            case ["POST", "databases", name, "tables", table, "commit"]:
                return self._commit(self._table(name, table), content, table)
            case ["POST", "databases", name, "tables", table, "partitions", "mark"]:
                self._table(name, table)
                self.marks.append((table, content["specs"]))
            case [_, "databases", name, "tables", table, *rest]:
                return self._of_table(method, rest, self._opened(name, table), content)
            case _:
                raise Answered(501, f"{method} {'/'.join(path)} is not implemented")
        return {}

    def _of_table(self, method: str, path: list[str], table: Table, content: dict[str, Any]) -> dict[str, Any]:
        """Changes of versions, which the library makes on the files."""
        self.requests.append((method, "/".join(path), content))
        fault = self.faults.pop(0) if self.faults else None
        if fault == "refused" or isinstance(fault, int):
            raise Answered(503 if fault == "refused" else int(fault), "not now")
        try:
            self._change(method, path, table, content)
        except PaimonError as error:
            raise Answered(404 if isinstance(error, NotFound) else 409, str(error)) from None
        if fault == "lost":
            raise ConnectionAbortedError
        return {}

    def _change(self, method: str, path: list[str], table: Table, content: dict[str, Any]) -> None:
        match [method, *path]:
            case ["POST"]:
                for step in content["changes"]:
                    CHANGES[step["action"]](table.alter, ".".join(step.get("fieldNames", ())), step)
            case ["POST", "tags"]:
                table.tags.create(content["tagName"], snapshot=content["snapshotId"], time_retained=content["timeRetained"])
            case ["DELETE", "tags", tag]:
                table.tags.rm(tag)
            case ["POST", "branches"]:
                table.branches.create(content["branch"], tag=content["fromTag"])
            case ["DELETE", "branches", branch]:
                table.branches.rm(branch)
            case ["POST", "branches", branch, "forward"]:
                table.branches.fast_forward(branch)
            case ["POST", "rollback"]:
                if table.context.snapshots.latest_id() != content["fromSnapshot"]:
                    raise Answered(500, "that is not the latest snapshot")
                instant = content["instant"]
                table.rollback(instant["snapshotId"] if instant["type"] == "snapshot" else instant["tagName"])
            case _:
                raise Answered(501, f"{method} {'/'.join(path)} is not implemented")

    def _opened(self, database: str, name: str) -> Table:
        table, _, branch = name.partition("$branch_")
        path = self._table(database, table)["path"].removeprefix("file:")
        return Table.open(path, {"metastore": "filesystem"}, branch=branch or None)

    def _page(self, key: str, items: list[Any], query: dict[str, str]) -> dict[str, Any]:
        begin = int(query.get("pageToken", "0"))
        more = {"nextPageToken": str(begin + 1)} if begin + 1 < len(items) else {}
        return {key: items[begin : begin + 1], **more}

    def _tables(self, database: str) -> dict[str, dict[str, Any]]:
        if database not in self.databases:
            raise Answered(404, f"Database {database} doesn't exist.")
        return self.databases[database]

    def _named(self, identifier: dict[str, str]) -> tuple[dict[str, dict[str, Any]], str]:
        return self._tables(identifier["database"]), identifier["object"]

    def _table(self, database: str, name: str) -> dict[str, Any]:
        name = name.partition("$branch_")[0]
        if name not in self._tables(database):
            raise Answered(404, f"Table {database}.{name} doesn't exist.")
        return self.databases[database][name]

    def _create(self, database: str, content: dict[str, Any]) -> None:
        tables, name = self._named(content["identifier"])
        if name in tables:
            raise Answered(409, "the table exists")
        place = self.directory / f"{database}.db" / f"{name}-{uuid.uuid4()}"
        schema = {"version": 3, "id": 0, "highestFieldId": len(content["schema"]["fields"]) - 1, "timeMillis": 0}
        (place / "schema").mkdir(parents=True)
        (place / "schema" / "schema-0").write_text(json.dumps({**schema, **content["schema"]}))
        tables[name] = {
            "id": str(uuid.uuid4()),
            "name": name,
            "path": f"file:{place}",
            "schemaId": 0,
            "schema": content["schema"],
        }

    def _commit(self, table: dict[str, Any], content: dict[str, Any], name: str) -> dict[str, Any]:
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, int):
            raise Answered(fault, "not now")
        if fault == "refused":
            raise Answered(503, "busy")
        if fault == "cut":
            raise ConnectionAbortedError
        if content["tableId"] != table["id"]:
            raise Answered(404, "another table")
        self.commits.append(content)
        branch = name.partition("$branch_")[2]
        root = Path(table["path"].removeprefix("file:")) / (f"branch/branch-{branch}" if branch else "")
        done = self._publish(root / "snapshot", content)
        if fault == "lost":
            raise ConnectionAbortedError
        return {"success": done and fault != "late"}

    def _publish(self, directory: Path, content: dict[str, Any]) -> bool:
        snapshot, base = content["snapshot"], directory / f"snapshot-{content['snapshot']['id'] - 1}"
        path = directory / f"snapshot-{snapshot['id']}"
        if path.exists() or (base.exists() and json.loads(base.read_text()).get("uuid") != content["baseSnapshotUuid"]):
            return False
        directory.mkdir(exist_ok=True)
        path.write_text(json.dumps(snapshot, sort_keys=True))
        (directory / "LATEST").write_text(str(snapshot["id"]))
        return True
