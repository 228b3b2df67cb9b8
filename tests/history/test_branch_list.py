"""Branches, tags and changelogs: Java's golden branch reads as it was made, and one written by us goes its own way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.errors import DamagedFile, NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import BranchList, ChangelogHistory, TagHistory, check_branch_name
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.local_storage import LocalStorage
from tests.goldens import expected_rows, golden, golden_table
from tests.history.test_snapshot_history import history
from tests.tables import compact, rows, write


def test_a_branch_of_java_reads_as_its_tag_and_is_written(tmp_path: Path) -> None:
    url = str(golden_table("java-0.9", "branch", tmp_path))
    main, branch = TableContext.open(url), TableContext.open(url, branch="b1")
    before = rows(main)
    expected = expected_rows(golden("java-0.9", "branch"), "tag-t1")
    by_key = sorted(rows(branch), key=str)
    assert by_key == sorted(expected, key=str)
    write(branch, [before[0]])
    compact(branch)
    assert rows(main) == before and rows(branch, snapshot_id=1) == rows(branch.at_branch("main"), snapshot_id=1)
    assert branch.snapshots.ids() == [1, 2, 3] and main.snapshots.ids() == [1, 2]


def test_a_branch_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    url = str(golden_table("java-0.9", "branch", tmp_path))
    with pytest.raises(NotFound, match="no branch 'b2'") as caught:
        open_table(locate_table(f"{url}$branch_b2"))
    assert "main, b1" in caught.value.why
    with pytest.raises(NotFound, match="no table"):
        open_table(locate_table(f"{tmp_path}/nothing$branch_b2"))


def test_branches_are_directories_with_a_name_and_finished_ones_have_a_schema(tmp_path: Path) -> None:
    branches = BranchList(LocalStorage(), TableLayout(str(tmp_path)))
    assert (branches.directories(), branches.names()) == ([], [])
    assert branches.missing("x").why == "it has no branches"
    for name in ("branch-b", "branch-a", "branch-begun", "branch-", "other"):
        (tmp_path / "branch" / name / "schema").mkdir(parents=True)
    for name in ("b", "a"):
        (tmp_path / "branch" / f"branch-{name}" / "schema" / "schema-0").write_text("{}")
    assert branches.directories() == ["a", "b", "begun"] and branches.names() == ["a", "b"]
    assert branches.exists("a") and not branches.exists("begun") and not branches.exists("none")
    missing = branches.missing("x")
    assert (missing.why, missing.details) == ("its branches are main, a, b", {"branch": "x"})
    assert missing.hint == f"paimon-cli branches ls {tmp_path}"


@pytest.mark.parametrize("name", ["main", "7", "", " ", "a/b", "..", "a$b", "a\0"])
def test_names_that_no_branch_can_have(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a branch: a branch name is a file name without"):
        check_branch_name(name)


@pytest.mark.parametrize("name", ["a", "main2", "7a", "a b", "x=1", "a.b"])
def test_names_that_branches_may_have(name: str) -> None:
    check_branch_name(name)


def test_a_missing_tag_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2])
    tags = TagHistory(past.storage, past.layout)
    with pytest.raises(NotFound, match=r"no tag 'x' in .*: it has no tags"):
        tags.get("x")
    for name in ("b", "a"):
        past.storage.write_new(past.layout.tag(name), (tmp_path / "snapshot/snapshot-2").read_bytes())
    with pytest.raises(NotFound, match="its tags are a, b") as missing:
        tags.get("x")
    assert missing.value.details == {"tag": "x"} and missing.value.hint == f"paimon-cli tags ls {past.layout.argument}"
    assert tags.get("a").snapshot.id == 2 and tags.find("x") is None and tags.content("x") is None
    assert list(tags.all()) == ["a", "b"]
    listing = past.storage.list_directory(past.layout.tag_directory)
    past.storage.list_directory = lambda path: listing  # type: ignore[method-assign]
    past.storage.delete(past.layout.tag("a"))
    assert list(tags.all()) == ["b"], "it was deleted since the directory was read"


def test_changelogs_are_the_oldest_first_and_those_that_go_meanwhile_are_missing(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2, 3, 10])
    changelogs = ChangelogHistory(past.storage, past.layout)
    assert changelogs.ids() == [] == changelogs.all()
    (tmp_path / "changelog").mkdir()
    for number in (10, 3, 2):
        (tmp_path / f"changelog/changelog-{number}").write_bytes((tmp_path / f"snapshot/snapshot-{number}").read_bytes())
    for name in ("LATEST", "changelog-x", "snapshot-1"):
        (tmp_path / "changelog" / name).write_text("2")
    assert changelogs.ids() == [2, 3, 10] and [found.id for found in changelogs.all()] == [2, 3, 10]
    listing = past.storage.list_directory(past.layout.changelog_directory)
    past.storage.list_directory = lambda path: listing  # type: ignore[method-assign]
    (tmp_path / "changelog/changelog-3").unlink()
    assert [found.id for found in changelogs.all()] == [2, 10] and changelogs.find(3) is None
    (tmp_path / "changelog/changelog-2").write_text("{")
    with pytest.raises(DamagedFile, match="changelog-2"):
        changelogs.find(2)


def test_the_newest_state_of_a_branch_is_its_own_and_whole(tmp_path: Path) -> None:
    """An unfinished branch has none, and what is lost of another one is damage, not an empty branch."""
    storage, layout = LocalStorage(), TableLayout(str(tmp_path / "a b"))
    branches = BranchList(storage, layout)
    with pytest.raises(NotFound):
        branches.newest("main")
    history(tmp_path / "a b", [1, 2], latest="2")
    for name in ("begun", "own", "branch-x"):
        (tmp_path / "a b/branch" / f"branch-{name}" / "schema").mkdir(parents=True)
    assert branches.directories() == ["begun", "branch-x", "own"] and branches.newest("begun") is None
    assert branches.missing("x").hint.endswith(f"paimon-cli branches ls '{tmp_path}/a b'")
    own = tmp_path / "a b/branch/branch-own"
    fields = [{"id": 0, "name": "k", "type": "INT"}]
    for number in (0, 1):
        schema: dict[str, object] = {
            "id": number,
            "fields": fields,
            "highestFieldId": 0,
            "partitionKeys": [],
            "primaryKeys": [],
            "options": {},
        }
        (own / f"schema/schema-{number}").write_text(json.dumps({"version": 3, "timeMillis": 1, **schema}))
    newest = branches.newest("own")
    assert newest is not None and (newest[0].id, newest[1]) == (1, None)
    history(own, [7], latest="7")
    newest = branches.newest("own")
    assert newest is not None and newest[1] is not None and (newest[0].id, newest[1].id, newest[1].schema_id) == (1, 7, 0)
    (own / "schema/schema-0").unlink()
    with pytest.raises(DamagedFile, match="schema-0"):
        branches.newest("own")
    (own / "tag").mkdir()
    (own / "snapshot/snapshot-7").rename(own / "tag/tag-t")
    with pytest.raises(DamagedFile, match="branch-own are lost"):
        branches.newest("own")


def test_damaged_tags_are_raised_or_handed_over_and_stop_no_other(tmp_path: Path) -> None:
    past = history(tmp_path, [1])
    tags, content = TagHistory(past.storage, past.layout), (tmp_path / "snapshot/snapshot-1").read_bytes()
    for name in ("a", "b", "c", "d"):
        past.storage.write_new(past.layout.tag(name), content if name in "ad" else b"{")
    reads: list[Callable[[], object]] = [lambda: tags.find("b"), lambda: tags.get("b"), tags.all]
    for read in reads:
        with pytest.raises(DamagedFile, match="tag-b") as damaged:
            read()
        assert damaged.value.hint == past.layout.if_damaged
    damages: list[DamagedFile] = []
    assert list(tags.all(damages.append)) == ["a", "d"]
    assert [damage.path.rpartition("/")[2] for damage in damages if damage.path] == ["tag-b", "tag-c"]
    (tmp_path / "tag" / "tag-x").mkdir()
    past.storage.write_new(str(tmp_path / "tag/tag-x/inner"), content)
    assert tags.content("x/inner") is None is tags.content("../tag/tag-a") and tags.content("a") == content


def test_the_newest_damaged_changelogs_are_found(tmp_path: Path) -> None:
    past = history(tmp_path, [3, 4])
    (tmp_path / "changelog").mkdir()
    for number in (1, 2, 3, 4, 10):
        whole = tmp_path / f"snapshot/snapshot-{number}"
        (tmp_path / f"changelog/changelog-{number}").write_bytes(whole.read_bytes() if whole.exists() else b"{")
    changelogs = ChangelogHistory(past.storage, past.layout)

    def damaged(most: int | None) -> list[str]:
        return [str(error.path).rpartition("-")[2] for error in changelogs.damage(2, most)]

    assert [damaged(most) for most in (None, 1, 3, 4)] == [["1", "2", "10"], ["10"], ["10"], ["2", "10"]]


def test_the_newest_tag_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table("java-0.9", "branch", tmp_path)))
    for name in context.tags.names():
        Path(context.layout.tag(name)).unlink()
    for age, name in ((30, "a"), (10, "b"), (20, "c")):
        path = Path(context.layout.tag(name))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(Path(context.layout.snapshot(1)).read_bytes())
        os.utime(path, (10**9 - age, 10**9 - age))
    newest = context.tags.newest()
    assert newest is not None and newest == context.tags.get("b")
    os.utime(Path(context.layout.tag("a")), (10**9, 10**9))
    Path(context.layout.tag("a")).write_text("{")
    assert context.tags.newest() is None, "it cannot be read"
