"""The Thrift client of a Hive metastore, its errors, and its table locks (Java HiveCatalogLock)."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from paimon_cli.errors import NotFound, NotSupported, StorageUnavailable, UsageError, importing
from paimon_cli.options.option_text import parse_duration
from paimon_cli.storage.bounded_exchange import Exchange, Unbounded
from paimon_cli.storage.catalog_options import DEFAULT_ACQUIRE_TIMEOUT, DEFAULT_MAX_SLEEP
from paimon_cli.storage.injected import Clock, SystemClock
from paimon_cli.storage.redaction import shown_value

SITE_FILE = "hive-site.xml"
_PORT = 9083
_THRIFT = re.compile(r"thrift://([\w.-]+|\[[\w:.]+\])(?::(\d{1,5}))?/?")
_CONNECT_MILLIS = 30_000
CALL_SECONDS, _MOST_BYTES, MOST_ITEMS, MOST_STRUCTS = 60, 64 * 2**20, 1_000_000, 1_000_000
"""The total time of a call and its answer, and the most bytes, elements of a list, and structs of an answer."""
_FIRST_SLEEP = 50
_REFUSED = {"hive.metastore.sasl.enabled": "Kerberos", "hive.metastore.use.SSL": "TLS"}
"""Settings of the metastore that require a protocol that is not supported."""


@dataclass(frozen=True)
class HiveAddress:
    """The addresses of metastores, of which the first one that answers is used, and the lock timeouts (millis)."""

    hosts: tuple[tuple[str, int], ...]
    acquire_timeout: int
    max_sleep: int

    @staticmethod
    def of(options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> HiveAddress:
        """The metastore named by `uri`, else by `hive-site.xml` in `hive-conf-dir` or HIVE_CONF_DIR.

        Raises `UsageError` if neither names one, `NotSupported` for Kerberos and TLS.
        """
        site = _site(options.get("hive-conf-dir") or (os.environ if environment is None else environment).get("HIVE_CONF_DIR"))
        for key, what in _REFUSED.items():
            if (options.get(key) or site.get(key, "")).lower() == "true":
                raise NotSupported(f"no support for Hive metastores with {what}", f"{key}=true", "use plain Thrift")
        uris = options.get("uri") or options.get("hive.metastore.uris") or site.get("hive.metastore.uris") or ""
        hosts = tuple(_host(uri.strip(), uris) for uri in uris.split(",") if uri.strip())
        if not hosts:
            why = "neither uri nor hive-site.xml names one"
            raise UsageError("the hive catalog has no metastore", why, "add uri=thrift://HOST:9083")
        timeout = options.get("lock-acquire-timeout", DEFAULT_ACQUIRE_TIMEOUT)
        return HiveAddress(hosts, parse_duration(timeout), parse_duration(options.get("lock-check-max-sleep", DEFAULT_MAX_SLEEP)))

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        """Yield a connected client; its errors are raised as `PaimonError`, such as `NotFound` for missing objects."""
        ttypes, client, transport = self._connect()
        try:
            yield client
        except ttypes.NoSuchObjectException as error:
            raise NotFound("the Hive metastore has no such object", str(error.message)) from error
        except (ttypes.AlreadyExistsException, ttypes.InvalidOperationException, ttypes.InvalidObjectException) as error:
            raise UsageError("the Hive metastore refused the request", _first_line(error)) from error
        except Unbounded as error:
            raise StorageUnavailable(f"the Hive metastore at {self._listed} gave no complete answer", str(error)) from error
        except (_thrift_error(), OSError) as error:
            raise self._unreachable(error) from error
        finally:
            transport.close()

    def _connect(self) -> tuple[Any, Any, Any]:
        with importing("a hive catalog needs a Thrift client", "hive"):
            from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
            from thrift.transport.TTransport import TBufferedTransport, TTransportException

            from paimon_cli.catalog.metastore.bounded_thrift import BoundedProtocol, BoundedTransport

        failure: Exception = OSError("no address")
        for host, port in self.hosts:
            exchange = Exchange(CALL_SECONDS, _MOST_BYTES)
            plain = BoundedTransport(host, port, exchange)
            plain.setTimeout(_CONNECT_MILLIS)
            transport = TBufferedTransport(plain)
            try:
                transport.open()
            except (TTransportException, OSError) as error:
                failure = error
                continue
            return (
                ttypes,
                ThriftHiveMetastore.Client(BoundedProtocol(transport, _MOST_BYTES, MOST_ITEMS, MOST_STRUCTS)),
                transport,
            )
        raise self._unreachable(failure) from failure

    @property
    def _listed(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self.hosts)

    def _unreachable(self, error: Exception) -> StorageUnavailable:
        return StorageUnavailable(f"the Hive metastore at {self._listed} does not answer", _first_line(error), "check uri")


class HiveLock:
    """The exclusive lock of a table in the metastore, which expires unless it is renewed. Picklable."""

    def __init__(self, address: HiveAddress, database: str, table: str, clock: Clock | None = None) -> None:
        self._address, self._database, self._table = address, database, table
        self._clock = clock or SystemClock()

    def check(self) -> None:
        """Connect once, so that errors are raised now and not at the first commit."""
        with self._address.connected() as client:
            client.get_database(self._database)

    @contextlib.contextmanager
    def held(self) -> Iterator[HeldHiveLock]:
        """Acquire the lock, and release it at the end of the block.

        Raises `StorageUnavailable` if it cannot be acquired within `lock-acquire-timeout`.
        """
        with self._address.connected() as client:
            lock = HeldHiveLock(client, f"{self._database}.{self._table}", self._acquire(client))
            try:
                yield lock
            finally:
                lock.release()

    def _acquire(self, client: Any) -> int:
        from pymetastore.hive_metastore import ttypes

        part = ttypes.LockComponent(ttypes.LockType.EXCLUSIVE, ttypes.LockLevel.TABLE, self._database, self._table)
        part.operationType = ttypes.DataOperationType.NO_TXN
        request = ttypes.LockRequest(component=[part], user=user_name(), hostname=socket.gethostname())
        answer = client.lock(request)
        begin, sleep = self._clock.now_millis(), _FIRST_SLEEP
        while answer.state == ttypes.LockState.WAITING and self._clock.now_millis() - begin < self._address.acquire_timeout:
            sleep = min(2 * sleep, self._address.max_sleep)
            self._clock.sleep(sleep / 1000)
            answer = client.check_lock(ttypes.CheckLockRequest(lockid=answer.lockid))
        if answer.state != ttypes.LockState.ACQUIRED:
            client.unlock(ttypes.UnlockRequest(lockid=answer.lockid))
            raise StorageUnavailable(
                f"could not acquire the lock of {self._database}.{self._table} in the Hive metastore",
                f"other writers held it for {(self._clock.now_millis() - begin) / 1000:.0f} s",
                "try again, or raise lock-acquire-timeout",
            )
        return int(answer.lockid)


@dataclass
class HeldHiveLock:
    """An acquired lock of the metastore."""

    client: Any
    name: str
    lock_id: int
    released: bool | None = None

    def confirm(self) -> None:
        """Check and renew the lock right before a put. Raises `StorageUnavailable` if it has expired."""
        from pymetastore.hive_metastore import ttypes

        try:
            state = self.client.check_lock(ttypes.CheckLockRequest(lockid=self.lock_id)).state
        except ttypes.NoSuchLockException:
            state = None
        if state != ttypes.LockState.ACQUIRED:
            raise StorageUnavailable(f"the lock of {self.name} was lost before the commit", "it has expired", "try again")

    def release(self) -> bool:
        """Release the lock; returns whether it was held until now. If the metastore does not answer, the lock expires."""
        from pymetastore.hive_metastore import ttypes

        if self.released is None:
            self.released = False
            with contextlib.suppress(ttypes.NoSuchLockException, _thrift_error(), OSError):
                self.client.check_lock(ttypes.CheckLockRequest(lockid=self.lock_id))  # unlock does not fail for an expired lock
                self.client.unlock(ttypes.UnlockRequest(lockid=self.lock_id))
                self.released = True
        return self.released


def user_name() -> str:
    """The user of this process, for entries and locks: its name or, if it has none (in containers), its id."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _thrift_error() -> type[Exception]:
    from thrift.Thrift import TException

    return TException


def _first_line(error: Exception) -> str:
    return str(getattr(error, "message", None) or error).split("\n")[0]


def _host(uri: str, uris: str) -> tuple[str, int]:
    """An error shows all that `uri` was cut from: the comma may belong to a password, and a piece of it would pass for a host."""
    found = _THRIFT.fullmatch(uri)
    if found is None:
        shown = shown_value("uri", uris)
        raise UsageError(f"uri={shown}", "it is not the address of a Hive metastore", "such as uri=thrift://localhost:9083")
    return found[1].strip("[]").lower(), int(found[2] or _PORT)


def _site(directory: str | None) -> dict[str, str]:
    """The properties in `hive-site.xml`; empty without a directory. Raises `UsageError` if the file cannot be read."""
    if not directory:
        return {}
    path = os.path.join(directory, SITE_FILE)
    try:
        properties = ElementTree.parse(path).getroot().iter("property")
    except (OSError, ElementTree.ParseError) as error:
        raise UsageError(f"cannot read {path}", str(error), "correct hive-conf-dir") from error
    return {element.findtext("name", "").strip(): element.findtext("value", "").strip() for element in properties}
