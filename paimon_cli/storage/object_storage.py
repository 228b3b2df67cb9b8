"""S3, Google Cloud Storage and Azure. A snapshot is published by a conditional put, which exactly one writer wins.

Outcomes of a put are classified here, because obstore's errors are coarser than the responses of the stores: it reports a
conflict of two concurrent writers (409) as an existing object, and a lost response as a generic error.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, cast

from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError

from paimon_cli.errors import NotSupported, Refused, StorageUnavailable, UsageError
from paimon_cli.pieces import PIECES
from paimon_cli.storage.catalog_options import Service
from paimon_cli.storage.counted_storage import CHECKS, DELETIONS, LISTINGS, READS, WRITES, count_requests
from paimon_cli.storage.deletions import Deletions, delete_each
from paimon_cli.storage.injected import Clock, SystemClock
from paimon_cli.storage.object_stores import StoreError, StoreErrors, StoreSettings, bucket_and_key
from paimon_cli.storage.object_upload import ObjectUpload, PartSender
from paimon_cli.storage.ranged_file import RangedFile
from paimon_cli.storage.read_bounds import check_size
from paimon_cli.storage.storage import FileStatus, PutOutcome
from paimon_cli.storage.time_bounds import check_time

_CONFLICT_TRIES = 4
_CONFLICT_WAIT_SECONDS = 0.05
_MD5 = re.compile("[0-9a-f]{32}")
_MAX_COPIED_AT_ONCE = 5 << 30
_NOT_IMPLEMENTED = (405, 501)
_DELETED_AT_ONCE = {Service.S3: 1000, Service.AZURE: 256, Service.GOOGLE: 1}
"""How many objects of a bucket obstore deletes with one request."""
_DELETING_THREADS = 16
"""Requests at a time that delete one object each, after one for many has failed."""
_LISTED_AT_ONCE = {Service.S3: 1000, Service.AZURE: 5000, Service.GOOGLE: 1000}
"""How many entries a page of a listing has."""


@dataclass(frozen=True)
class ObjectStorage:
    """`Storage` over URLs of one service. Storages with equal settings are equal; picklable.

    Conditional puts are not verified here: `guarded_storage` probes whether the endpoint honours them.
    """

    settings: StoreSettings
    clock: Clock = field(default_factory=SystemClock, compare=False, repr=False)

    is_remote = True

    def read_bytes(self, path: str) -> bytes:
        client, key = self._asked(path, READS)
        with self._errors_of(path):
            found = client.get(key)
            check_size(path, found.meta["size"])
            return bytes(found.bytes())

    def open_input(self, path: str) -> BinaryIO:
        return io.BufferedReader(RangedFile(partial(self.fetch_range, path), self.file_size(path)), PIECES.least_read_bytes)

    def open_sized(self, path: str, size: int) -> BinaryIO:
        """See `capabilities.open_sized`: no request is made before the first read."""
        return cast(BinaryIO, RangedFile(partial(self.fetch_range, path), size))

    def open_output(self, path: str) -> BinaryIO:
        return cast(BinaryIO, ObjectUpload(path, self.overwrite, self.begin_upload))

    def begin_upload(self, path: str) -> PartSender:
        """An upload in parts; the object appears when it has finished."""
        return PartSender(*self._reached(path), self._errors_of(path))

    def write_new(self, path: str, data: bytes) -> None:
        self.overwrite(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See `storage.Storage`. `UNKNOWN` if the store failed or its response was lost; `Refused` without conditional puts.

        The put is sent once. If the store reports an existing object, HEAD requests verify that: after a conflict of two
        concurrent writers the object may be missing. It may also have been ours, and been deleted since.
        """
        outcome = self._put_once(path, data)
        if outcome is not PutOutcome.EXISTS:
            return outcome
        for attempt in range(_CONFLICT_TRIES):
            if attempt:
                self.clock.sleep(_CONFLICT_WAIT_SECONDS * 2**attempt)
            try:
                if self.exists(path):
                    return PutOutcome.EXISTS
            except StorageUnavailable:
                return PutOutcome.UNKNOWN
        return PutOutcome.UNKNOWN

    def honours_condition(self, path: str, data: bytes) -> bool:
        """See `guarded_storage.HonoursConditions`."""
        return self._put_once(path, data) is PutOutcome.EXISTS

    def overwrite(self, path: str, data: bytes) -> None:
        client, key = self._asked(path, WRITES)
        with self._errors_of(path):
            client.put(key, data, use_multipart=False)

    def swap(self, path: str, expected: bytes, data: bytes) -> bool:
        """See `capabilities.SwapsFiles`: a put on the condition that the object is still the version that was read."""
        client, key = self._asked(path, READS)
        with self._errors_of(path):
            try:
                found = client.get(key)
            except FileNotFoundError:
                return False
            check_size(path, found.meta["size"])
            content = bytes(found.bytes())
            state = {name: found.meta.get(name) for name in ("e_tag", "version") if found.meta.get(name) is not None}
        if content != expected:
            return False
        client, key = self._asked(path, WRITES, once=True)
        try:
            client.put(key, data, mode=state, use_multipart=False)
        except (PreconditionError, FileNotFoundError):
            return False
        except (BaseError, ValueError) as error:
            if isinstance(error, GenericError) and StoreError(error).status in _NOT_IMPLEMENTED:
                why = "it does not implement conditional replacement"
                raise NotSupported(f"{path} cannot be replaced safely", why) from None
            if self.read_bytes(path) == data:
                return True
            raise self._errors_of(path).refusal(error) from None
        return True

    def exists(self, path: str) -> bool:
        try:
            self.file_size(path)
        except FileNotFoundError:
            return False
        return True

    def file_size(self, path: str) -> int:
        client, key = self._asked(path, CHECKS)
        with self._errors_of(path):
            return int(client.head(key)["size"])

    def stored(self, path: str) -> tuple[int, str | None]:
        """See `file_copy.TellsChecksums`: on S3, the ETag of an object that was put as a whole."""
        client, key = self._asked(path, CHECKS)
        with self._errors_of(path):
            found = client.head(key)
        tag = str(found.get("e_tag") or "").strip('"')
        return int(found["size"]), tag if self.settings.service is Service.S3 and _MD5.fullmatch(tag) else None

    def copy_object(self, path: str, target: str, size: int) -> bool:
        """See `file_copy.CopiesObjects`. A copy is one request, which stores refuse for objects above 5 GB."""
        (bucket, _), (other, key) = (bucket_and_key(self.settings.service, one) for one in (path, target))
        if bucket != other or size > _MAX_COPIED_AT_ONCE:
            return False
        client, source = self._asked(path, WRITES)
        with self._errors_of(path):
            try:
                client.copy(source, key, overwrite=True)
            except GenericError as error:
                if StoreError(error).status in _NOT_IMPLEMENTED:
                    return False
                raise
        return True

    def list_directory(self, path: str) -> list[FileStatus]:
        check_time()
        client, key = self._reached(path, is_directory=True)
        with self._errors_of(path):
            listed = client.list_with_delimiter(key or None)
        count_requests(LISTINGS, _pages(len(listed["common_prefixes"]) + len(listed["objects"]), _LISTED_AT_ONCE[self._service]))
        directories = (_directory(path, prefix) for prefix in listed["common_prefixes"])
        return [*directories, *(_file(path, entry) for entry in listed["objects"] if entry["path"] != key)]

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        """See `capabilities.ListsInPages`: entries that appear in the first page of the objects below the directory."""
        client, key = self._reached(path, is_directory=True)
        count_requests(LISTINGS)
        with self._errors_of(path):
            page = next(iter(client.list(key or None, chunk_size=PIECES.listed_objects)), ())
        found: dict[str, FileStatus] = {}
        for entry in page:
            name, _, below = entry["path"][len(key) + bool(key) :].partition("/")
            if name:
                found.setdefault(name, _directory(path, name) if below else _file(path, entry))
        return list(found.values())[:limit]

    def delete(self, path: str) -> None:
        client, key = self._asked(path, DELETIONS)
        with contextlib.suppress(FileNotFoundError), self._errors_of(path):
            client.delete(key)

    def delete_many(self, paths: Sequence[str]) -> None:
        """See `capabilities.DeletesMany`. Several requests are sent at a time."""
        keys: dict[str, list[str]] = {}
        for path in paths:
            keys.setdefault(bucket_and_key(self._service, path)[0], []).append(self._reached(path)[1])
        for bucket, of_bucket in keys.items():
            with self._errors_of(paths[0]):
                self._delete_keys(bucket, of_bucket)

    def delete_directory(self, path: str) -> None:
        client, key = self._reached(path, is_directory=True)
        bucket, done = bucket_and_key(self._service, path)[0], Deletions()
        with self._errors_of(path):
            for page in client.list(key or None, chunk_size=PIECES.listed_objects):
                count_requests(LISTINGS)
                done.add(self._delete_page(bucket, [entry["path"] for entry in page], path))
        done.check()

    def _delete_page(self, bucket: str, keys: list[str], path: str) -> Deletions:
        """Delete keys together, or else one by one: what is refused does not keep the others. Raises any other failure."""
        try:
            with self._errors_of(path):
                self._delete_keys(bucket, keys)
            return Deletions(len(keys))
        except (StorageUnavailable, FileNotFoundError):  # or another job has deleted some of them first
            return delete_each(self, [f"{path.partition('://')[0]}://{bucket}/{key}" for key in keys], _DELETING_THREADS)

    def _delete_keys(self, bucket: str, keys: list[str]) -> None:
        """Delete keys together; where the store does not implement that, with a request for each."""
        count_requests(DELETIONS, _pages(len(keys), _DELETED_AT_ONCE[self._service]))
        try:
            self.settings.client(bucket, together=True).delete(keys)
        except BaseError as error:
            if StoreError(error).status not in _NOT_IMPLEMENTED:
                raise
            count_requests(DELETIONS, len(keys))
            self.settings.client(bucket).delete(keys)

    def _put_once(self, path: str, data: bytes) -> PutOutcome:
        """Send one conditional put. EXISTS may also mean a conflict of two concurrent writers."""
        client, key = self._asked(path, WRITES, once=True)
        errors = self._errors_of(path)
        try:
            client.put(key, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return PutOutcome.EXISTS
        except GenericError as error:
            found = StoreError(error)
            if found.status == 501:
                service = self.settings.service.value
                raise Refused(f"no conditional put on this {service}", "it does not implement it") from None
            if found.was_not_sent or found.is_refusal:
                raise errors.refusal(error) from None
            return PutOutcome.UNKNOWN
        except (BaseError, FileNotFoundError, ValueError) as error:  # no permission, no bucket, or an invalid key
            raise errors.refusal(error) from None
        return PutOutcome.CREATED

    def fetch_range(self, path: str, start: int, end: int) -> memoryview:
        """Read the bytes from `start` to `end` (exclusive) with one request."""
        client, key = self._asked(path, READS)
        with self._errors_of(path):
            found = memoryview(client.get_range(key, start=start, end=end))
        if len(found) != end - start:
            raise StorageUnavailable(f"the store returned {len(found)} bytes of {path}", f"{end - start} bytes were requested")
        return found

    @property
    def _service(self) -> Service:
        return self.settings.service

    def _asked(self, path: str, kind: str, *, once: bool = False) -> tuple[Any, str]:
        """`_reached`, for one request of this kind. Attempts that obstore repeats are not counted."""
        count_requests(kind)
        return self._reached(path, once=once)

    def _reached(self, path: str, *, once: bool = False, is_directory: bool = False) -> tuple[Any, str]:
        """The client for the bucket of a path, and the key in it. `once`: a client that does not retry."""
        bucket, key = bucket_and_key(self.settings.service, path)
        if not (key or is_directory):
            raise UsageError(f"'{path}' is not the URL of an object", "it names a bucket")
        return self.settings.client(bucket, once=once), key.rstrip("/") if is_directory else key

    def _errors_of(self, path: str) -> StoreErrors:
        return StoreErrors(path, self.settings)


def _pages(count: int, size: int) -> int:
    return max(1, -(-count // size))


def _directory(parent: str, prefix: str) -> FileStatus:
    name = prefix.rstrip("/").rpartition("/")[2]
    return FileStatus(f"{parent.rstrip('/')}/{name}", name, 0, True, 0)


def _file(parent: str, entry: Mapping[str, Any]) -> FileStatus:
    name = entry["path"].rpartition("/")[2]
    modified: datetime.datetime = entry["last_modified"]
    return FileStatus(f"{parent.rstrip('/')}/{name}", name, int(entry["size"]), False, int(modified.timestamp() * 1000))
