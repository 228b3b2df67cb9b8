"""Tags, branches and consumers as collections."""

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.api.versions import References
from paimon_cli.errors import NotFound, UsageError


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "t", columns=["k BIGINT NOT NULL"], primary_key="k", bucket=1)
    table.write(pa.table({"k": [1]}))
    return table


def test_references_are_collections_of_names(table: Table) -> None:
    table.tags.create("x")
    table.branches.create("x", tag="x")
    table.consumers.reset("x", next_snapshot=1)
    every: list[tuple[References, int, str]] = [  # type: ignore[type-arg]
        (table.tags, 1, "Tags('x')"),
        (table.branches, 2, "Branches('main', 'x')"),
        (table.consumers, 1, "Consumers('x')"),
    ]
    for references, count, text in every:
        assert "x" in references and "y" not in references and references.exists("x") and not references.exists("y")
        assert (len(references), repr(references)) == (count, text)
        assert references["x"] == references.show("x") == references.list()[-1]
        assert references["x"] in references
        assert [one.name for one in references] == [one.name for one in references.ls()]
        with pytest.raises(NotFound):
            references["y"]
        with pytest.raises(UsageError, match="by name"):
            references[0]  # type: ignore[index]
    table.consumers.delete("x")
    table.branches.delete("x")
    table.tags.delete("x")
    assert not table.tags and not table.consumers and len(table.branches) == 1


def test_a_repr_names_only_some(table: Table) -> None:
    for number in range(12):
        table.tags.create(f"t{number:02}")
    assert repr(table.tags).endswith("'t09', ... 2 more)")
