"""What the views of an opened table share, and what they do not."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import AddColumn
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import NotSupported
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.maintain.branches import create_branch
from paimon_cli.storage.local_storage import LocalStorage
from tests import tables


class Counting(LocalStorage):
    """A storage that counts how often each file is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    def read_bytes(self, path: str) -> bytes:
        self.read[path.rsplit("/", 1)[-1]] += 1
        return super().read_bytes(path)


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    """A table with one commit before and one after a change of its columns."""
    made = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
    tables.write(made, [{"k": 1, "v": "a"}])
    create_branch(made, "b", snapshot_id=1)
    alter_table(made, [AddColumn(("w",), parse_type("INT"))])
    tables.write(TableContext.open(made.url), [{"k": 2, "v": "b", "w": 3}])
    return TableContext(TablePlace(made.url, "t"), Counting())


def reads(context: TableContext) -> Counter[str]:
    assert isinstance(context.storage, Counting)
    return context.storage.read


def test_the_schema_is_read_when_it_is_needed_and_then_stays(context: TableContext) -> None:
    assert context.snapshots.latest_id() == 2 and not [name for name in reads(context) if name.startswith("schema")]
    views = (context, context.with_options({"bucket": "7"}), context.with_level_0(), replace(context, read_threads=1))
    assert {view.schema.id for view in views} == {1} and reads(context)["schema-1"] == 1
    alter_table(TableContext.open(context.url), [AddColumn(("x",), parse_type("INT"))])
    assert {view.schema.id for view in views} == {1} and context.with_options({}).schema.id == 1
    assert context.reopened().schema.id == 2 and context.schemas.latest().id == 2


def test_views_share_what_was_read(context: TableContext) -> None:
    latest = context.snapshots.latest()
    assert latest is not None
    for view in (context, context.at_schema(0), context.at_schema(0).at_schema(1), context.with_buckets(3), context):
        assert view.snapshots.seen() == latest and view.cache is context.cache
        assert view.manifests is context.manifests and view.manifest_cache is context.manifest_cache
        assert view.schemas.named(0).id == 0
    assert (reads(context)["schema-0"], reads(context)["schema-1"]) == (1, 1)
    assert context.at_schema(0).partition_path_of(b"\0" * 8) == context.partition_path_of(b"\0" * 8) == ""


def test_a_branch_has_histories_of_its_own_and_is_read_once(context: TableContext) -> None:
    branch = context.at_branch("b")
    assert (branch.snapshots.latest_id(), branch.schema.id, context.schema.id) == (1, 0, 1)
    assert branch.at_branch("main").snapshots is context.snapshots and context.seen_from("b").schemas is branch.schemas
    assert branch.snapshots.seen() is None, "nothing but its id was read"


def test_a_view_on_another_storage_sees_what_that_has(context: TableContext) -> None:
    assert context.schema.id == 1 and context.snapshots.latest() is not None
    other = replace(context, storage=Counting())
    assert other.snapshots.seen() is None and other.schemas.known == {}
    assert other.schema.id == 1 and reads(other)["schema-1"] == 1 == reads(context)["schema-1"]


def test_tasks_get_the_schemas_and_no_other_part_of_the_cache(context: TableContext) -> None:
    assert context.snapshots.latest() is not None and context.at_schema(0).schema.id == 0
    carried = pickle.loads(pickle.dumps(replace(context, storage=LocalStorage())))
    assert carried.snapshots.seen() is None and carried.schema == context.schema
    again = pickle.loads(pickle.dumps(context))
    assert again.snapshots.seen() is None and again.cache is not context.cache
    assert set(again.schemas.known) == {0, 1} and again.at_schema(0).schema.id == 0 and reads(again)["schema-0"] == 1


def test_tasks_do_not_get_the_catalog(tmp_path: Path) -> None:
    made = tables.make_table(tmp_path / "db.db" / "t", {"k": "INT NOT NULL"}, ["k"])
    place = locate_table("db.t", str(tmp_path), {"s3.secret-key": "HUNTER2"})
    context = open_table(place)
    assert context.place == replace(place, url=made.url) and context.name == "db.t"
    content = pickle.dumps(context.place)
    carried = pickle.loads(content)
    assert type(carried) is TablePlace and (carried.url, carried.name) == (made.url, "db.t")
    assert b"HUNTER2" not in content and carried.storage_options == {}


def test_an_option_that_is_not_understood_stops_what_needs_the_schema(tmp_path: Path) -> None:
    made = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    context = open_table(locate_table(made.url), {"manifest.format": "orc"})
    assert context.snapshots.ids() == [] and context.schemas.latest().id == 0
    with pytest.raises(NotSupported, match=r"manifest\.format=orc"):
        context.schema  # noqa: B018
    with pytest.raises(NotSupported, match=r"manifest\.format=orc"):
        context.check("scan")


def test_views_with_another_name_for_null_have_paths_of_their_own(tmp_path: Path) -> None:
    context = tables.make_table(tmp_path / "t", {"p": "STRING", "n": "INT"}, [], ["p"], bucket=-1)
    tables.write(context, [{"p": None, "n": 1}])
    ((null, _),) = bucket_files(context, context.snapshots.latest())
    other = context.with_options({"partition.default-name": "nothing"})
    assert (context.partition_path_of(null), other.partition_path_of(null)) == ("p=__DEFAULT_PARTITION__/", "p=nothing/")
    assert context.partition_path_of(null) == "p=__DEFAULT_PARTITION__/"


def test_a_view_at_an_older_schema_has_its_deletion_vectors(tmp_path: Path) -> None:
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    Table.open(context.url).alter.set({"deletion-vectors.enabled": "true", "read.batch-size": "7"})
    context = TableContext.open(context.url)
    older = context.at_schema(0)
    assert context.options.deletion_vectors_enabled and not older.options.deletion_vectors_enabled
    assert older.options.raw["read.batch-size"] == "7"
    asked = TableContext.open(context.url, {"deletion-vectors.enabled": "false"})
    assert not asked.at_schema(0).options.deletion_vectors_enabled
