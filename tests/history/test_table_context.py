"""Opening tables: what a phase gets, what is refused, and what travels to a Spark task."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import AddColumn, RenameColumn, SetOption
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import DamagedFile, NotFound, NotSupported, Refused
from paimon_cli.history import table_context
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import FileFilter
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.injected import NoTrace, StepTrace, SystemClock, SystemRandom
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus
from tests import tables
from tests.commit.commit_tables import SteppingClock, data_file, make_table, partition
from tests.goldens import golden_table


def test_a_path_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no table at"):
        TableContext.open(str(tmp_path))
    with pytest.raises(NotFound):
        TableContext.open(str(tmp_path / "missing"))


def test_dynamic_options_override_those_of_the_schema(tmp_path: Path) -> None:
    make_table(tmp_path, {"commit.max-retries": "3"})
    assert TableContext.open(str(tmp_path)).options.commit_max_retries == 3
    context = TableContext.open(f"{tmp_path}/", {"commit.max-retries": "4"})
    assert context.options.commit_max_retries == 4 and context.url == str(tmp_path)
    assert context.schema.options["commit.max-retries"] == "3"


@pytest.mark.parametrize(
    "option",
    [
        ("chain-table.enabled", "true"),
        ("query-auth.enabled", "true"),
        ("index-file-in-data-file-dir", "true"),
        ("pk-vector.index.columns", "v"),
        ("blob-field", "v"),
        ("vector-field", "v"),
        ("type", "format-table"),
        ("branch", "b1"),
        ("manifest.format", "orc"),
    ],
)
def test_options_that_change_the_meaning_of_files_are_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    with pytest.raises(NotSupported) as failure:
        make_table(tmp_path, dict([option]))
    assert f"{option[0]}={option[1]}" in failure.value.what and failure.value.exit_code == 8


def test_options_that_are_off_do_no_harm(tmp_path: Path) -> None:
    options = {
        "row-tracking.enabled": "false",
        "type": "TABLE",
        "branch": "main",
        "bucket-function.type": "default",
        "fields.v.map.storage-layout": "default",
    }
    assert make_table(tmp_path, options).options.bucket == 2


def test_a_context_travels(tmp_path: Path) -> None:
    context = make_table(tmp_path, partitioned=True)
    assert context.partition_path_of(partition("a/b")) == "dt=a%2Fb/"
    assert context.schemas.latest() and context.snapshots.latest() is None
    there = pickle.loads(pickle.dumps(context))
    assert (there.url, there.schema, there.options.raw) == (context.url, context.schema, context.options.raw)
    assert there.data_file_path(partition("x"), 3, data_file("f")) == f"{tmp_path}/dt=x/bucket-3/f"
    assert there.snapshots.latest() is None


def test_keys_and_partitions_are_decoded(tmp_path: Path) -> None:
    context = make_table(tmp_path, partitioned=True)
    assert context.partition_values(partition("2024-01-01")) == ("2024-01-01",)
    assert context.key_of(serialize_row([-3], [parse_type("INT NOT NULL")])) == (-3,)
    assert context.partition_types == (parse_type("STRING NOT NULL"),)
    for damaged in (b"", b"\0\0\0\x01", partition("x")[:-1]):
        with pytest.raises(DamagedFile, match="damaged partition"):
            context.partition_values(damaged)


def test_a_file_outside_of_the_table_is_refused(tmp_path: Path) -> None:
    context = make_table(tmp_path)
    with pytest.raises(Refused, match="outside of the table"):
        context.data_file_path(b"", 0, data_file("f", external_path="/elsewhere/f"))


def test_buckets_of_a_real_table_with_their_vectors(tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table("java-0.9", "dv_partitioned", tmp_path)))
    latest = context.snapshots.latest()
    assert latest is not None
    buckets = bucket_files(context, latest)
    assert sum(file.row_count for bucket in buckets.values() for file in bucket.files) == latest.total_record_count
    indexes = {index.file_name for bucket in buckets.values() for index in bucket.index_files}
    assert indexes and indexes <= {e.index_file.file_name for e in context.manifests.index_entries(latest)}
    one = next(iter(buckets))
    assert set(bucket_files(context, latest, FileFilter(lambda p: p == one[0], [one[1]]))) == {one}
    assert bucket_files(context, latest, FileFilter(buckets=[99])) == {}
    assert bucket_files(context, None) == {}


def test_a_table_whose_snapshots_are_lost_does_not_look_empty(tmp_path: Path) -> None:
    context = tables.make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1)
    assert context.snapshot() is None
    for number in range(2):
        tables.write(context, [{"n": number}])
    for path in (tmp_path / "t" / "snapshot").glob("snapshot-*"):
        path.unlink()
    with pytest.raises(DamagedFile, match=r"the snapshot files of .* are lost"):
        TableContext.open(context.url).snapshot()


def test_at_schema_changes_the_columns_and_keeps_the_options(tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table("java-0.9", "schema_evolution", tmp_path)), {"commit.max-retries": "1"})
    first = context.at_schema(0)
    assert first.schema.id == 0 and first.schema.field_names != context.schema.field_names
    assert first.options.commit_max_retries == 1
    assert context.at_schema(context.schema.id) is context


@pytest.mark.parametrize("module", ["history.table_context", "history.tags_and_branches", "history.manifest_reader"])
def test_metadata_alone_loads_no_arrow_and_no_avro(module: str) -> None:
    heavy = "{'pyarrow', 'fastavro', 'fsspec', 'numpy'}"
    code = f"import sys, paimon_cli.{module}; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_options_follow_the_names_that_columns_had(tmp_path: Path) -> None:
    """A column that orders or aggregates rows was renamed since: the past is merged by the same rules."""
    options = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "sequence.field": "s", "write-only": "true"}
    path = tmp_path / "t"
    context = tables.make_table(path, {"k": "INT NOT NULL", "s": "INT", "a": "INT", "b": "STRING"}, ["k"], options=options)
    tables.write(context, [{"k": 1, "s": 2, "a": 1, "b": "newer"}])
    tables.write(context, [{"k": 1, "s": 1, "a": 2, "b": "older"}])
    before = tables.rows(context)
    table = open_table(TableLocation(str(path), str(path)), {})
    alter_table(table, [RenameColumn(("s",), "moment"), RenameColumn(("a",), "s"), AddColumn(("c",), parse_type("INT"))])
    alter_table(table, [SetOption("sequence.field", "moment,c")])
    now = TableContext.open(str(path))
    assert tables.rows(now) == [{"k": 1, "moment": 2, "s": 3, "b": "newer", "c": None}]
    assert tables.rows(now.at_schema(0)) == before == [{"k": 1, "s": 2, "a": 3, "b": "newer"}]
    assert now.at_schema(0).options.raw["sequence.field"] == "s"


def test_a_branch_is_seen_with_its_own_schema_and_history_and_these_options(tmp_path: Path) -> None:
    main = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
    tables.write(main, [{"k": 1, "v": "main"}])
    main = TableContext.open(main.url, {"commit.max-retries": "77"})
    create_branch(main, "b", snapshot_id=1)
    branch = main.at_branch("b")
    changed = replace(branch.schema, id=1, comment="of the branch")
    assert branch.schemas.commit(changed) and main.schemas.ids() == [0] and branch.schemas.ids() == [0, 1]
    branch = main.at_branch("b")
    assert (branch.branch, branch.schema, branch.options) == ("b", changed, main.options)
    assert branch.address == f"{main.url}$branch_b" and main.address == main.url
    assert branch.layout.snapshot(1) == f"{main.url}/branch/branch-b/snapshot/snapshot-1"
    assert branch.at_branch("b") is branch and branch.at_branch("main") == main and main.at_branch("main") is main
    seen = main.seen_from("b")
    assert (seen.branch, seen.schema, seen.snapshots.ids()) == ("b", main.schema, [1])
    tables.write(branch, [{"k": 2, "v": "branch"}])
    assert seen.snapshots.latest_id() == 2 and main.snapshots.latest_id() == 1
    opened = TableContext.open(main.url, branch="b")
    assert (opened.branch, opened.schema, opened.read_threads) == ("b", changed, 8)


def test_a_context_is_opened_with_what_it_is_given(tmp_path: Path) -> None:
    context = make_table(tmp_path)
    clock, random, trace, storage = SteppingClock(), SystemRandom(), StepTrace(SteppingClock()), LocalStorage()
    older = replace(context.schema, id=7, options={"bucket": "5"})
    opened = TableContext.open(f"{tmp_path}//", storage=storage, clock=clock, random=random, schema=older, trace=trace)
    assert (opened.storage, opened.clock, opened.random, opened.trace) == (storage, clock, random, trace)
    assert (opened.url, opened.schema, opened.options.bucket) == (str(tmp_path), older, 5)
    plain = TableContext.open(str(tmp_path))
    assert isinstance(plain.clock, SystemClock) and isinstance(plain.random, SystemRandom) and isinstance(plain.trace, NoTrace)
    assert isinstance(plain.storage, ConfinedStorage) and plain.branch == "main"


def test_a_store_is_opened_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors name the path of the table, too; a storage that is passed is used as it is."""
    make_table(tmp_path)
    asked = []

    def store(url: str, options: dict[str, str] | None = None, *, confined: bool = False) -> tuple[LocalStorage, str]:
        asked.append((url, options, confined))
        return LocalStorage(), str(tmp_path)

    monkeypatch.setattr(table_context, "storage_for_url", store)
    opened = TableContext.open("s3://shop/orders/", None, {"s3.region": "eu"})
    assert opened.url == str(tmp_path) and asked == [("s3://shop/orders/", {"s3.region": "eu"}, True)]
    assert TableContext.open(f"{tmp_path}/", storage=opened.storage).url == str(tmp_path) and len(asked) == 1


