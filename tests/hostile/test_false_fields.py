"""A sample of false metadata; scripts/nightly/false_fields.py runs thousands of cases."""

from __future__ import annotations

import json
import time
from pathlib import Path
from unittest import mock

import pytest

from paimon_cli.cli.app import app
from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.table_schema import MAX_COLUMNS, TableSchema
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.read_bounds import BOUNDS, bound_of
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.hostile.false_fields import CHANGING, READING, Figures, Trial, lies, may_change_rows

CASES = 40


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def trial(tables: Trial) -> Trial:
    """On tables that all tests share, with figures of its own."""
    tables.figures = Figures()
    return tables


def test_a_sample(trial: Trial) -> None:
    for lie, command in trial.pairs(CASES, seed=5):
        trial.run(lie, command)
    assert trial.figures.faults == []
    assert trial.figures.cases == CASES and trial.figures.codes[10] > CASES // 5


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("shape", "where", "value"),
    [
        ("keyed", "manifest _KIND", "7"),
        ("keyed", "manifest _FILE._ROW_COUNT", "-1"),
        ("keyed", "manifest _FILE._LEVEL", "None"),
        ("append-vectors", "manifest _FILE._SCHEMA_ID", "7"),
        ("keyed", "manifest _BUCKET", "-7"),
        ("keyed", "manifest _TOTAL_BUCKETS", "0"),
        ("append-vectors", "manifest _FILE._ROW_COUNT", "-1"),
        ("vectors", "index manifest _KIND", "1"),
        ("vectors", "index manifest _DELETIONS_VECTORS_RANGES", "[]"),
        ("vectors", "index manifest _DELETIONS_VECTORS_RANGES.f1", "-1"),
    ],
)
def test_values_that_no_writer_writes_are_damage(trial: Trial, shape: str, where: str, value: str) -> None:
    (lie, *_) = (lie for lie in lies(shape, trial.sound[shape]) if (lie.where, lie.value) == (where, value))
    trial.run(lie, READING[0])
    assert dict(trial.figures.codes) == {10: 1}, trial.figures.faults


def test_the_trial_finds_what_it_looks_for(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that vanish without an error, and a decoder that fails in another way than by an error for users."""
    shape = "append-vectors"
    told = {(lie.where, lie.value): lie for lie in lies(shape, trial.sound[shape])}
    with monkeypatch.context() as patched:
        patched.setitem(trial.rows, shape, [*trial.rows[shape], "a row that is not shown"])
        trial.run(told["snapshot snapshot/snapshot.commitUser", "''"], READING[0])
    lie = told["manifest _KIND", "7"]
    monkeypatch.setattr("paimon_cli.metadata.manifests.refuse", mock.Mock(side_effect=RuntimeError("planted")))
    trial.run(lie, READING[0])
    assert len(trial.figures.faults) == 2, trial.figures
    assert ["rows instead of" in trial.figures.faults[0], "exit code 1" in trial.figures.faults[1]] == [True, True]


def test_every_command_on_tables_is_met() -> None:
    from typer.main import get_command

    words = {" ".join(command.split(" {t}")[0].split()[:2]) for command in (*READING, *CHANGING)}
    listed = {name for name in get_command(app).commands}  # type: ignore[attr-defined]
    apart = {
        "adopt",
        "create",
        "db",
        "locks",
        "backup",  # these read other places than a table: hostile copies and entries of the trash have tests of their own
        "restore",
        "undrop",
        "trash",
        "policy",  # reads a file of the warehouse; hostile ones have tests of their own
        "ledger",  # has no table; hostile objects have tests of their own
        "mcp",  # a server, whose tools have tests of their own
        "maintain",  # compaction, expiry and orphans, which are met as commands of their own
        "demo",
        "tui",
        "watch",
        "lab",
        "config",
        "version",
        "list",
        "drop-partition",
    }
    assert {name for name in listed if not any(word.split()[0] == name for word in words)} <= apart
    assert may_change_rows("schema schema/schema.fields.0.id", "7") and not may_change_rows("manifest _KIND", "7")
    assert all(any(word in command for command in (*READING, *CHANGING)) for word in ("--database", "--watch", "stage commit"))


def test_a_schema_of_a_million_columns_costs_its_own_table_only(run: Run, tmp_path: Path) -> None:  # noqa: F811
    for name in ("big", "small"):
        run("create", tmp_path / "w.db" / name, "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", 1)
    path = tmp_path / "w.db/big/schema/schema-0"
    schema = json.loads(path.read_text())
    schema["fields"] += [{"id": i + 10, "name": f"c{i}", "type": "INT"} for i in range(1_000_000)]
    path.write_text(json.dumps({**schema, "highestFieldId": 1_000_020}))
    begun = time.process_time()
    rows = {row["table"].rpartition("/")[2]: row for row in run("ls", tmp_path / "w.db", "-o", "json").json["items"]}
    assert time.process_time() - begun < 5
    assert rows["small"]["problem"] is None and "columns" in rows["big"]["problem"]
    assert "schema-0" in run("read", tmp_path / "w.db/big", code=10).err


def test_the_limit_of_columns() -> None:
    def schema(columns: int) -> str:
        fields = [{"id": number, "name": f"c{number}", "type": "INT"} for number in range(columns)]
        rest = {"highestFieldId": columns, "partitionKeys": [], "primaryKeys": [], "options": {}}
        return json.dumps({"version": 3, "id": 0, "fields": fields, **rest})

    assert len(TableSchema.from_json(schema(MAX_COLUMNS)).fields) == MAX_COLUMNS
    with pytest.raises(DamagedFile, match="100,001 columns"):
        TableSchema.from_json(schema(MAX_COLUMNS + 1), "s")


@pytest.mark.parametrize("name", BOUNDS)
def test_files_beyond_their_bound_are_not_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}1"
    with path.open("wb") as sink:
        sink.truncate(bound_of(str(path)) + 1)
    with pytest.raises(DamagedFile, match="too large"):
        LocalStorage().read_bytes(str(path))


def test_bounds_hold_on_every_storage() -> None:
    memory = MemoryStorage()
    memory.write_new("/t/consumer/consumer-c", bytes((64 << 10) + 1))
    with pytest.raises(DamagedFile, match="too large"):
        memory.read_bytes("/t/consumer/consumer-c")
