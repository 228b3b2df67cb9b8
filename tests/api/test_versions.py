"""Tags, branches and consumers as collections."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.api.versions import References
from paimon_cli.errors import NotFound, Refused, UsageError


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
    table.tags.rm("t00", "t01")
    assert repr(table.tags).endswith("'t10', 't11')"), "ten are all"
    assert table.tags._repr_html_().count("<tr>") > 10


def test_a_tag_is_moved_only_if_that_is_said(table: Table) -> None:
    table.write(pa.table({"k": [2]}))
    assert table.tags.create("x", snapshot=1, time_retained="1h").time_retained == 3600
    with pytest.raises(UsageError):
        table.tags.create("x", snapshot=2)
    moved = table.tags.create("x", snapshot=2, time_retained="2h", replace=True)
    assert (moved.snapshot_id, moved.time_retained) == (2, 7200)
    moved = table.tags.replace("x", snapshot=1, time_retained="3h")
    assert (moved.snapshot_id, moved.time_retained) == (1, 10800)
    assert table.tags.rename("x", "y").name == "y" and [tag.name for tag in table.tags] == ["y"]


def test_all_tags_that_are_named_are_removed_with_their_files(table: Table) -> None:
    for name in ("x", "y", "z"):
        table.tags.create(name)
    table.truncate()
    table.expire(retain_max=1, retain_min=1)
    plan = table.tags.plan_rm("x", "x", "z")
    assert tuple(plan.plan.names) == ("x", "z") and {"tag"} == {file.kind for file in plan.files()}, "y needs the others"
    plan = table.tags.plan_rm("x", "y", "z", "x")
    kinds = [file.kind for file in plan.files()]
    assert kinds.count("tag") == 3 and len(kinds) > 3
    assert [tag.name for tag in table.tags] == ["x", "y", "z"]
    assert plan.run() > 0 and not table.tags.ls()


def test_what_is_removed_with_a_branch(table: Table) -> None:
    table.write(pa.table({"k": [2]}))
    table.branches.create("b", snapshot=1)
    assert table.branches.rename("b", "c").name == "c"
    plan = table.branches.plan_rm("c")
    assert list(plan.plan) == [1] and "c" in table.branches, "its own snapshots; none of them is gone yet"
    (Path(table.url) / "branch/branch-c/schema/schema-0").write_text("{")
    with pytest.warns(UserWarning):
        assert [branch.name for branch in table.branches.ls()] == ["main"]
    table.branches.plan_rm("c").run()
    assert not (Path(table.url) / "branch/branch-c/snapshot/snapshot-1").exists(), "though it cannot be read"
    with pytest.raises(NotFound):
        table.branches.plan_rm("c")


def test_a_fast_forward_is_planned_checked_and_made_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="gone"):
        table.branches.plan_fast_forward("gone")
    table.branches.create("b", snapshot=1)
    Table.open(table.url, branch="b").write(pa.table({"k": [2]}))
    table.write(pa.table({"k": [3]}))
    plan = table.branches.plan_fast_forward("b")
    assert [file for file in plan.files() if "snapshot" in file.path], "the commit to main that is lost"

    def refuse() -> None:
        raise Refused("no safe commit", "the storage cannot")

    with monkeypatch.context() as patch:
        patch.setattr(table, "check_commit", refuse)
        with pytest.raises(Refused):
            plan.run()
    assert sorted(table.to_arrow()["k"].to_pylist()) == [1, 3]
    assert plan.run().latest_snapshot == 2
    assert sorted(table.to_arrow()["k"].to_pylist()) == [1, 2]
    import paimon_cli.maintain.branches as branches

    def fail(*_: object) -> None:
        raise AssertionError("it is needless")

    monkeypatch.setattr(branches, "fast_forward", fail)
    assert table.branches.fast_forward("b").latest_snapshot == 2


def test_a_consumer_that_is_reset_reads_on_where_it_is_said(table: Table) -> None:
    table.write(pa.table({"k": [2]}))
    first = table.consumers.reset("a", next_snapshot=1)
    last = table.consumers.reset("b")
    assert (first.next_snapshot, first.behind) == (1, 2)
    assert (last.next_snapshot, last.behind) == (3, 0), "it has read all"
    assert [table.consumers.show(name) for name in ("a", "b")] == table.consumers.ls()
    written = [replace(row, modified=made.modified) for row, made in zip(table.consumers.ls(), (first, last), strict=True)]
    assert written == [first, last], "but for the time, which the storage tells by a clock of its own"
    planned = table.consumers.plan_rm("b")
    assert "b" in table.consumers, "it is only planned"
    planned.run()
    for call in (table.consumers.show, table.consumers.plan_rm):
        with pytest.raises(NotFound):
            call("b")
    assert [consumer.name for consumer in table.consumers] == ["a"]
