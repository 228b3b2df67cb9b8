"""Every planted damage is found under its code, at its level; sound tables show nothing at all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import INVARIANTS, check_table
from paimon_cli.invariants.violation import BY_CODE
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.verify_job import LEVELS, VerifyReport, VerifyRequest, run_verify
from paimon_cli.pieces import PIECES
from tests.goldens import GOLDENS, Golden, golden_table
from tests.invariants.damaged_tables import SOUND, Bench
from tests.invariants.damages import DAMAGES, Damage, index_path
from tests.tables import make_table, write


def verified(root: Path, level: str, **request: object) -> VerifyReport:
    context = TableContext.open(str(root))
    return run_verify(context, VerifyRequest(level, **request), LocalEngine(), NoProgress())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sound")
    return {name: make(folder) for name, make in SOUND.items()}


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("all_snapshots", [False, True])
def test_sound_tables(sound: dict[str, Path], name: str, all_snapshots: bool) -> None:
    report = verified(sound[name], "full", all_snapshots=all_snapshots)
    assert [str(v) for v in report.violations] == []


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damages(sound: dict[str, Path], tmp_path: Path, damage: Damage) -> None:
    bench = Bench(shutil.copytree(sound[damage.table], tmp_path / "t"))
    damage.plant(bench)
    found = [v for v in verified(bench.root, damage.level).violations if v.code == damage.code]
    assert found and all(v.path and v.message for v in found)
    assert BY_CODE[damage.code].level in LEVELS[: LEVELS.index(damage.level) + 1]
    lower = LEVELS[: LEVELS.index(BY_CODE[damage.code].level)]
    assert all(v.code != damage.code for level in lower for v in verified(bench.root, level).violations)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("damage", [each for each in DAMAGES if each.level == "full" and "PV030" <= each.code < "PV050"], ids=str)
def test_damages_of_rows_that_come_one_by_one(
    sound: dict[str, Path], tmp_path: Path, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a check knows of a file it carries from batch to batch."""
    bench = Bench(shutil.copytree(sound[damage.table], tmp_path / "t"))
    damage.plant(bench)
    monkeypatch.setattr(PIECES, "batch_rows", 1)
    assert damage.code in {violation.code for violation in verified(bench.root, "full").violations}


def test_a_hash_in_the_index_of_another_bucket_is_no_hash_of_this_one(sound: dict[str, Path], tmp_path: Path) -> None:
    bench = Bench(shutil.copytree(sound["dynamic"], tmp_path / "t"))
    entries = bench.context.manifests.index_entries(bench.newest)
    one = next(e for e in entries if sum(o.partition == e.partition for o in entries) > 1)
    other = next(e for e in entries if e.partition == one.partition and e.bucket != one.bucket)
    here, there = (index_path(bench, entry) for entry in (one, other))
    there.write_bytes(there.read_bytes() + here.read_bytes()[:4])
    here.write_bytes(b"\1\2\3\4" + here.read_bytes()[4:])
    assert "PV041" in {violation.code for violation in check_table(bench.context, rows=True)}


def test_what_rows_say_is_carried_from_batch_to_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The greatest sequence number and the null are in the first row of the file, and batches have one row."""
    monkeypatch.setattr(PIECES, "batch_rows", 1)
    bench = Bench(tmp_path / "t")
    context = make_table(bench.root, {"k": "INT", "v": "INT"}, ["k"])
    write(context, [{"k": k, "v": k or None} for k in (2, 1, 0)])
    assert verified(bench.root, "full").violations == []
    (entry,) = bench.live()
    bench.lie(entry, max_sequence_number=1)
    assert "PV032" in {violation.code for violation in verified(bench.root, "full").violations}


@pytest.mark.parametrize("column", ["a", "b"])
def test_each_partition_column_tells_rows_of_another_partition(tmp_path: Path, column: str) -> None:
    bench = Bench(tmp_path / "t")
    context = make_table(bench.root, {"k": "INT", "a": "INT", "b": "INT"}, ["k", "a", "b"], ["a", "b"])
    write(context, [{"k": 1, "a": 1, "b": 1}])
    write(context, [{"k": 2, "a": 1, "b": 1} | {column: 2}])
    right, moved = bench.live()
    other = replace(moved, partition=right.partition)
    bench.path(moved).rename(bench.path(other))
    bench.reforge(lambda entry: other if entry.identity == moved.identity else entry)
    assert "PV036" in {violation.code for violation in verified(bench.root, "full").violations}


def test_every_code_has_a_damage() -> None:
    assert {damage.code for damage in DAMAGES} == {invariant.code for invariant in INVARIANTS}
    assert len(DAMAGES) >= 70


@pytest.mark.in_part(12)
@pytest.mark.parametrize("golden", GOLDENS, ids=str)
def test_other_writers_deviate_harmlessly(tmp_path: Path, golden: Golden) -> None:
    """All snapshots and rows: no error, and only the warnings that are known for these writers."""
    report = verified(golden_table(golden.writer, golden.name, tmp_path), "full", all_snapshots=True)
    known = {"PV044"} if golden.writer == "pypaimon-2.1" else set()
    assert [str(v) for v in report.violations if v.code not in known] == []
