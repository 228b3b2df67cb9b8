"""Every planted damage is found under its code, at its level; sound tables show nothing at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import INVARIANTS
from paimon_cli.invariants.violation import BY_CODE
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.verify_job import LEVELS, VerifyReport, VerifyRequest, run_verify
from tests.goldens import GOLDENS, Golden, golden_table
from tests.invariants.damaged_tables import SOUND, Bench
from tests.invariants.damages import DAMAGES, Damage


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


def test_every_code_has_a_damage() -> None:
    assert {damage.code for damage in DAMAGES} == {invariant.code for invariant in INVARIANTS}
    assert len(DAMAGES) >= 70


@pytest.mark.in_part(4)
@pytest.mark.parametrize("golden", GOLDENS, ids=str)
def test_other_writers_deviate_harmlessly(tmp_path: Path, golden: Golden) -> None:
    """All snapshots and rows: no error, and only the warnings that are known for these writers."""
    report = verified(golden_table(golden.writer, golden.name, tmp_path), "full", all_snapshots=True)
    known = {"PV044"} if golden.writer == "pypaimon-2.1" else set()
    assert [str(v) for v in report.violations if v.code not in known] == []
