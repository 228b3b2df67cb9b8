"""Dropping a table deletes all of the table's own files, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.errors import PartialSuccess, StorageUnavailable
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.drop_table import _in_order, drop_table, plan_table_drop
from paimon_cli.maintain.tags import create_tag
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.tables import make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "dt": "STRING NOT NULL"}

UUID = "0f0e0d0c-0b0a-0908-0706-050403020100"


def partitioned(folder: Path, **options: str) -> TableContext:
    context = make_table(folder / "t", COLUMNS, ["k", "dt"], ["dt"], options=options)
    write(context, [{"k": 1, "dt": "a"}, {"k": 2, "dt": "b c"}])
    create_tag(context, "one")
    create_branch(context, "try", "one", None)
    return context


def put(context: TableContext, *names: str) -> list[str]:
    for name in names:
        path = Path(context.url) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return [str(Path(context.url) / name) for name in names]


def drop(context: TableContext, storage: LocalStorage | None = None) -> list[str]:
    storage = storage or LocalStorage()
    plan = plan_table_drop(storage, context.layout, context.schema)
    drop_table(storage, context.layout, context.schema)
    return plan.stays


def test_nothing_is_left_of_a_table(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    put(
        context,
        "changelog/changelog-1",
        "consumer/consumer-c",
        f"commit-user/commit-{'0a' * 32}-7-{UUID}-made-5",
        "service/service-primary-key-lookup",
        "statistics/stats-1",
        "index/index-1",
        "damaged/snapshot-7",
        "tag/tag-success-file/one_SUCCESS",
        "branch/branch-try/tag/tag-success-file/one_SUCCESS",
        f"dt=z/bucket-postpone/data-{UUID}-1.parquet",
        "dt=a/bucket-0/.data-2.tmp",
        "dt=a/_SUCCESS",
        "dt=a/bucket-0/_temporary/0/part-0",
        "snapshot/.snapshot-2.0815.tmp",
        ".commit-probe-1/probe",
    )
    assert drop(context) == [] and not Path(context.url).exists()


def test_what_is_not_of_the_table_stays(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    foreign = put(
        context,
        "thesis.txt",
        "src/a.py",
        "_delta_log/0.json",
        "x=1/bucket-0/f",
        "dt=a/bucket-0/inner/schema/schema-0",
        "bucket-0/f",
        "dt=a/bucket-0/my.csv",
        "snapshot/README",
        "manifest/list.txt",
        "branch/branch-try/schema/notes.txt",
    )
    stays = drop(context)
    assert {str(path) for path in Path(context.url).rglob("*") if path.is_file()} == set(foreign)
    names = [path.removeprefix(f"{context.url}/") for path in stays]
    assert sorted(names) == [
        *("_delta_log/", "branch/branch-try/schema/notes.txt", "bucket-0/", "dt=a/bucket-0/inner/", "dt=a/bucket-0/my.csv"),
        *("manifest/list.txt", "snapshot/README", "src/", "thesis.txt", "x=1/"),
    ]


def test_data_in_a_directory_of_its_own_and_iceberg_metadata_go(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    schema = context.schema
    schema.options.update({"data-file.path-directory": "files/data", "metadata.iceberg.storage": "table-location"})
    data = f"files/data/dt=a/bucket-0/data-{UUID}-0.parquet"
    put(context, data, "metadata/v1.metadata.json", "files/other/f")
    plan = plan_table_drop(LocalStorage(), context.layout, schema)
    assert [path.removeprefix(context.url) for path in plan.stays] == ["/dt=a/", "/dt=b c/", "/files/other/"]
    assert {data, "metadata/v1.metadata.json"} <= {f.path.removeprefix(f"{context.url}/") for f in plan.files}


def test_links_go_as_links(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "f").write_text("x")
    (Path(context.url) / "manifest" / "manifest-link").symlink_to(tmp_path / "elsewhere")
    assert drop(context) == [] and (tmp_path / "elsewhere" / "f").exists()


class Stubborn(LocalStorage):
    """Refuses to delete below some directory."""

    def __init__(self, *directories: str) -> None:
        super().__init__()
        self._directories = directories

    def delete_directory(self, path: str) -> None:
        if path.endswith(self._directories):
            raise StorageUnavailable(f"the file system refused {path}", "Permission denied")
        super().delete_directory(path)


def test_files_that_cannot_be_deleted_are_reported_and_the_table_can_be_dropped_again(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    with pytest.raises(PartialSuccess, match="could not be deleted") as partial:
        drop(context, Stubborn("dt=a"))
    assert len(partial.value.details["left"]) == 2, "a data file and the schema"
    assert drop(context) == [] and not Path(context.url).exists()


def test_a_table_of_which_nothing_can_be_deleted_stays_closed_until_the_drop_is_repeated(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    with pytest.raises(StorageUnavailable, match="Permission denied") as refused:
        drop(context, Stubborn(""))
    assert "run the drop again" in refused.value.hint and context.snapshots.is_ended()
    assert drop(context) == [] and not Path(context.url).exists()


@pytest.mark.parametrize(
    ("folder", "own", "foreign"),
    [
        ("snapshot", ["snapshot-12", "LATEST", "EARLIEST", ".snapshot-1.x.tmp", "_tmp"], ["snapshot-", "snapshot-1a", "latest"]),
        ("changelog", ["changelog-12", "LATEST", "EARLIEST"], ["changelog-x", "snapshot-1", "LATEST2"]),
        ("schema", ["schema-0", "schema-12"], ["schema-", "schema-1.json", "LATEST"]),
        ("tag", ["tag-a", "tag-1"], ["tag-", "a", "LATEST"]),
        ("consumer", ["consumer-a"], ["consumer-", "a"]),
        ("removal", [f"removal-{UUID}"], ["removal-x", UUID]),
        ("commit-user", [f"commit-{'0a' * 32}-7-{UUID}-after-4", f".commit-{'0a' * 32}-7.x.tmp"], ["commit-7", UUID]),
        ("manifest", ["manifest-x", "manifest-list-x", "index-manifest-x"], ["x", "index-x", "manifest-"]),
        ("index", ["index-1", "anything"], []),
        ("statistics", ["anything"], []),
        ("service", ["anything"], []),
        ("damaged", ["snapshot-1.json"], []),
        ("branch/branch-try/snapshot", ["snapshot-3"], ["mine"]),
        ("branch/branch-try/tag", ["tag-a"], ["mine"]),
        ("branch/branch-try", [".tmp"], ["mine"]),
        ("branch", [".tmp"], ["mine"]),
        ("dt=q/bucket-0", [f"data-{UUID}-0.orc", f"x{UUID.upper()}y"], ["data-0.parquet", f"data-{UUID[:-1]}"]),
        ("dt=q/bucket--2", [f"data-{UUID}"], ["f"]),
    ],
)
def test_files_of_the_table_are_known_by_their_names(tmp_path: Path, folder: str, own: list[str], foreign: list[str]) -> None:
    context = partitioned(tmp_path)
    paths = put(context, *(f"{folder}/{name}" for name in (*own, *foreign)))
    plan = plan_table_drop(LocalStorage(), context.layout, context.schema)
    assert set(paths) & set(plan.stays) == set(paths[len(own) :])
    assert set(paths) & {file.path for file in plan.files} == set(paths[: len(own)])
    assert {file.size for file in plan.files if file.path in paths} <= {1}


@pytest.mark.parametrize(
    ("folder", "entered"),
    [
        ("branch/branch-x/schema", True),
        ("branch/x/schema", False),
        ("branch/branch-x/manifest", False),
        ("branch/branch-x/.tmp", True),
        ("tag/tag-two", False),
        ("snapshot/tag-success-file", False),
        ("dt=a/bucket-x", False),
        ("dt=a/bucket-1", True),
        ("dt=a/bucket-1.old", False),
        ("dt=a/bucket-postpone", True),
        ("dt=a/x-bucket-1", False),
        ("dt/bucket-1", False),
        ("xdt=a/bucket-1", False),
        ("dt=a/k=1/bucket-0", False),
        ("metadata", False),
        ("_hidden", False),
        (".hidden", False),
        ("snapshot/_temporary", True),
        ("snapshot/inner", False),
        ("dt=a/.inner/deep", True),
        (".commit-probe-7/deep", True),
    ],
)
def test_directories_of_the_table_are_known_by_their_names_and_places(tmp_path: Path, folder: str, entered: bool) -> None:
    context = partitioned(tmp_path)
    (path,) = put(context, f"{folder}/_f")
    plan = plan_table_drop(LocalStorage(), context.layout, context.schema)
    assert (path in {file.path for file in plan.files}) == entered
    assert (str(Path(path).parent) in plan.directories) == entered
    assert any(path.startswith(stays) for stays in plan.stays) != entered


def test_without_a_schema_no_directory_is_taken_for_one_of_data(tmp_path: Path) -> None:
    """The data is gone then: what looks like it is somebody else's."""
    context = partitioned(tmp_path)
    put(context, f"bucket-0/data-{UUID}-0.parquet", "metadata/v1.metadata.json")
    plan = plan_table_drop(LocalStorage(), context.layout, None)
    assert [path.removeprefix(context.url) for path in plan.stays] == ["/bucket-0/", "/dt=a/", "/dt=b c/", "/metadata/"]
    assert {file.kind for file in plan.files} == {"snapshot", "schema", "tag", "manifest"}


