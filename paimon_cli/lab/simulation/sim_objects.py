"""The shipped storage of object stores on the simulated disk: every request to the store is a call of the actor.

A listing takes a request per page, so that other actors may change the directory between two pages.
"""

from __future__ import annotations

from typing import Any

from paimon_cli.lab.simulation.schedule import BUSY, CONFLICT, FAILURE, LOST_CHANGE, OWN_OBJECT, REFUSAL
from paimon_cli.lab.simulation.script import StorageCall
from paimon_cli.lab.simulation.sim_storage import MISSING, TWO_OF_A_NAME, Ask
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage import simulated_store
from paimon_cli.storage.object_storage import ObjectStorage
from paimon_cli.storage.overlapped_storage import OverlappedStorage
from paimon_cli.storage.simulated_store import Entry, ListedPage, RequestFailed, SimulatedSettings, StoreRequest
from paimon_cli.storage.storage import PutOutcome

PAGE = 3
"""The number of entries in a page of a listing."""
_OPERATIONS = {
    simulated_store.RequestKind.GET: "read_bytes",
    simulated_store.RequestKind.HEAD: "head",
    simulated_store.RequestKind.CREATE: "put_if_absent",
    simulated_store.RequestKind.LIST: "list_page",
    simulated_store.RequestKind.LIST_BELOW: "list_page_below",
    simulated_store.RequestKind.DELETE: "delete",
}
_STATUSES = {
    PutOutcome.EXISTS: simulated_store.Status.EXISTS,
    OWN_OBJECT: simulated_store.Status.EXISTS,
    CONFLICT: simulated_store.Status.CONFLICT,
    BUSY: simulated_store.Status.BUSY,
    REFUSAL: simulated_store.Status.DENIED,
    FAILURE: simulated_store.Status.BUSY,
    LOST_CHANGE: simulated_store.Status.BROKEN,
}


def object_storage(layout: TableLayout, ask: Ask) -> OverlappedStorage:
    """The storage of one actor, in which `ask` answers each request."""
    replaced = f"{layout.snapshot_directory}/", f"{layout.root}/consumer/", f"{layout.commit_user_directory}/"

    def serve(request: StoreRequest) -> Any:
        call = _call(request, replaced)
        answer = ask(call)
        if answer == MISSING:
            raise FileNotFoundError(request.url)
        if answer == TWO_OF_A_NAME:
            raise AssertionError(f"two files of one name: {request.url}")
        if isinstance(answer, (str, PutOutcome)) and answer is not PutOutcome.CREATED:
            raise RequestFailed(_STATUSES.get(answer, simulated_store.Status.BROKEN))
        if call.operation in _PAGES:
            entries, is_last = answer
            return ListedPage([Entry(*entry) for entry in entries], is_last)
        return answer

    return OverlappedStorage(ObjectStorage(SimulatedSettings(serve=serve)))


_PAGES = ("list_page", "list_page_below")


def _call(request: StoreRequest, replaced: tuple[str, ...]) -> StorageCall:
    """The call of an actor.

    Only hints, records of commits, and snapshots that a lock protects, replace objects; all other puts are of new files.
    """
    kind, url, data, after, source = request
    if kind == simulated_store.RequestKind.PUT:
        return StorageCall("overwrite" if url.startswith(replaced) else "write_new", url, (data,))
    if kind == simulated_store.RequestKind.COPY:
        return StorageCall("copy_object", url, (source,))
    operation = _OPERATIONS[kind]
    arguments = (after, PAGE) if operation in _PAGES else (data,) if kind == simulated_store.RequestKind.CREATE else ()
    return StorageCall(operation, url, arguments)
