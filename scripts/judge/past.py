"""Whether `history check` finds what Java Paimon and pypaimon did to tables, and nothing else.

    python -m scripts.judge.past --jars FOLDER [--pypaimon PYTHON] [--keep FOLDER]

`JavaPast.java` and `pypaimon_side.py` make a table for each kind, with their own writers and commits; a table `none` was written
rightly. `--jars`: a folder with paimon-bundle and Hadoop's client jars. Prints a line for each table, and JSON in the end.
If a kind is not found, or another one is, it ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from paimon_cli import Table
from paimon_cli.invariants.anomalies import ANOMALY_RULES, UNTOLD

FOLLOWS = {
    "lost-update": {"writers-beside-each-other", "merge-disorder"},
    "merge-disorder": {"writers-beside-each-other", "lost-update"},
    "row-came-back": {"writers-beside-each-other", "lost-update"},
    "key-in-two-places": {"writers-beside-each-other"},
    "bucket-counts-mixed": {"key-in-two-places"},
}
"""What else is true of a table: who loses an update has written beside another, and numbers given twice do not order."""


def java(jars: Path, folder: Path, classes: str) -> list[str]:
    source, class_path = Path(__file__).with_name("JavaPast.java"), os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))
    subprocess.run(["javac", "-nowarn", "-cp", class_path, "-d", classes, str(source)], check=True)
    command = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
    return _made([*command, "-cp", os.pathsep.join([classes, class_path]), "JavaPast", str(folder)])


def pypaimon(python: Path, folder: Path) -> list[str]:
    return _made([str(python), str(Path(__file__).with_name("pypaimon_side.py")), str(folder)])


def _made(command: list[str]) -> list[str]:
    """The names of the tables that a writer has made. Raises `SystemExit` if it refused to make one."""
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    results = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    if refused := [f"{name}: {result}" for name, result in results.items() if result != "planted"]:
        raise SystemExit("\n".join(refused))
    return list(results)


def is_told(table: Path) -> bool:
    """Whether the kind after which a table is named is found there, and nothing that does not follow from it."""
    found = {one.rule for one in Table.open(str(table)).history_check() if one.certainty != UNTOLD}
    kind = table.name.partition(".")[0]
    expected = set() if kind == "none" else {kind}
    is_right = expected <= found <= expected | FOLLOWS.get(kind, set())
    print(f"{table.parent.name} {table.name}: {', '.join(sorted(found)) or 'nothing'}{'' if is_right else '  WRONG'}")
    return is_right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jars", type=Path, required=True)
    parser.add_argument("--pypaimon", type=Path)
    parser.add_argument("--keep", type=Path, help="where the tables are made; by default they are deleted again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, tables = given.keep or Path(temporary), list[Path]()
        for writer in ("java", *(["pypaimon"] if given.pypaimon else [])):
            (folder / writer).mkdir(parents=True)
            made = folder / writer
            names = java(given.jars, made, f"{temporary}/classes") if writer == "java" else pypaimon(given.pypaimon, made)
            tables += [made / name for name in names]
        right = [table for table in tables if is_told(table)]
    kinds = {name: {t.name.partition(".")[0] for t in right if t.parent.name == name} - {"none"} for name in ("java", "pypaimon")}
    figures = {"tables": len(tables), "right": len(right), "of_kinds": len(ANOMALY_RULES)}
    print(json.dumps({"name": "past", **figures, **{f"{writer}_kinds": len(found) for writer, found in kinds.items()}}))
    sys.exit(len(right) < len(tables))


if __name__ == "__main__":
    main()