@pytest.mark.parametrize(
    ("given", "directory"),
    [(None, ""), ("", ""), ("/", ""), ("data", "data/"), ("/data/", "data/"), ("//a/b//", "a/b/"), (" x ", " x /")],
)
def test_where_files_are(tmp_path: Path, given: str | None, directory: str) -> None:
    context = make_table(tmp_path / "t", partitioned=True)
    if given is not None:
        context = context.with_options({"data-file.path-directory": given})
    day = partition("2024-01-01")
    assert context.bucket_directory(day, 3) == f"{context.url}/{directory}dt=2024-01-01/bucket-3"
    assert context.data_file_path_of(day, 3, "f") == f"{context.url}/{directory}dt=2024-01-01/bucket-3/f"
    assert context.data_file_path(day, -2, data_file("g")) == f"{context.url}/{directory}dt=2024-01-01/bucket-postpone/g"
    assert context.bucket_path(day, 3) == "dt=2024-01-01/bucket-3"


def test_a_history_is_found_below_the_root_and_on_the_branch(tmp_path: Path) -> None:
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    tables.write(context, [{"k": 1}])
    create_tag(context, "one", 1)
    create_branch(context, "b", tag="one")
    for seen in (context, context.at_branch("b")):
        assert (seen.snapshots.ids(), seen.schemas.ids(), seen.tags.names(), seen.branches.names()) == ([1], [0], ["one"], ["b"])
        assert len(seen.manifests.live_entries(seen.snapshots.get(1))) == 1 and seen.manifests.threads == 8
        assert seen.layout.argument and seen.tags.layout == seen.layout == seen.snapshots.layout
    assert replace(context, read_threads=3).manifests.threads == 3


def test_opening_a_table_lists_its_schemas_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    tables.make_table(path, {"k": "INT NOT NULL"}, ["k"])
    listed: list[str] = []
    real = LocalStorage.list_directory

    def list_directory(self: LocalStorage, path: str) -> list[FileStatus]:
        listed.append(path)
        return real(self, path)

    monkeypatch.setattr(LocalStorage, "list_directory", list_directory)
    table = open_table(TableLocation(str(path), str(path)), {})
    assert table.schema.id == 0 and listed == [f"{path}/schema"]
    late = open_table(TableLocation(str(path), str(path)), {})
    alter_table(table, [AddColumn(("c",), parse_type("INT"))])
    assert late.schema.id == 1
