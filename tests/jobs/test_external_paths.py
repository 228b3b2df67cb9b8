"""Tables whose data files lie outside of their directory: every job works on them, at places that the user allows only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.errors import DamagedFile, NotSupported, PaimonError, Refused
from paimon_cli.history.table_context import TableContext
from tests.tables import make_table

ALLOWED = "external-paths.allowed"
SMALL = {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.items": "10", "file-index.in-manifest-threshold": "1 b"}


@pytest.fixture(params=["round-robin", "entropy-inject"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Table]:
    """Opens a table with two places, of which the user allows both by default."""
    paths = ",".join(f"file:{tmp_path}/{name}/t" for name in ("hot", "cold"))
    options = {"data-file.external-paths": paths, "data-file.external-paths.strategy": request.param, **SMALL}
    columns = {"k": "INT NOT NULL", "p": "INT NOT NULL", "v": "STRING"}
    url = make_table(tmp_path / "t", columns, ["k", "p"], ["p"], 1, {**options, "changelog-producer": "input"}).url

    def opened(allowed: str | None = f"{tmp_path}/hot,{tmp_path}/cold") -> Table:
        given = {} if allowed is None else {ALLOWED: allowed}
        return Table.open(url, given, runtime=Runtime(engine="local"))

    return opened


def outside(folder: Path) -> set[str]:
    return {path.name for place in ("hot", "cold") for path in (folder / place).rglob("*") if path.is_file()}


def inside(folder: Path) -> set[str]:
    return {path.name for path in (folder / "t").rglob("*") if path.is_file() and path.parent.name.startswith("bucket-")}


def rows(*keys: int, v: str = "a") -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32()), "p": pa.array([k % 2 for k in keys], pa.int32()), "v": [v] * len(keys)})


def content(table: Table) -> dict[int, str]:
    found = table.scan().to_arrow()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_written_read_compacted_expired_and_dropped(table: Callable[..., Table], tmp_path: Path) -> None:
    table().write(rows(1, 2, 3))
    table().write(rows(2, 3, 4, v="b"))
    assert content(table()) == {1: "a", 2: "b", 3: "b", 4: "b"} and table().scan(where="v = 'a'").to_arrow().num_rows == 1
    written = outside(tmp_path)
    assert not inside(tmp_path) and {name.rpartition(".")[2] for name in written} == {"parquet", "index"}
    table().compact(strategy="full")
    table().delete("k = 3")
    assert content(table()) == {1: "a", 2: "b", 4: "b"}
    assert not table().verify(level="full").violations
    table().expire(retain_max=1, retain_min=1)
    assert not written & outside(tmp_path), "what only old snapshots need is deleted, with its indexes and changelogs"
    assert content(table()) == {1: "a", 2: "b", 4: "b"} and not table().verify(level="full").violations
    cost = table().cost()
    assert cost.files >= len(outside(tmp_path)), "its files elsewhere count"
    table().drop()
    assert not outside(tmp_path) and not (tmp_path / "t").exists()


@pytest.mark.parametrize("allowed", [None, "/elsewhere", "hot"])
def test_nothing_is_reached_that_is_not_allowed(table: Callable[..., Table], tmp_path: Path, allowed: str | None) -> None:
    table().write(rows(1, 2))
    table().write(rows(3, 4, 5, 6, 7, 8))
    limited = f"{tmp_path}/hot" if allowed == "hot" else allowed  # one of both places
    table().compact(strategy="full")
    before = outside(tmp_path)
    calls: list[Callable[[Table], object]] = [
        lambda opened: opened.write(rows(9)),
        lambda opened: opened.compact(strategy="full"),
        lambda opened: opened.expire(retain_max=1, retain_min=1),
        lambda opened: opened.drop(),
    ]
    for call in calls[:2] if allowed == "hot" else calls:
        with pytest.raises(Refused, match="lies outside of the table"):
            call(table(limited))
    if allowed != "hot":
        with pytest.raises(Refused, match=ALLOWED):
            content(table(limited))
        found = table(limited).verify(level="full").violations
        assert {violation.code for violation in found} == {"PV028"}
        assert all("was not checked: a table cannot give itself access" in v.message and ALLOWED in v.message for v in found)
        with pytest.raises(Refused, match=ALLOWED):
            table(limited).plan_repair()
    assert outside(tmp_path) == before and content(table()) == dict.fromkeys(range(1, 9), "a")


def test_a_failed_write_leaves_nothing(table: Callable[..., Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table().write(rows(1, 2))
    before = outside(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise Refused("no commit today", "a test")

    monkeypatch.setattr("paimon_cli.commit.committer.Committer.commit", refuse)
    with pytest.raises(PaimonError):
        table().write(rows(3, 4))
    assert outside(tmp_path) == before


def test_orphans_are_looked_for_on_demand(table: Callable[..., Table], tmp_path: Path) -> None:
    table().write(rows(1, 2))
    live = next((tmp_path / "hot").rglob("*.parquet"), None) or next((tmp_path / "cold").rglob("*.parquet"))
    orphan = live.with_name("data-orphan-0.parquet")
    shutil.copy(live, orphan)
    for path in (live, orphan):
        os.utime(path, (0, 0))
    with pytest.warns(UserWarning, match="external_paths does"):
        assert not table().plan_orphans().plan.files
    found = table().plan_orphans(external_paths=True).plan
    assert [Path(file.path) for file in found.files] == [orphan]
    table().remove_orphans(external_paths=True)
    assert not orphan.exists() and live.exists()


def test_a_backup_that_is_refused_holds_nothing(table: Callable[..., Table], tmp_path: Path) -> None:
    """Its consumer would keep every expiry, of Java too, from removing a snapshot, though no later run can copy one."""
    table().write(rows(1, 2))
    with pytest.raises(NotSupported):
        table().backup(str(tmp_path / "backup"))
    assert not table().consumers.ls()


def test_the_recorded_path_must_end_in_the_name(table: Callable[..., Table], tmp_path: Path) -> None:
    table().write(rows(1))
    context: TableContext = table().context
    latest = context.snapshots.latest()
    assert latest is not None
    (entry,) = context.manifests.live_entries(latest)
    assert entry.file.external_path is not None and entry.file.external_path.startswith(f"file:{tmp_path}/")
    assert Path(context.data_file_path(*entry.bucket_id, entry.file)).is_file()
    with pytest.raises(DamagedFile, match="in two ways"):
        context.data_file_path(*entry.bucket_id, replace(entry.file, file_name="data-other.parquet"))


def test_copies_are_refused(table: Callable[..., Table], tmp_path: Path) -> None:
    table().write(rows(1))
    with pytest.raises(NotSupported, match="is outside"):
        Catalog(str(tmp_path), {ALLOWED: f"{tmp_path}/hot,{tmp_path}/cold"}).clone_table(
            str(tmp_path / "t"), str(tmp_path / "copy")
        )
    assert not (tmp_path / "copy").exists()
