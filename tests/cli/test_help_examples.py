"""Every help ends in two or three examples, and they work when they are pasted."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli import Table
from tests.cli.calling import Run
from tests.cli.test_documented_commands import COMMANDS

pytestmark = pytest.mark.xdist_group("examples")  # one directory for all of them

NAMES = sorted(name for name, command in COMMANDS.items() if not command.hidden)
EXAMPLE = re.compile(r"^paimon-cli .*$", re.MULTILINE)
PARSED = re.compile(r"s3://|--watch|^paimon-cli (tui|demo|lab check|watch [^-]*$)")
"""Examples that need a store, a terminal or time: it is only checked that the command line is right."""
EXPECTED = {"locks break": (2,)}
"""The table of the examples has no lock."""
SHAPE = pa.schema(
    [
        *(pa.field("dt", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False)),
        *(("name", pa.string()), ("amount", pa.decimal128(10, 2)), ("status", pa.string())),
    ]
)


def examples(name: str) -> list[str]:
    return EXAMPLE.findall(COMMANDS[name].help or "")


EXAMPLES = [(name, example) for name in NAMES for example in examples(name)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as the examples have it: tables with a history, tags, branches, input files and a staged write."""
    home = tmp_path_factory.mktemp("home")
    for database in ("test", "archive"):
        (home / "wh" / f"{database}.db").mkdir(parents=True)
    options = {"bucket": "4", "write-only": "true", "num-sorted-run.stop-trigger": "20", "snapshot.time-retained": "3d"}
    orders = Table.create(
        str(home / "wh/shop.db/orders"), schema=SHAPE, primary_key=["dt", "id"], partition_by=["dt"], options=options
    )
    for number in range(13):
        dt = ("2026-11-20", "2026-11-21")[number % 2]
        ids = range(number % 2 + 1, number + 10, 2)
        rows = [{"dt": dt, "id": n, "name": f"n{n}", "amount": n, "status": "open"} for n in ids]
        orders.write(pa.Table.from_pylist(rows, schema=SHAPE), commit_user="etl", commit_id=number)
        if number == 10:
            assert [snapshot.id for snapshot in orders.compact(strategy="full").snapshots] == [12]
    orders.update({"amount": "-1"}, where="id = 2")
    orders.delete(where="id = 7")
    orders.tags.create("year-end")
    orders.tags.create("monday", snapshot=3)
    for branch in ("dev", "try"):
        orders.branches.create(branch, tag="year-end")
        Table.open(orders.url, branch=branch).delete(where="id = 5")
    consumers = home / "wh/shop.db/orders/consumer"
    consumers.mkdir()
    (consumers / "consumer-nightly-export").write_text(json.dumps({"nextSnapshot": 5}))
    players = Table.create(
        str(home / "wh/game.db/players"), columns=["id INT NOT NULL", "points INT"], primary_key=["id"], bucket=1
    )
    players.write(pa.table({"id": pa.array([7, 8], pa.int32()), "points": pa.array([1, -1], pa.int32())}))
    for name in ("orders", "exported"):
        (home / f"{name}.csv").write_text("dt,id,name,amount,status\n2026-11-21,7,tea,3.50,open\n")
    (home / "cancelled.csv").write_text("dt,id\n2026-11-21,7\n")
    pq.write_table(pa.Table.from_pylist([{"dt": "2026-11-21", "id": 7}], schema=SHAPE), home / "orders-1.parquet")
    (home / "policy.yaml").write_text("catalog: {windows: nights}\n")
    (home / "paimon.yaml").write_text("profiles:\n  production:\n    warehouse: ./wh\n")
    return home


def prepare(name: str, home: Path) -> None:
    """What a command makes is not there yet, and what it takes is."""
    orders = Table.open(str(home / "wh/shop.db/orders"))
    if name == "create":
        orders.drop()
    elif name == "adopt":
        (home / "exports/orders/dt=2026-01-01").mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), home / "exports/orders/dt=2026-01-01/part-0.parquet")
    elif name == "tags create":
        orders.tags.rm("year-end")
    elif name == "branches create":
        orders.branches.rm("try")
    elif name in ("backup ls", "backup verify", "restore"):
        orders.backup(home / "backup/orders")
        orders.backup(home / "backup/shop.db/orders")
    elif name in ("undrop", "trash ls", "trash empty"):
        orders.drop()
    elif name == "export iceberg":
        orders.compact(strategy="full")
    elif name == "ingest":
        event: dict[str, object] = {"before": None, "after": {"id": 1}, "source": {"db": "shop", "table": "sales"}, "op": "c"}
        (home / "events").mkdir()
        (home / "events" / "1.json").write_text(json.dumps(event) + "\n")
        event = {"database": "shop", "table": "sales", "type": "insert", "data": {"id": 1}, "primary_key_columns": ["id"]}
        (home / "sales.json").write_text(json.dumps(event) + "\n")
    elif name.startswith("stage "):
        orders.write([str(home / "orders.csv")], stage=str(home / "orders.stage"))
        for day, file in (("2026-11-20", "monday"), ("2026-11-21", "tuesday"), ("2026-11-22", "returns")):
            row = {"dt": day, "id": 1, "name": file, "amount": 1, "status": "open"}
            orders.write(pa.Table.from_pylist([row], schema=SHAPE), stage=str(home / f"{file}.stage"))


@pytest.mark.parametrize("name", NAMES)
def test_every_help_begins_with_its_use_and_ends_in_examples(name: str) -> None:
    text = (COMMANDS[name].help or "").strip()
    assert 2 <= len(examples(name)) <= 3
    assert text.splitlines()[-1] == examples(name)[-1]
    assert all(
        example.startswith(f"paimon-cli {name.split()[0]} ") or example == f"paimon-cli {name}" for example in examples(name)
    )


def test_brackets_are_not_markup(run: Run) -> None:
    assert "'paimon-cli[sql]'" in run("sql", "--help").out
    assert "'paimon-cli[iceberg]'" in run("export", "iceberg", "--help").out


@pytest.mark.in_part(6)
@pytest.mark.parametrize(("name", "example"), [pair for pair in EXAMPLES if not PARSED.search(pair[1])])
def test_the_example_works(
    name: str, example: str, home: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "home"
    shutil.copytree(home, copy)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(copy / "wh"))
    files = [*copy.glob("wh/shop.db/orders/**/*")]
    manifest = next(file.name for file in files if re.fullmatch(r"manifest-[^l].*", file.name))
    data = Table.open("wh/shop.db/orders").files(snapshot=3 if "--snapshot 3" in example else None)[0].file
    prepare(name, copy)
    shown = example.replace("manifest-NAME", manifest).replace("data-NAME.parquet", data)
    words = shlex.split(shown)[1:]
    answer = run(*words, code=None)
    if answer.code == 7 and "not confirmed" in answer.err:  # on a terminal it asks
        answer = run(*words, "--yes", code=None)
    assert answer.code in EXPECTED.get(name, (0, 4)), f"{answer.code}: {answer.out}{answer.err}"


@pytest.mark.parametrize(("name", "example"), [pair for pair in EXAMPLES if PARSED.search(pair[1])])
def test_the_command_line_of_the_example_is_right(name: str, example: str) -> None:
    words = shlex.split(example)[1 + len(name.split()) :]
    COMMANDS[name].make_context(name, words)
