"""Google Cloud Storage and Azure's blob service as far as obstore asks for them: their HTTP dialects, over blobs in memory.

They replace the real services. The proxy in front of them injects the same faults for all stores. Signatures are not checked.
"""

from __future__ import annotations

import base64
import re
import sys
import threading
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 500
"""Entries of a listing in one answer."""
DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@dataclass
class Answered:
    """`headers` over those that every answer has."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class BlobServer:
    """Blobs of all buckets by `bucket/key`; parts of uploads by the id of the upload, or by the blob on Azure. `locked`: blobs
    that nobody may delete.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.parts: dict[str, dict[str, bytes]] = {}
        self.locked: set[str] = set()
        self._changing = threading.Lock()

    def __enter__(self) -> BlobServer:
        server = self

        class Handler(_Handler):
            store = server

        self._http = QuietServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answered:
        """One request at a time, as if the store were a single machine."""
        split = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(split.query, keep_blank_values=True).items()}
        with self._changing:
            return self.respond(method, unquote(split.path).lstrip("/"), query, headers, body)

    def respond(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Answered:
        raise NotImplementedError

    def put(self, path: str, body: bytes, is_create: bool) -> Answered | None:
        """None, and nothing done, for a blob that is there already."""
        if is_create and path in self.blobs:
            return None
        self.blobs[path] = body
        return Answered(201, headers={"ETag": f'"{uuid.uuid4()}"', "x-goog-generation": "7"})

    def get(self, method: str, path: str, headers: dict[str, str]) -> Answered | None:
        content = self.blobs.get(path)
        if content is None:
            return None
        facts = {"ETag": '"1"', "Last-Modified": format_datetime(DATE, usegmt=True), "x-goog-generation": "7"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range") or headers.get("x-ms-range") or "")
        if wanted is None:
            return Answered(200, content, facts)
        start, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
        return Answered(206, content[start : end + 1], facts | {"Content-Range": f"bytes {start}-{end}/{len(content)}"})

    def listed(self, bucket: str, prefix: str, delimiter: str, after: str) -> tuple[list[tuple[str, int | None]], str]:
        """A page of keys with their sizes and of common prefixes with None; and where the next page begins, or ''."""
        found: dict[str, int | None] = {}
        for path, content in sorted(self.blobs.items()):
            key = path.removeprefix(f"{bucket}/")
            if not path.startswith(f"{bucket}/{prefix}") or key <= after:
                continue
            below = key[len(prefix) :].find(delimiter) if delimiter else -1
            name = key if below < 0 else key[: len(prefix) + below + 1]
            if after and name == after[: len(name)] and below >= 0:
                continue
            if name not in found and len(found) == PAGE:
                return list(found.items()), list(found)[-1]
            found[name] = len(content) if below < 0 else None
        return list(found.items()), ""


def _error(status: int, code: str) -> Answered:
    return Answered(status, f"<Error><Code>{code}</Code><Message>said on purpose</Message></Error>".encode())


class GoogleServer(BlobServer):
    """Its XML interface: `/bucket/key`."""

    def respond(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Answered:
        bucket, _, key = path.partition("/")
        if not key:
            return self._list(bucket, query)
        if method in ("GET", "HEAD"):
            return self.get(method, path, headers) or _error(404, "NoSuchKey")
        if method == "DELETE":
            if "uploadId" in query:
                self.parts.pop(query["uploadId"], None)
                return Answered(204)
            if path in self.locked:
                return _error(403, "RetentionPolicyNotMet")
            return _error(404, "NoSuchKey") if self.blobs.pop(path, None) is None else Answered(204)
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self.parts[upload] = {}
            found = f"<UploadId>{upload}</UploadId><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
            return Answered(200, f"<InitiateMultipartUploadResult>{found}</InitiateMultipartUploadResult>".encode())
        if "partNumber" in query:
            self.parts[query["uploadId"]][f"{int(query['partNumber']):05}"] = body
            return Answered(200, headers={"ETag": '"part"'})
        if "uploadId" in query:
            parts = self.parts.pop(query["uploadId"])
            self.put(path, b"".join(parts[number] for number in sorted(parts)), False)
            return Answered(200, b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
        done = self.put(path, body, headers.get("x-goog-if-generation-match") == "0")
        return done or _error(412, "PreconditionFailed")

    def _list(self, bucket: str, query: dict[str, str]) -> Answered:
        token = query.get("continuation-token", "")
        found, following = self.listed(bucket, query.get("prefix", ""), query.get("delimiter", ""), token)
        moment = "2026-01-02T03:04:05.000Z"
        lines = []
        for name, size in found:
            facts = f"<LastModified>{moment}</LastModified><ETag>x</ETag><Size>{size}</Size>"
            blob = f"<Contents><Key>{escape(name)}</Key>{facts}</Contents>"
            lines.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" if size is None else blob)
        token = f"<NextContinuationToken>{escape(following)}</NextContinuationToken>" if following else ""
        truncated = f"<IsTruncated>{str(bool(following)).lower()}</IsTruncated>"
        return Answered(200, f"<ListBucketResult>{truncated}{token}{''.join(lines)}</ListBucketResult>".encode())


class AzureServer(BlobServer):
    """The blob service of one account: `/account/container/key`."""

    def respond(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Answered:
        account, _, path = path.partition("/")
        container = path.partition("/")[0]
        if query.get("comp") == "batch":
            return self._batch(account, headers, body)
        if query.get("comp") == "list":
            return self._list(container, query)
        if method in ("GET", "HEAD"):
            return self.get(method, path, headers) or _error(404, "BlobNotFound")
        if method == "DELETE":
            return _error(404, "BlobNotFound") if self.blobs.pop(path, None) is None else Answered(202)
        if query.get("comp") == "block":
            self.parts.setdefault(path, {})[query["blockid"]] = body
            return Answered(201)
        if query.get("comp") == "blocklist":
            blocks = self.parts.pop(path)
            named = re.findall(r"<(?:Uncommitted|Latest)>([^<]+)<", body.decode())
            return self.put(path, b"".join(blocks[name] for name in named), False) or _error(500, "never")
        done = self.put(path, body, headers.get("if-none-match") == "*")
        return done or _error(409, "BlobAlreadyExists")

    def _list(self, container: str, query: dict[str, str]) -> Answered:
        marker = base64.urlsafe_b64decode(query.get("marker", "")).decode()
        found, following = self.listed(container, query.get("prefix", ""), query.get("delimiter", ""), marker)
        moment = format_datetime(DATE, usegmt=True)
        lines = []
        for name, size in found:
            facts = f"<Last-Modified>{moment}</Last-Modified><Content-Length>{size}</Content-Length><Etag>x</Etag>"
            facts += "<Content-Type>x</Content-Type>"
            blob = f"<Blob><Name>{escape(name)}</Name><Properties>{facts}</Properties></Blob>"
            lines.append(f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" if size is None else blob)
        token = base64.urlsafe_b64encode(following.encode()).decode()
        text = f"<EnumerationResults><Blobs>{''.join(lines)}</Blobs><NextMarker>{token}</NextMarker></EnumerationResults>"
        return Answered(200, text.encode())

    def _batch(self, account: str, headers: dict[str, str], body: bytes) -> Answered:
        """Several deletions in one request, each with an answer of its own."""
        boundary = "batchresponse_1"
        lines: list[str] = []
        for number, target in enumerate(re.findall(rb"^DELETE (\S+) HTTP", body, re.M)):
            path = unquote(urlsplit(target.decode()).path).lstrip("/").removeprefix(f"{account}/")
            if path in self.locked:
                status, code = "409 This operation is not permitted as the blob is immutable.", "BlobImmutableDueToPolicy"
            elif self.blobs.pop(path, None) is not None:
                status, code = "202 Accepted", ""
            else:
                status, code = "404 The specified blob does not exist.", "BlobNotFound"
            lines += [f"--{boundary}", "Content-Type: application/http", f"Content-ID: {number}", "", f"HTTP/1.1 {status}"]
            lines += ["x-ms-version: 2023-11-03"] + ([f"x-ms-error-code: {code}"] if code else []) + ["", ""]
        text = "\r\n".join([*lines, f"--{boundary}--", ""])
        return Answered(202, text.encode(), {"Content-Type": f"multipart/mixed; boundary={boundary}"})


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error of the server."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    store: BlobServer

    def handle_any(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length") or 0))
        answered = self.store.answer(self.command, self.path, headers, body)
        self.send_response(answered.status)
        for name, value in answered.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answered.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answered.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: tests print only what went wrong."""
