"""Kills real processes at random moments, again and again: writers, a compactor, expiry and a reader.

    python -m scripts.nightly.kill_processes --kills 500 --store local
    python -m scripts.nightly.kill_processes --kills 500 --store s3         # moto's S3 server in a process of its own
    python -m scripts.nightly.kill_processes --kills 100 --store s3-lock    # S3 without conditional puts, under a lock
    python -m scripts.nightly.kill_processes --kills 100 --store azurite    # Azure's stand-in; fake-gcs-server for Google's
    python -m scripts.nightly.kill_processes --kills 100 --shape lookup     # with vectors, changelogs, other kinds of buckets

Prints a JSON line. The exit code is 1 if acknowledged rows were lost or duplicated, or a read did not add up; 77 if the server's
program is neither given (--program) nor on PATH.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.nightly.run_all import CANNOT_RUN
from tests.processes.kills import Killing
from tests.processes.place import SHAPES, Place
from tests.storage.s3_proxy import Fate, S3Proxy
from tests.storage.s3_server import S3Server
from tests.storage.store_servers import Azurite, FakeGcs, NotInstalled, StoreProgram

PROGRAMS: dict[str, type[StoreProgram]] = {"azurite": Azurite, "fake-gcs-server": FakeGcs}
STORES = ("local", "s3", "s3-lock", *PROGRAMS)


@contextlib.contextmanager
def store(name: str, folder: Path, program: str | None = None) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The URL of a table that does not exist yet, and the catalog options for it."""
    if name == "local":
        yield str(folder / "shop.db" / "t"), {}
        return
    if name in PROGRAMS:
        with PROGRAMS[name](program) as running:
            yield f"{running.new_bucket()}/shop.db/t", running.options()
        return
    with S3Server() as server:
        url = f"{server.new_bucket()}/shop.db/t"
        if name == "s3":
            yield url, server.options()
            return
        lock = {"lock.enabled": "true", "uri": f"jdbc:sqlite:{folder}/locks.db"}
        times = {"lock-acquire-timeout": "4 s", "lock-check-max-sleep": "100 ms"}
        with S3Proxy(server.port, lambda request: Fate.UNCONDITIONAL) as proxy:
            yield url, {**server.options(proxy.endpoint), **lock, **times}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--store", choices=STORES, default="local")
    parser.add_argument("--program", help="the program of azurite or fake-gcs-server; default: the one on PATH")
    parser.add_argument("--shape", choices=SHAPES, default="merged", help="the kind of table")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kills-") as folder,
            store(arguments.store, Path(folder), arguments.program) as (url, options),
        ):
            place = Place(url, options, folder, arguments.seed, arguments.shape)
            figures = Killing(place, arguments.store).run(arguments.kills)
    except NotInstalled as missing:
        print(missing, file=sys.stderr)
        return CANNOT_RUN
    print(json.dumps({"measure": "kill_processes", "shape": arguments.shape, **figures.as_json()}))
    for complaint in figures.wrong[:20]:
        print(complaint, file=sys.stderr)
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
