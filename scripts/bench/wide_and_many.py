"""How costs grow with the number of columns, partitions, files and snapshots: each is proportional, or it is a fault.

    python -m scripts.bench.wide_and_many [--columns 50 500] [--partitions 300 3000] [--files 20000 1000000 3000000]
        [--snapshots 500 5000] [--rounds 5]

Wide tables hold the same number of values whatever their width; their compaction is compared with a plain pyarrow copy, and a
read of three columns by its memory. A write into partitions makes a file in each, a plan reads all manifests, and an expiry keeps
ten snapshots; each runs in processes of its own. Without an option, its subject is left out; with none all are measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli import Table
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.history.table_context import TableContext
from scripts.bench.compaction import RUNS, full_compaction
from scripts.bench.cost_growth import Growth, cpu_of_process, in_turn
from scripts.bench.expire import KEPT
from scripts.bench.measure import MACHINE, MIN_ROUNDS, Comparison, peak_megabytes, report
from scripts.bench.metadata_table import generate as generate_snapshots
from scripts.bench.planned_table import generate as generate_files
from scripts.bench.planning import OURS, run

SIZES = {"columns": (50, 500), "partitions": (300, 3000), "files": (20_000, 1_000_000, 3_000_000), "snapshots": (500, 5000)}
PROPORTIONAL = 1.15
"""How much more than the ratio of the sizes the ratio of two costs may be."""
WIDE_COMPACTION = 1.15
CELLS = 10_000_000
ROWS_A_PARTITION = 20
TYPES = ("BIGINT", "DOUBLE", "STRING", "INT")
MODULE = "scripts.bench.wide_and_many"


def growth(name: str, unit: str, costs: dict[int, float]) -> bool:
    """Whether the cost is proportional to the size; less is well."""
    return Growth(name, unit, costs, PROPORTIONAL * max(costs) / min(costs)).print()


# ---- columns --------------------------------------------------------------------------------------------------------------


def wide_table(folder: Path, width: int, cells: int) -> TableContext:
    """A table of one bucket with overlapping level-0 files, and so many columns beside the key."""
    random = np.random.default_rng(7)
    columns = ["k BIGINT NOT NULL", *(f"c{number} {TYPES[number % len(TYPES)]}" for number in range(width))]
    options = {"bucket": "1", "write-only": "true"}
    table = Table.create(str(folder), columns=columns, primary_key="k", options=options)
    keys = cells // width
    for _ in range(RUNS):
        k = random.permutation(keys)[: keys // RUNS]
        made = {"k": pa.array(k)}
        for number in range(width):
            kind = TYPES[number % len(TYPES)]
            values = (k * (number + 7)) % 1_000_003
            made[f"c{number}"] = {
                "BIGINT": lambda values: pa.array(values),
                "DOUBLE": lambda values: pa.array(values / 7),
                "STRING": lambda values: pa.array(values).cast(pa.string()),
                "INT": lambda values: pa.array(values.astype(np.int32)),
            }[kind](values)
        table.write(pa.table(made))
    return TableContext.open(str(folder))


def compaction_against_copy(context: TableContext, width: int) -> Comparison:
    task = full_compaction(context)
    paths = [Path(context.data_file_path(task.partition, task.bucket, file)) for file in task.files]
    made: list[Path] = []

    def merge() -> None:
        message = run_compaction(context, task)
        made.extend(Path(context.data_file_path(task.partition, task.bucket, file)) for file in message.compact.added)

    def copy() -> None:
        for path in paths:
            made.append(path.with_name(f"copy-of-{path.name}"))
            pq.write_table(pq.read_table(path), made[-1], compression="zstd", compression_level=1, use_dictionary=False)

    def reset() -> None:
        while made:
            made.pop().unlink()

    return Comparison(f"compact {width} columns", merge, copy, WIDE_COMPACTION, reset)


def columns_grow(folder: Path, sizes: Sequence[int], rounds: int, cells: int) -> bool:
    met, memory = True, {}
    for width in sizes:
        context = wide_table(folder / f"wide-{width}", width, cells)
        met &= report([compaction_against_copy(context, width)], rounds)
        command = [sys.executable, "-m", MODULE, "--read", context.url]
        memory[width] = float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        print(f"reading three of {width} columns: peak memory {memory[width]:.0f} MB", file=sys.stderr)
        print(json.dumps({"name": f"read of three of {width} columns", "megabytes": memory[width], "on": MACHINE}), flush=True)
    return met


def read_three_columns(url: str) -> float:
    """The megabytes that a read of three columns adds to this process."""
    table = Table.open(url)
    before = peak_megabytes()
    for _ in table.scan(columns=["k", "c1", "c2"]).to_batches():
        pass
    return peak_megabytes() - before


# ---- partitions, files, snapshots -----------------------------------------------------------------------------------------


def write_partitions(folder: Path, count: int) -> float:
    """The CPU seconds of one write into so many partitions of a new table."""
    columns = ["p INT NOT NULL", "k BIGINT NOT NULL", "a STRING", "b DOUBLE", "c INT", "d TIMESTAMP(3)"]
    options = {"bucket": "1", "write-only": "true"}
    table = Table.create(str(folder), columns=columns, primary_key=["p", "k"], partition_by="p", options=options)
    rows = count * ROWS_A_PARTITION
    random = np.random.default_rng(1)
    parts = random.permutation(np.repeat(np.arange(count, dtype=np.int32), ROWS_A_PARTITION))
    numbers = np.arange(rows)
    texts = pa.array(numbers % 97).cast(pa.string())
    columns_of = [parts, numbers, texts, numbers / 7, (numbers % 99).astype(np.int32), pa.array(numbers, pa.timestamp("ms"))]
    source = pa.table(columns_of, names=["p", "k", "a", "b", "c", "d"])
    before = time.process_time()
    table.write(source)
    return time.process_time() - before


def partitions_grow(folder: Path, sizes: Sequence[int], rounds: int) -> bool:
    numbers = iter(range(sys.maxsize))

    def write(size: int) -> float:
        command = [sys.executable, "-m", MODULE, "--write", str(folder / f"p{next(numbers)}"), str(size)]
        return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    costs = in_turn({size: partial(write, size) for size in sizes}, rounds)
    for size, cost in costs.items():
        print(f"write into {size:,} partitions: {1000 * cost / size:.2f} ms of CPU a file", file=sys.stderr)
    return growth("write", "partitions", costs)


def files_grow(folder: Path, sizes: Sequence[int], rounds: int) -> bool:
    urls = {size: str(generate_files(folder / f"files-{size}", size, max(1, size // 1000))) for size in sizes}
    plans = {size: [run(sys.executable, OURS, url, "") for _ in range(rounds)] for size, url in urls.items()}
    for size, found in plans.items():
        megabytes = min(plan["megabytes"] for plan in found)
        print(f"plan of {size:,} files: peak memory {megabytes:.0f} MB", file=sys.stderr)
        print(json.dumps({"name": f"plan of {size} files", "megabytes": megabytes, "on": MACHINE}), flush=True)
    return growth("plan", "files", {size: min(plan["cpu"] for plan in found) for size, found in plans.items()})


def snapshots_grow(folder: Path, sizes: Sequence[int], rounds: int) -> bool:
    numbers = iter(range(sys.maxsize))

    def expire(size: int) -> float:
        table = folder / f"s{next(numbers)}"
        generate_snapshots(table, size)
        return cpu_of_process([sys.executable, "-m", "paimon_cli", "expire", str(table), "--retain-max", str(KEPT), "-y"])

    return growth("expiry", "snapshots", in_turn({size: partial(expire, size) for size in sizes}, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in SIZES:
        parser.add_argument(f"--{name}", type=int, nargs="+")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--cells", type=int, default=CELLS, help="values in a wide table")
    parser.add_argument("--read", metavar="TABLE", help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, metavar=("FOLDER", "PARTITIONS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(read_three_columns(arguments.read))
        return
    if arguments.write:
        print(write_partitions(Path(arguments.write[0]), int(arguments.write[1])))
        return
    subjects: dict[str, Callable[[Path, Sequence[int], int], bool]] = {
        "columns": partial(columns_grow, cells=arguments.cells),
        "partitions": partitions_grow,
        "files": files_grow,
        "snapshots": snapshots_grow,
    }
    given = {name: getattr(arguments, name) for name in SIZES if getattr(arguments, name)}
    met = True
    for name, sizes in (given or SIZES).items():
        with tempfile.TemporaryDirectory() as folder:
            met &= subjects[name](Path(folder), sorted(sizes), arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
