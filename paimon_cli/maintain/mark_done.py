"""Marks partitions as done for jobs that wait until they are complete (FORMAT.md, section 13.6; Java PartitionMarkDoneAction).

The address of an HTTP report is an option of the table, so anyone who can write a schema file chooses it, and the request comes
from the machine of the user. It is sent only to hosts that the user allows, at an address that was checked, and its answer is
bounded.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from paimon_cli.errors import (
    NotSupported,
    PaimonError,
    PartialSuccess,
    Refused,
    StorageUnavailable,
    UsageError,
    importing,
)
from paimon_cli.history.partition_spec import PartitionSpec, PartitionValues, expect_partitions, partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import waiting_partitions
from paimon_cli.metadata.data_file import FileFilter
from paimon_cli.metadata.snapshot import COMPACT
from paimon_cli.storage.redaction import shown_address
from paimon_cli.storage.threads import in_parallel
from paimon_cli.storage.web_address import REPORT_HOSTS, AllowedHosts, WebAddress

if TYPE_CHECKING:
    from paimon_cli.storage.web_client import WebClient


SUCCESS_FILE, HTTP_REPORT = "success-file", "http-report"
DONE_PARTITION, MARK_EVENT, CUSTOM = "done-partition", "mark-event", "custom"
_OF_A_CATALOG = {DONE_PARTITION: "a Hive metastore", MARK_EVENT: "a Hive metastore or a REST server"}
"""Action that needs a catalog with partitions -> the catalogs that have them."""
ACTIONS = (SUCCESS_FILE, *_OF_A_CATALOG, HTTP_REPORT, CUSTOM)
_SUCCESS_NAME = "_SUCCESS"


class DonePartition(NamedTuple):
    """A partition as its catalog needs it: the values in its path by column, its directory, and the time in epoch millis."""

    values: Mapping[str, str]
    url: str
    now_millis: int


PartitionMarks = Mapping[str, Callable[[DonePartition], None]]
"""Action -> function that marks a partition in the catalog of its table."""
_NO_CATALOG: PartitionMarks = {}
_NO_HOSTS = AllowedHosts()


@dataclass(frozen=True)
class MarkedPartition:
    """A partition that was marked as done by these actions, at the time `done` (epoch millis)."""

    partition: str
    actions: tuple[str, ...]
    done: int


def plan_marks(
    context: TableContext,
    partitions: Sequence[PartitionValues],
    actions: Sequence[str] = (),
    of_catalog: PartitionMarks = _NO_CATALOG,
    hosts: AllowedHosts = _NO_HOSTS,
) -> list[bytes]:
    """The partitions of the latest snapshot that `partitions` select, sorted. `hosts`: where reports may be sent.

    Raises `UsageError` for unknown actions, `NotSupported` for actions that are not possible here, `Refused` for a report to
    another host, and `NotFound` if a specification selects no partition.
    """
    if not context.schema.partition_keys:
        raise UsageError(f"{context.address} is not partitioned", "only partitions are marked as done")
    if not partitions:
        raise UsageError("no partition is named", hint="add --partition KEY=VALUE, with the values of the partition that is done")
    for action in actions_of(context, actions):
        _check_action(context, action, of_catalog)
        if action == HTTP_REPORT:
            HttpReport(context, hosts).check()
    snapshot = context.snapshots.latest()
    selected: dict[bytes, None] = {}
    for values in partitions:
        spec = PartitionSpec.parse(context, values)
        live = [] if snapshot is None else context.manifests.live_entries(snapshot, FileFilter(spec.matches))
        found = dict.fromkeys(entry.partition for entry in live)
        expect_partitions(context, [values], found)
        selected |= found
    return sorted(selected, key=lambda partition: partition_text(context, partition))


def actions_of(context: TableContext, actions: Sequence[str] = ()) -> tuple[str, ...]:
    """The given actions, or `partition.mark-done-action` if there are none. Raises `UsageError` for an unknown one."""
    chosen = tuple(dict.fromkeys(action.strip().lower() for action in actions or context.options.partition_mark_done_actions))
    unknown = next((action for action in chosen if action not in ACTIONS), None)
    if unknown is not None:
        raise UsageError(f"unknown action '{unknown}' to mark a partition as done", f"the actions are {', '.join(ACTIONS)}")
    return chosen


def _check_action(context: TableContext, action: str, of_catalog: PartitionMarks) -> None:
    if action in _OF_A_CATALOG:
        what = f"cannot mark partitions of {context.address} by {action}"
        hint = f"paimon-cli partitions mark-done {context.layout.argument} --action {SUCCESS_FILE} --partition KEY=VALUE"
        if action not in of_catalog:
            why = f"the table must be opened by its name in the catalog of {_OF_A_CATALOG[action]}"
            raise NotSupported(what, why, hint)
        if not context.options.metastore_partitioned_table:
            raise UsageError(what, "the catalog has no partitions of the table: metastore.partitioned-table is not true", hint)
    if action == CUSTOM:
        why = "partition.mark-done-action.custom.class names a Java class"
        raise NotSupported(f"cannot mark partitions of {context.address} by {CUSTOM}", why, "mark them with Flink or Spark")


def mark_done(
    context: TableContext,
    partitions: Iterable[bytes],
    actions: Sequence[str] = (),
    of_catalog: PartitionMarks = _NO_CATALOG,
    hosts: AllowedHosts = _NO_HOSTS,
) -> list[MarkedPartition]:
    """Mark each partition by each action. This can be repeated, which renews the time of the mark.

    `hosts`: where reports may be sent. Raises `Refused` for a report to another host.
    """
    chosen = actions_of(context, actions)
    report = HttpReport(context, hosts)
    marked = []
    for partition in partitions:
        now = context.clock.now_millis()
        if SUCCESS_FILE in chosen:
            _write_success_file(context, partition, now)
        for action in chosen:
            if action in of_catalog:
                of_catalog[action](_done_partition(context, partition, now))
        if HTTP_REPORT in chosen:
            report.send(partition)
        marked.append(MarkedPartition(partition_text(context, partition), chosen, now))
    return marked


def _done_partition(context: TableContext, partition: bytes, now: int) -> DonePartition:
    path = context.partition_path_of(partition).rstrip("/")
    values = (part.partition("=") for part in path.split("/"))
    return DonePartition({unquote(key): unquote(text) for key, _, text in values}, f"{context.data_root}/{path}", now)


def marks_written_partitions(context: TableContext) -> bool:
    """Whether a write marks its partitions when it ends (`partition.end-input-to-done`)."""
    return context.options.partition_end_input_to_done and bool(context.schema.partition_keys)


def check_marks_of_writes(context: TableContext) -> None:
    """Raise `NotSupported` if writes must mark their partitions by an action that is not possible here."""
    if marks_written_partitions(context):
        for action in actions_of(context):
            try:
                _check_action(context, action, _NO_CATALOG)
            except NotSupported as refusal:
                hint = f"paimon-cli alter {context.layout.argument} set partition.mark-done-action={SUCCESS_FILE}"
                why = f"partition.end-input-to-done requires it at the end of each write, and {refusal.why}"
                raise NotSupported(refusal.what, why, hint) from refusal


def mark_written(
    context: TableContext, written: Collection[bytes], warn: Callable[[str], None], hosts: AllowedHosts
) -> list[MarkedPartition]:
    """Mark the partitions of a write that has been committed, if `partition.end-input-to-done` is set.

    Partitions with rows that readers see only after a compaction are left out, with a warning, and so are reports to other
    hosts than `hosts`, or to none. Raises `PartialSuccess` if a partition cannot be marked.
    """
    if not written or not marks_written_partitions(context):
        return []
    due = sorted(written)
    try:
        due = _visible(context, written, warn)
        actions = _permitted(context, hosts, warn)
        return mark_done(context, due, actions, hosts=hosts) if actions else []
    except PaimonError as error:
        why = f"partition.end-input-to-done requires it, but {error.what}: {error.why}"
        arguments = " ".join(f"--partition {_argument(context, partition)}" for partition in due)
        hint = f"paimon-cli partitions mark-done {context.layout.argument} {arguments}"
        raise PartialSuccess("the rows are committed, but not all of their partitions are marked as done", why, hint) from error


def _visible(context: TableContext, written: Collection[bytes], warn: Callable[[str], None]) -> list[bytes]:
    """The written partitions whose rows readers see now; the others are named in a warning."""
    hidden = waiting_partitions(context, context.snapshots.latest(), written)
    for partition in hidden:
        command = f"paimon-cli partitions mark-done {context.layout.argument} --partition {_argument(context, partition)}"
        text = partition_text(context, partition)
        warn(f"{text} is not marked as done, because readers see its rows only after a compaction; then run: {command}")
    return sorted(set(written) - hidden)


def _permitted(context: TableContext, hosts: AllowedHosts, warn: Callable[[str], None]) -> list[str]:
    """The actions of the table without a report that has no valid address or that the user does not allow, with a warning.

    The address is the table's word, so it stops no write.
    """
    actions = list(actions_of(context))
    if HTTP_REPORT in actions:
        try:
            HttpReport(context, hosts).check()
        except (Refused, UsageError) as refusal:
            actions.remove(HTTP_REPORT)
            warn(f"{refusal.what}: {refusal.why}; {refusal.hint}")
    return actions


def _argument(context: TableContext, partition: bytes) -> str:
    return shlex.quote(partition_text(context, partition, ","))


def partitions_of_commit(context: TableContext, user: str, identifier: int) -> set[bytes]:
    """The partitions in which a commit changed files, or marked rows as deleted. Its snapshots must not have expired.

    Rows that were only marked count if the snapshot before it still exists, too, because the comparison with that one shows them.
    """
    snapshots, manifests = context.snapshots, context.manifests
    changed: set[bytes] = set()
    for snapshot in snapshots.newest_first():
        if (snapshot.commit_user, snapshot.commit_identifier) != (user, identifier) or snapshot.commit_kind == COMPACT:
            continue
        changed |= {entry.partition for entry in manifests.delta_entries(snapshot)}
        before = snapshots.find(snapshot.id - 1) if snapshot.id > 1 else None
        if before is not None or snapshot.id == 1:
            changed |= {bucket_id.partition for bucket_id in manifests.changed_vectors(before, snapshot)}
    return changed


def done_times(context: TableContext, partitions: Sequence[bytes]) -> dict[bytes, int]:
    """Partition -> when it was last marked (epoch millis), for those with a success file."""
    found = in_parallel(lambda partition: _success_file(context, partition), partitions, context.read_threads)
    return {partition: times["modificationTime"] for partition, times in zip(partitions, found, strict=True) if times}


def _success_path(context: TableContext, partition: bytes) -> str:
    return f"{context.layout.root}/{context.partition_path_of(partition)}{_SUCCESS_NAME}"


def _success_file(context: TableContext, partition: bytes) -> dict[str, int]:
    """The times in the success file; empty if there is none, or if another tool wrote it."""
    try:
        times = json.loads(context.storage.read_bytes(_success_path(context, partition)))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    is_ours = isinstance(times, dict) and all(isinstance(times.get(name), int) for name in ("creationTime", "modificationTime"))
    return times if is_ours else {}


def _write_success_file(context: TableContext, partition: bytes, now: int) -> None:
    times = {"creationTime": now, **_success_file(context, partition), "modificationTime": now}
    context.storage.overwrite(_success_path(context, partition), json.dumps(times, separators=(",", ":")).encode())


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
