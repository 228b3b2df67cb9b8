"""Full compaction of tables that Java Paimon wrote: ours as one process, Java's in one JVM that has compacted copies before.

    python -m scripts.judge.java_tables --jars FOLDER --tables 20 --rows 4000 --loads 4

Prints a JSON line: CPU seconds and the largest resident memory of both, without the writing of the tables and the warming up of
Java. Ours includes the start of Python. Both must leave the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.bench.measure import MACHINE
from scripts.judge.peers import JavaPaimon, PaimonCli

_FORMATS = ("parquet", "parquet", "orc", "avro")
_ENGINES: tuple[dict[str, str], ...] = (
    {},
    {"merge-engine": "partial-update"},
    {"deletion-vectors.enabled": "true"},
    {"changelog-producer": "input"},
    {},
)
_FIELDS = (("id", "BIGINT NOT NULL"), ("name", "STRING"), ("amount", "DECIMAL(12, 2)"), ("at", "TIMESTAMP(6)"), ("n", "INT"))
_OURS = """
import sys
from pathlib import Path
from scripts.judge.peers import PaimonCli
ours = PaimonCli()
for table in sys.argv[1:]:
    ours.compact(Path(table), full=True)
"""


def _schema(number: int) -> dict[str, Any]:
    options = {"bucket": "2", "file.format": _FORMATS[number % len(_FORMATS)], **_ENGINES[number % len(_ENGINES)]}
    fields = [{"id": index, "name": name, "type": t} for index, (name, t) in enumerate(_FIELDS)]
    return {"fields": fields, "partitionKeys": [], "primaryKeys": ["id"], "options": options}


def _rows(count: int, load: int) -> list[dict[str, Any]]:
    return [
        {
            **{"_kind": "+I", "id": number * 3 % count * 2 + load % 2, "name": f"name {number % 1000}"},
            **{"amount": f"{number % 9999}.25", "at": f"2026-01-01T00:{number % 60:02}:00.000001", "n": number * load % 77},
        }
        for number in range(count)
    ]


def main() -> None:
    """Write the tables, compact two copies by Java and one by us, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=Path, required=True)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--loads", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="java-tables-") as folder:
        java, places = JavaPaimon(given.jars), {side: Path(folder, f"{side}.db") for side in ("warm", "java", "ours")}
        try:
            for number in range(given.tables):
                table = places["warm"] / f"t{number}"
                java.create(table, _schema(number))
                for load in range(given.loads):
                    java.write(table, _rows(given.rows, load), compact=False)
            for side in ("java", "ours"):
                shutil.copytree(places["warm"], places[side])
            names = [f"t{number}" for number in range(given.tables)]
            for name in names:
                java.compact(places["warm"] / name, full=True)
            before = java.cpu_seconds
            for name in names:
                java.compact(places["java"] / name, full=True)
            theirs = {"cpu": round(java.cpu_seconds - before, 2), "mb": java.peak_memory >> 20}
            command = [sys.executable, "-c", _OURS, *(str(places["ours"] / name) for name in names)]
            before = _children()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            ours = {"cpu": round(_children() - before, 2), "mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10}
            differing = [name for name in names if _differ(java, places, name)]
        finally:
            java.close()
    ratios = {"cpu": round(ours["cpu"] / theirs["cpu"], 2), "memory": round(ours["mb"] / theirs["mb"], 2)}
    shown = {
        "java": theirs,
        "ours": ours,
        "ratios": ratios,
        "differing": differing,
        "machine": MACHINE,
        "load": os.getloadavg()[0],
    }
    print(json.dumps({"measure": "java_tables", "tables": given.tables, "rows": given.rows * given.loads, **shown}))
    sys.exit(bool(differing))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _differ(java: JavaPaimon, places: dict[str, Path], name: str) -> bool:
    def seen(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True) for row in rows)

    by_java = seen(java.read(places["java"] / name))
    return by_java != seen(java.read(places["ours"] / name)) or len(by_java) != len(PaimonCli().read(places["ours"] / name))


if __name__ == "__main__":
    main()