def test_iceberg_metadata_goes_only_where_paimon_keeps_it_in_the_table(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    (path,) = put(context, "metadata/v1.metadata.json")
    for kept in ("hadoop-catalog", "disabled"):
        context.schema.options["metadata.iceberg.storage"] = kept
        assert plan_table_drop(LocalStorage(), context.layout, context.schema).stays == [f"{context.url}/metadata/"]
    context.schema.options["metadata.iceberg.storage"] = "table-location"
    plan = plan_table_drop(LocalStorage(), context.layout, context.schema)
    assert plan.stays == [] and path in {file.path for file in plan.files}


def test_the_error_of_the_first_directory_is_reported_with_what_is_left(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    with pytest.raises(PartialSuccess) as partial:
        drop(context, Stubborn("manifest", "dt=a"))
    left = partial.value.details["left"]
    assert {path.removeprefix(f"{context.url}/").partition("/")[0] for path in left} == {"manifest", "dt=a", "schema"}
    assert f"{len(left)} of " in partial.value.what and partial.value.why.startswith("the file system refused")
    assert context.snapshots.ids() == [2] and context.snapshots.is_ended() and Path(context.layout.schema(0)).exists()


class Refusing(LocalStorage):
    """Refuses one call on paths with an ending."""

    def __init__(self, method: str, ending: str) -> None:
        super().__init__()
        self._refused = (method, ending)

    def _expect_other(self, method: str, path: str) -> None:
        if method == self._refused[0] and path.endswith(self._refused[1]):
            raise StorageUnavailable(f"the store refused {path}", "Permission denied")

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._expect_other("put_if_absent", path)
        return super().put_if_absent(path, data)

    def delete(self, path: str) -> None:
        self._expect_other("delete", path)
        super().delete(path)


def test_branches_have_ended_before_anything_of_them_is_deleted(tmp_path: Path) -> None:
    """Each by an end of its own; without schemas it does not exist, and no snapshot number is free while one before it is not."""
    context = partitioned(tmp_path)
    create_branch(context, "later", "one", None)
    layouts = [context.layout.of_branch(name) for name in ("later", "try")]
    with pytest.raises((PartialSuccess, StorageUnavailable)):
        drop(context, Refusing("delete", "branch-later/snapshot/snapshot-1"))
    histories = [SnapshotHistory(LocalStorage(), layout) for layout in layouts]
    assert histories[0].is_ended() and histories[0].ids() == [1, 2]
    assert [Path(layout.schema_directory).exists() for layout in layouts] == [False, True]
    with pytest.raises((PartialSuccess, StorageUnavailable)):
        drop(context, Stubborn("/branch"))
    assert all(history.is_ended() and history.ids() == [2] for history in histories)
    assert not any(Path(layout.schema_directory).exists() for layout in layouts)
    assert drop(context) == [] and not Path(context.url).exists()


def test_the_end_of_the_history_goes_after_the_schemas(tmp_path: Path) -> None:
    """In between nobody can make a table there, nor commit to the old one."""
    context = partitioned(tmp_path)
    with pytest.raises(StorageUnavailable):
        drop(context, Stubborn("/t/schema"))
    assert context.snapshots.is_ended() and {path.name for path in Path(context.url).iterdir()} == {"schema", "snapshot"}
    assert drop(context) == [] and not Path(context.url).exists()


def test_a_drop_that_could_delete_nothing_is_no_success_in_part(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k", "dt"], ["dt"])
    write(context, [{"k": 1, "dt": "a"}])
    with pytest.raises(StorageUnavailable, match="the file system refused"):
        drop(context, Stubborn(""))


def test_versions_go_before_what_they_name(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    put(context, "changelog/changelog-1", "index/index-1", "consumer/consumer-a")
    plan = plan_table_drop(LocalStorage(), context.layout, context.schema)
    names = [path.rpartition("/")[2] for path in _in_order(context.layout, plan)]
    assert names[:4] == ["branch", "tag", "changelog", "snapshot"]
    assert sorted(names[4:]) == ["consumer", "dt=a", "dt=b c", "index", "manifest", "schema"]


def test_beside_a_foreign_file_no_empty_directory_is_left(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    create_branch(context, "later", "one", None)
    foreign = put(context, "branch/notes", "dt=a/bucket-0/my.csv")
    put(context, f"dt=a/bucket-1/data-{UUID}", "dt=a/bucket-2/.tmp/deep/f")
    drop(context)
    left = {path for path in Path(context.url).rglob("*") if path.is_dir()}
    assert left == {parent for path in foreign for parent in Path(path).parents if parent.is_relative_to(context.url)} - {
        Path(context.url)
    }


def test_files_outside_go_once_the_history_has_ended(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    outside = tmp_path / "outside"
    outside.write_text("x")
    with pytest.raises(StorageUnavailable):
        drop_table(Refusing("put_if_absent", ""), context.layout, context.schema, elsewhere=[str(outside)])
    assert outside.exists() and not context.snapshots.is_ended()
    drop_table(LocalStorage(), context.layout, context.schema, elsewhere=[str(outside)])
    assert not outside.exists() and not Path(context.url).exists()


class Writing(LocalStorage):
    """Another job writes a data file after each of the first deletions of a directory."""

    def __init__(self, directory: Path, times: int) -> None:
        super().__init__()
        self._directory, self.left = directory, times

    def delete_directory(self, path: str) -> None:
        super().delete_directory(path)
        if self.left and path == str(self._directory.parent):
            self.left -= 1
            self._directory.mkdir(parents=True)
            (self._directory / f"data-{UUID}-{self.left}.parquet").write_text("x")


@pytest.mark.parametrize("times", [1, 3, 5])
def test_files_that_appear_meanwhile_go_in_a_few_rounds_and_the_schema_stays_as_long(tmp_path: Path, times: int) -> None:
    context = partitioned(tmp_path)
    storage = Writing(Path(context.url) / "dt=a/bucket-0", times)
    if times < 5:
        assert drop(context, storage) == [] and storage.left == 0
        assert not Path(context.url).exists()
        return
    with pytest.raises(PartialSuccess, match=r"2 files of .* appeared while it was dropped") as partial:
        drop(context, storage)
    left = [path.removeprefix(f"{context.url}/") for path in partial.value.details["left"]]
    assert sorted(left) == [f"dt=a/bucket-0/data-{UUID}-0.parquet", "schema/schema-0"]
    assert context.snapshots.is_ended() and drop(context) == []


def test_what_another_drop_has_finished_is_left_alone(tmp_path: Path) -> None:
    """Its place may have a new table by then."""
    context = partitioned(tmp_path)

    class Rival(LocalStorage):
        def delete_directory(self, path: str) -> None:
            if path.endswith("/manifest") and Path(context.layout.schema_directory).exists():
                drop_table(LocalStorage(), context.layout, context.schema)
                write(make_table(Path(context.url), COLUMNS, ["k", "dt"], ["dt"]), [{"k": 7, "dt": "new"}])
                return
            super().delete_directory(path)

    drop_table(Rival(), context.layout, context.schema)
    assert rows(TableContext.open(context.url)) == [{"k": 7, "dt": "new"}]
