"""Reports of partitions that are done, posted to `partition.mark-done-action.http.url` (Java HttpReportMarkDoneAction).

The address is an option of the table, so anyone who can write a schema file chooses it, and the request comes from the machine of
the user. It is sent only to hosts that the user allows, at an address that was checked, and its answer is bounded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from paimon_cli.errors import Refused, StorageUnavailable, UsageError, importing
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.storage.redaction import shown_address
from paimon_cli.storage.web_address import REPORT_HOSTS, AllowedHosts, WebAddress

if TYPE_CHECKING:
    from paimon_cli.storage.web_client import WebClient

URL_OPTION = "partition.mark-done-action.http.url"
_SECONDS, _MOST_BYTES = 30, 65536
"""The total time of a report, and the most bytes of its answer."""


@dataclass(frozen=True)
class HttpReport:
    """The reports of one table. `hosts`: where they may be sent."""

    context: TableContext
    hosts: AllowedHosts

    def check(self) -> WebAddress:
        """The address of the reports. Raises `UsageError` if there is none, and `Refused` if the user does not allow its host."""
        url = self.context.options.partition_mark_done_url or ""
        address = WebAddress.parse(url)
        if address is None:
            raise UsageError(
                "partitions are not reported",
                f"{URL_OPTION} is not a URL of http or https with a valid host and port",
                f"paimon-cli alter {self.context.layout.argument} set {URL_OPTION}=https://HOST/PATH",
            )
        if self.hosts.allow(address):
            return address
        entry = address.host_and_port
        raise Refused(
            f"partitions are not reported to {shown_address(url)}",
            f"an option of the table names this address, and {REPORT_HOSTS} does not allow it",
            f"if you trust it, add --option {REPORT_HOSTS}={entry}, or set it in your own file, which `config show` names",
        )

    def send(self, partition: bytes) -> None:
        """Post a partition. Raises `StorageUnavailable` unless the answer has the result SUCCESS."""
        context, address, client = self.context, self.check(), self._client
        from paimon_cli.storage.web_client import NoAnswer, NotSent

        body = {
            "params": context.options.partition_mark_done_params,
            "table": _full_name(context),
            "path": context.layout.root,
            "partition": context.partition_path_of(partition).rstrip("/"),
        }
        headers = {"Content-Type": "application/json"}
        try:
            status, text = client.send("POST", address.path, json.dumps(body).encode(), headers)
            answer = json.loads(text) if status == 200 else None
        except (NotSent, NoAnswer, ValueError, RecursionError) as error:
            raise self._unreported(partition, str(error)) from error
        if 300 <= status < 400:
            raise self._unreported(partition, "the answer is a redirect, which is not followed")
        if status != 200:
            raise self._unreported(partition, f"the answer has the status {status}")
        result = answer.get("result") if isinstance(answer, dict) else None
        if str(result).upper() != "SUCCESS":
            raise self._unreported(partition, f"the result in the answer is {str(result)[:100]!r}, not SUCCESS")

    @cached_property
    def _client(self) -> WebClient:
        with importing("reports over HTTP need urllib3", "rest"):
            from paimon_cli.storage.web_client import Bounds, WebClient
        from paimon_cli.storage.peers import checked_addresses

        return WebClient(self.check(), Bounds(_SECONDS, _MOST_BYTES, checked_addresses))

    def _unreported(self, partition: bytes, why: str) -> StorageUnavailable:
        url = shown_address(self.context.options.partition_mark_done_url or "")
        what = f"partition {partition_text(self.context, partition)} could not be reported to {url}"
        return StorageUnavailable(what, why, "run the command again; partitions can be marked repeatedly")


def _full_name(context: TableContext) -> str:
    path = PurePosixPath(context.layout.root)
    return f"{path.parent.name.removesuffix('.db')}.{path.name}" if path.parent.name.endswith(".db") else path.name
