"""The plan of an adoption refuses what the run would refuse, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.errors import AlreadyExists, NotSupported, PaimonError, UsageError
from paimon_cli.jobs.adoption.source import AdoptedFile, Source
from paimon_cli.storage.local_storage import LocalStorage

FITTING = {"INT": "1", "BOOLEAN": "true", "DATE": "2026-01-01", "DECIMAL(3, 1)": "1"}
EACH_WAY = pytest.mark.parametrize("how", [{}, {"primary_key": "id,p"}], ids=["in place", "written again"])


def write(path: Path, first: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([first, first + 1], pa.int64())}), path)


def catalog(tmp_path: Path, said: list[str] | None = None) -> Catalog:
    return Catalog(str(tmp_path / "wh"), runtime=Runtime(engine="local", warn=(said if said is not None else []).append))


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("INT", "abc", "a whole number from -2147483648 to 2147483647 is expected"),
        ("INT", "1.0", "a whole number"),
        ("INT", "1_0", "a whole number"),
        ("INT", "\u0663", "a whole number"),
        ("INT", "99999999999", "a whole number"),
        ("INT", "9" * 5000, "a whole number"),
        ("BOOLEAN", "yes", "true or false is expected"),
        ("DATE", "2026-02-30", "is not a day of the calendar"),
        ("DATE", "2026-1-1", "is not a date like 2024-01-31"),
        ("DECIMAL(3, 1)", "x", "is not a valid DECIMAL"),
    ],
)
@EACH_WAY
def test_partition_values_that_do_not_fit(tmp_path: Path, kind: str, text: str, why: str, how: dict[str, Any]) -> None:
    root = tmp_path / "s"
    files = []
    for name, value in (("a", FITTING[kind]), ("b", text)):
        write(root / name)
        files.append(AdoptedFile(name, (root / name).stat().st_size, (value,)))
    source = Source("files", LocalStorage(), str(root), ("p",), tuple(files))
    with (
        mock.patch("paimon_cli.jobs.adoption.source_search.find_source", return_value=source),
        pytest.raises(UsageError, match=f"p={text}: the value is not of type") as refused,
    ):
        catalog(tmp_path).plan_adoption(str(root), table=str(tmp_path / "t"), partition_columns=[f"p {kind}"], **how)
    assert why in refused.value.why and not (tmp_path / "t").exists()
    assert not any(words in refused.value.why for words in ("literal", "Exceeds", "Conversion")), "no words of Python's"


@EACH_WAY
def test_directories_of_one_partition_are_counted_once_and_said(tmp_path: Path, how: dict[str, Any]) -> None:
    for number, name in enumerate(("01", "1", "2", "+2", "3")):
        write(tmp_path / f"s/p={name}/a.parquet", number * 10)
    said: list[str] = []
    planned = catalog(tmp_path, said).plan_adoption(
        str(tmp_path / "s"), table=str(tmp_path / "t"), partition_columns=["p INT"], **how
    )
    assert planned.plan.partitions == 3
    assert sorted(text.partition(" are one partition")[0] for text in said) == ["p=+2 and p=2", "p=01 and p=1"]
    assert planned.run().partitions == 3
    table = Table.open(str(tmp_path / "t"))
    assert len(table.partitions()) == 3 and table.count() == 10


@pytest.mark.parametrize(
    ("options", "columns", "error"),
    [({"file.format": "odd"}, [], PaimonError), ({}, ["p DOUBLE"], NotSupported), ({"path": "/x"}, [], NotSupported)],
)
def test_tables_that_cannot_be_created(
    tmp_path: Path, options: dict[str, str], columns: list[str], error: type[PaimonError]
) -> None:
    write(tmp_path / "s/p=1/a.parquet")
    at = Catalog(str(tmp_path / "wh"), options, runtime=Runtime(engine="local"))
    with pytest.raises(error) as planned:
        at.plan_adoption(str(tmp_path / "s"), table=str(tmp_path / "t"), partition_columns=columns)
    assert planned.value.exit_code in (2, 8) and not (tmp_path / "t").exists()


def test_a_table_that_is_there(tmp_path: Path) -> None:
    write(tmp_path / "s/a.parquet")
    catalog(tmp_path).adopt(str(tmp_path / "s"), table=str(tmp_path / "t"))
    with pytest.raises(AlreadyExists) as exists:
        catalog(tmp_path).plan_adoption(str(tmp_path / "s"), table=str(tmp_path / "t"))
    assert "after a killed run the table may be complete" in exists.value.hint


@pytest.mark.parametrize("column", [pa.nulls(1), pa.array([b"x" * 16], pa.binary(16)).cast(pa.uuid())])
def test_a_column_of_a_type_that_paimon_lacks_is_named_with_its_file(tmp_path: Path, column: pa.Array) -> None:
    write(tmp_path / "s/a.parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "odd one": column}), tmp_path / "s/b.parquet")
    with pytest.raises(NotSupported, match=r"column odd one of .*/s/b\.parquet cannot be adopted: the Arrow type"):
        catalog(tmp_path).plan_adoption(str(tmp_path / "s"), table=str(tmp_path / "t"))
