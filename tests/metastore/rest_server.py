"""A small REST catalog after Paimon's OpenAPI: names in memory, tables in a directory, one item a page, a bearer token."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN, PREFIX, WAREHOUSE = "open-sesame", "my prefix", "lake"


class Answered(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RestServer:
    """Runs while its `with` block does. `faults` are taken by the next commits: `lost` answers are never sent, `refused` commits
    are not carried out, `late` ones are carried out and answered with `success: false`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.databases: dict[str, dict[str, dict[str, Any]]] = {}
        self.faults: list[str] = []
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
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
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
            case ["POST", "databases", name, "tables"]:
                self._create(name, content)
            case ["GET", "databases", name, "tables", table]:
                return self._table(name, table)
            case ["DELETE", "databases", name, "tables", table]:
                shutil.rmtree(self._table(name, table)["path"].removeprefix("file:"))
                del self.databases[name][table]
            case ["POST", "databases", name, "tables", table, "commit"]:
                return self._commit(self._table(name, table), content)
            case ["POST", "databases", name, "tables", table, "partitions", "mark"]:
                self._table(name, table.partition("$")[0])
                self.marks.append((table, content["specs"]))
            case _:
                raise Answered(501, f"{method} {'/'.join(path)} is not implemented")
        return {}

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

    def _commit(self, table: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
        fault = self.faults.pop(0) if self.faults else None
        if fault == "refused":
            raise Answered(503, "busy")
        if content["tableId"] != table["id"]:
            raise Answered(404, "another table")
        self.commits.append(content)
        done = self._publish(Path(table["path"].removeprefix("file:")) / "snapshot", content)
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
