"""Names of partition directories that another engine has changed: what was, where a file is, and what mends it."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

from paimon_cli import Table
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.moved_partitions import FileElsewhere, PastNames, has_other_names, moved_file
from paimon_cli.history.table_context import TableContext
from paimon_cli.options.table_options import NAMES_OF_PARTITIONS

DEFAULT = "__DEFAULT_PARTITION__"
DEFAULT_NAME, LEGACY = NAMES_OF_PARTITIONS
COLUMNS = ["k INT", "p STRING", "d DATE"]


def with_schemas(folder: Path, *named: tuple[str | None, str | None], columns: list[str] = COLUMNS, keys: str = "p, d") -> Table:
    """A table whose schemas have these options, as Java's ALTER TABLE leaves them."""
    first, *others = [
        {key: value for key, value in zip(NAMES_OF_PARTITIONS, each, strict=True) if value is not None} for each in named
    ]
    made = Table.create(str(folder), columns=columns, partition_by=keys, options=first)
    add_schemas(folder / "schema", *others)
    return made


def add_schemas(directory: Path, *options: dict[str, str]) -> None:
    schema = json.loads((directory / "schema-0").read_text())
    for each in options:
        number = len(list(directory.iterdir()))
        (directory / f"schema-{number}").write_text(json.dumps(schema | {"id": number, "options": each}))


def test_past_names_are_those_of_all_schemas_of_a_branch_the_newest_first(tmp_path: Path) -> None:
    made = with_schemas(tmp_path / "t", ("a", None), ("b", "false"), (None, "false"), ("a", "TRUE"), ("c", None))
    context = TableContext.open(made.url)
    names = (("c", "true"), ("a", "true"), (DEFAULT, "false"), ("b", "false"))
    assert PastNames.of(context).names == names and PastNames.of(context).count == {DEFAULT_NAME, LEGACY}
    assert PastNames.known(context).others(context) == [*names[1:], (DEFAULT, "true")], "no schema has had the defaults"
    assert PastNames.known(context).others(context.with_options({DEFAULT_NAME: "a"})) == [
        *(names[0], *names[2:]),
        (DEFAULT, "true"),
    ]
    made.branches.create("b")
    add_schemas(tmp_path / "t" / "branch" / "branch-b" / "schema", {DEFAULT_NAME: "of b"})
    branch = context.seen_from("b")
    assert PastNames.known(branch).names[0] == ("of b", "true") and PastNames.known(context).names == names
    assert PastNames.known(branch) is PastNames.known(branch)


def test_an_option_counts_if_a_column_depends_on_it_or_a_schema_cannot_be_read(tmp_path: Path) -> None:
    cases = {"p INT NOT NULL": set[str](), "p INT": {DEFAULT_NAME}, "p DATE NOT NULL": {LEGACY}}
    for number, (column, count) in enumerate(cases.items()):
        made = with_schemas(tmp_path / str(number), ("a", "false"), (None, None), columns=["k INT", column], keys="p")
        context = TableContext.open(made.url)
        assert PastNames.of(context).count == count, column
        assert has_other_names(context) == bool(count)
    two = with_schemas(tmp_path / "two", (None, None), columns=["k INT", "p INT NOT NULL", "q DATE NOT NULL"], keys="p, q")
    assert PastNames.of(TableContext.open(two.url)).count == {LEGACY}
    context = TableContext.open(str(tmp_path / "0"))
    schemas = tmp_path / "0" / "schema"
    (schemas / "schema-2").write_text((schemas / "schema-1").read_text().replace('"id": 1', '"id": 2'))
    (schemas / "schema-1").write_text("{")
    past = PastNames.of(context.reopened())
    assert past.names == ((DEFAULT, "true"), ("a", "false")) and past.count == {DEFAULT_NAME, LEGACY}


def test_a_moved_file_is_found_by_the_names_of_any_schema_with_the_command_that_mends_it(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "t"), columns=COLUMNS, partition_by="p, d", options={DEFAULT_NAME: "z z"})
    made.write([{"k": 1, "p": None, "d": date(2026, 1, 5)}])
    (stored,) = (tmp_path / "t").rglob("data-*")
    add_schemas(tmp_path / "t" / "schema", {DEFAULT_NAME: "b", LEGACY: "false"}, {DEFAULT_NAME: "yy", LEGACY: "false"})

    def found(given: dict[str, str], *, told: bool = False) -> FileElsewhere | None:
        context = TableContext.open(made.url, given)
        latest = context.snapshots.latest()
        assert latest is not None
        (entry,) = context.manifests.live_entries(latest)
        path = context.data_file_path(entry.partition, entry.bucket, entry.file)
        assert moved_file(context, f"{made.url}/p=none/d=none/bucket-0/f") is None
        assert moved_file(context, f"{tmp_path}/p=z z/d=20458/bucket-0/f") is None
        return moved_file(context, path, entry.partition if told else None)

    both = f"{DEFAULT_NAME} and {LEGACY}"
    command = f"paimon-cli alter {made.url} set '{DEFAULT_NAME}=z z' {LEGACY}=true"
    why = f"{both} of the table was changed while it had rows: the file is in p=z z/d=20458"
    expected = FileElsewhere(why, f"set the value with which it was written: {command}", command)
    assert found({}) == found({}, told=True) == found({DEFAULT_NAME: "q"}) == expected
    add_schemas(tmp_path / "t" / "schema", {DEFAULT_NAME: "z z"})
    why = f"{both} of this call names other directories than the table: the file is in p=z z/d=20458"
    leave_out = f"leave out --option {DEFAULT_NAME} and --option {LEGACY}"
    assert found({DEFAULT_NAME: "q", LEGACY: "false"}) == FileElsewhere(why, leave_out) and found({}) is None
    made.write([{"k": 2, "p": "x", "d": date(2026, 1, 5)}])
    add_schemas(tmp_path / "t" / "schema", {DEFAULT_NAME: "yy"})
    stored.rename(stored.with_name("gone"))
    context = TableContext.open(made.url)
    (bucket,) = [each for each in bucket_files(context, context.snapshots.get(1)) if each.bucket == 0]
    path = str(stored).replace("z z", "yy")
    assert moved_file(context, path, bucket.partition) is None, "the directory is there, but not the file"
    stored.with_name("gone").rename(stored)
    assert moved_file(context, path, bucket.partition) is not None


def test_no_command_mends_what_no_value_is_right_for(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "t"), columns=COLUMNS, partition_by="p, d")
    made.write([{"k": 1, "p": None, "d": None}])
    add_schemas(tmp_path / "t" / "schema", {DEFAULT_NAME: "yy"})
    Table.open(made.url).write([{"k": 2, "p": None, "d": date(2026, 1, 5)}])
    context = TableContext.open(made.url)
    latest = context.snapshots.latest()
    assert latest is not None
    paths = [context.data_file_path(e.partition, e.bucket, e.file) for e in context.manifests.live_entries(latest)]
    (found,) = [each for path in paths if not Path(path).exists() and (each := moved_file(context, path))]
    way = f"move those of p={DEFAULT}/d={DEFAULT} to p=yy/d=yy, or read a snapshot before the change"
    assert found.hint == f"no value is right for all files: {way} with --option {DEFAULT_NAME}={DEFAULT}"
    assert found.command == ""
