"""Java Paimon as a process that carries out requests (`JavaPaimon.java`), our commands with the same interface, and readers."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from paimon_cli.cli.app import app

Row = dict[str, Any]
"""Cells by column in canonical form; `_kind` is the row kind."""


class JavaPaimon:
    """One JVM for many requests. `jars`: a folder with paimon-bundle and Hadoop's client jars, which pyspark brings."""

    name = "java"

    def __init__(self, jars: Path, heap: str = "1g") -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="java-paimon-")
        source = Path(__file__).with_name("JavaPaimon.java")
        class_path = os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))
        subprocess.run(["javac", "-nowarn", "-cp", class_path, "-d", self._folder.name, str(source)], check=True)
        command = ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={self._folder.name}"]
        command += ["-Duser.timezone=UTC", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
        command += ["-cp", os.pathsep.join([self._folder.name, class_path]), "JavaPaimon"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()

    @property
    def cpu_seconds(self) -> float:
        """The processor time of the JVM until now."""
        return cpu_seconds(self.process_id)

    @property
    def process_id(self) -> str:
        return str(self._process.pid)

    def _request(self, do: str, table: Path, options: Mapping[str, str] | None = None, **arguments: Any) -> list[Row]:
        answer = _answer(self._process, {"do": do, "table": str(table), "options": dict(options or {}), **arguments})
        if "error" in answer:
            raise AssertionError(f"java cannot {do}: {answer['error']}")
        rows: list[Row] = answer["rows"]
        return rows

    def create(self, table: Path, schema: Mapping[str, Any]) -> None:
        self._request("create", table, schema=schema)

    def write(self, table: Path, rows: Sequence[Row], *, compact: bool) -> None:
        self._request("write", table, {"write-only": str(not compact).lower()}, rows=rows)

    def compact(self, table: Path, *, full: bool) -> None:
        self._request("compact", table, full=full)

    def expire(self, table: Path, retain: int) -> None:
        self._request("expire", table, retain=str(retain))

    def read(self, table: Path) -> list[Row]:
        return self._request("read", table)

    def changelog(self, table: Path, first: int, last: int) -> list[Row]:
        return self._request("changelog", table, first=first, last=last)

    def incremental(self, table: Path, after: int, to: int) -> list[Row]:
        """The changes between two snapshots, as a query of the audit log returns them."""
        return self._request("incremental", table, first=str(after), last=str(to))


def cpu_seconds(process_id: str) -> float:
    """The processor time of a process until now, without that of its children."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_peak(process_id: str) -> int:
    """The largest resident memory of a process until now, in bytes. `process_id`: its number, or `self`."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


class SparkSql:
    """Spark SQL with Paimon's catalog `paimon` on a warehouse. `python` has the pyspark that the jars were built for."""

    def __init__(self, python: Path, jars: Sequence[Path], warehouse: Path) -> None:
        settings = {
            "spark.jars": ",".join(map(str, jars)),
            "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
            "spark.sql.catalog.paimon.warehouse": f"file:{warehouse}",
            "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "2g",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        }
        command = [str(python), str(Path(__file__).with_name("spark_session.py")), json.dumps(settings)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        answer = _answer(self._process, statement)
        if "error" in answer:
            raise AssertionError(f"Spark cannot {statement}: {answer['error']}")
        return [tuple(row) for row in answer["rows"]]

    def close(self) -> None:
        self._process.communicate()


def _answer(process: subprocess.Popen[str], request: Any) -> dict[str, Any]:
    """Send a request and return the answer, both a line of JSON."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline() or '{"error": "the process has ended"}')
    return answer


class PaimonCli:
    """Our commands, in this process."""

    name = "ours"

    def __init__(self, engine: str = "local") -> None:
        self.engine = ("--engine", engine)

    def run(self, *arguments: object, stdin: str | None = None) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        if result.exit_code:
            command = " ".join(["paimon-cli", *map(str, arguments)])
            raise AssertionError(f"{command}: exit {result.exit_code}\n{result.stdout}{result.stderr}")
        return str(result.stdout)

    def create(self, table: Path, schema: Mapping[str, Any]) -> None:
        text = table.with_suffix(".json")
        text.write_text(json.dumps(schema))
        self.run("create", table, "--schema", text)

    def write(self, table: Path, rows: Sequence[Row], *, compact: bool) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        how = ("--compact", "inline" if compact else "none")
        self.run("write", table, "-", "--format", "json", "--op-column", "_kind", *how, *self.engine, stdin=lines)

    def compact(self, table: Path, *, full: bool) -> None:
        self.run("compact", table, "--strategy", "full" if full else "minor", *self.engine)

    def serve(self, table: Path) -> None:
        """Run a round of the compaction service."""
        self.run("compact", table, "--dedicated", "--watch", "--max-rounds", 1, "--interval", "1s", *self.engine)

    def expire(self, table: Path, retain: int) -> None:
        self.run("expire", table, "--retain-max", retain, "--retain-min", retain, "--older-than", "0s", "--yes")

    def read(self, table: Path, *moment: str) -> list[Row]:
        return [json.loads(line) for line in self.run("read", table, "-o", "ndjson", *moment, *self.engine).splitlines()]

    def changelog(self, table: Path, first: int, last: int) -> list[Row]:
        lines = self.run("changelog", "read", table, "--from", first, "--to", last, "-o", "ndjson").splitlines()
        return [_with_kind(json.loads(line)) for line in lines]

    def incremental(self, table: Path, after: int, to: int) -> list[Row]:
        mode = ("--incremental", f"{after}..{to}", "--incremental-mode", "changelog")
        lines = self.run("read", table, *mode, "--row-kind", "-o", "ndjson", *self.engine).splitlines()
        return [_with_kind(json.loads(line)) for line in lines]


def _with_kind(row: Row) -> Row:
    return {"_kind": row.pop("rowkind"), **row}


@dataclass(frozen=True)
class Reader:
    """A command that takes the directory of a table and prints its rows in canonical form, one JSON object per line."""

    name: str
    command: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Reader:
        """The reader of `NAME=COMMAND` on the command line."""
        name, _, command = text.partition("=")
        return cls(name, tuple(shlex.split(command)))

    def read(self, table: Path) -> list[Row] | str:
        """The rows, or the last line of its error output if it cannot read the table."""
        done = subprocess.run([*self.command, str(table)], capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return [json.loads(line) for line in done.stdout.splitlines()]
