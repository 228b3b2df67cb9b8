"""A private PostgreSQL of the machine's own binaries, if there are any and a user other than root may run them."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tests.ports import free_port

USER = "lock_tests"


def _binaries() -> str | None:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    on_path = shutil.which("initdb")
    return os.path.dirname(found[-1]) if found else os.path.dirname(on_path) if on_path else None


def _account() -> str | None:
    """The account to run as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


BINARIES, ACCOUNT = _binaries(), _account()
IS_HERE = BINARIES is not None and ACCOUNT is not None


class PostgresServer:
    """Runs while its `with` block does; on loopback, with a password, gone with its directory afterwards."""

    password = "a-secret-of-postgres"

    def __enter__(self) -> PostgresServer:
        self._directory = tempfile.mkdtemp(prefix="paimon-cli-postgres-")
        data, password = f"{self._directory}/data", f"{self._directory}/password"
        with open(password, "w", encoding="ascii") as sink:
            sink.write(self.password)
        if os.geteuid() == 0:
            assert ACCOUNT is not None
            shutil.chown(self._directory, ACCOUNT)
            shutil.chown(password, ACCOUNT)
        self.port = free_port()
        self._run("initdb", "-D", data, "-U", USER, "--pwfile", password, "-A", "scram-sha-256", "--no-sync", "-E", "UTF8")
        settings = f"-p {self.port} -k {self._directory} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=50"
        self._run("pg_ctl", "-D", data, "-w", "-o", settings, "-l", f"{self._directory}/log", "start")
        return self

    def __exit__(self, *error: object) -> None:
        self._run("pg_ctl", "-D", f"{self._directory}/data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(self._directory)

    def new_database(self) -> str:
        """JDBC URL of a new database, without user and password."""
        name = f"locks_{uuid.uuid4().hex}"
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{name}"

    def connect(self) -> psycopg.Connection[TupleRow]:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname="postgres", user=USER, password=self.password, autocommit=True
        )

    def _run(self, program: str, *arguments: str) -> None:
        user = ACCOUNT if os.geteuid() == 0 else None
        environment = {**os.environ, "LC_ALL": "C"}
        subprocess.run(
            [f"{BINARIES}/{program}", *arguments],
            check=True,
            user=user,
            cwd=self._directory,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
