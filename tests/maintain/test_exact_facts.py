"""Exact values at the edges of the clean-ups: times of partitions, sizes of files to delete, plans, listings."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from paimon_cli.errors import NotFound, Refused, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch, fast_forward, files_removed_by_fast_forward, plan_fast_forward
from paimon_cli.maintain.expire_partitions import PartitionTime, plan_partitions
from paimon_cli.maintain.expire_snapshots import ExpirySummary, expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.named_files import FileToDelete, data_files_to_delete, total_size
from paimon_cli.maintain.orphan_origin import OrphanedCommit
from paimon_cli.maintain.orphans import find_orphans
from paimon_cli.maintain.retention import Consumer, consumers, oldest_consumed
from paimon_cli.maintain.rollback import files_removed_by_rollback, plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag, plan_removal, remove_tags, snapshot_and_holder
from paimon_cli.metadata.data_file import EMPTY_ROW, EntryKind, ManifestEntry
from tests.commit import commit_tables
from tests.commit.commit_tables import data_file
from tests.maintain.plain_files import kind_of, needed, on_disk
from tests.maintain.test_tags import KEEP_ONE, table_of_five
from tests.tables import make_table, rows, write


def millis(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=timezone.utc).timestamp() * 1000)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("formatter", "text", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-03-05 06:07:08.009", millis(2024, 3, 5, 6, 7, 8) + 9),
        ("uuuuMMddHHmmss", "20240305060708", millis(2024, 3, 5, 6, 7, 8)),
        ("dd/MM/yyyy", "05/03/2024", millis(2024, 3, 5)),
        ("d.M.yyyy H:m:s", "5.3.2024 6:7:8", millis(2024, 3, 5, 6, 7, 8)),
        ("d.M.yyyy H:m:s", "15.12.2024 16:17:18", millis(2024, 12, 15, 16, 17, 18)),
        ("yyyy'y'MM''dd", "2024y03'05", millis(2024, 3, 5)),
        ("yyyyMMdd S", "20240305 7", millis(2024, 3, 5) + 700),
        ("yyyyMMdd SSSS", "20240305 1239", millis(2024, 3, 5) + 123),
        ("yyyyMMdd", "20241301", None),
        ("yyyyMMdd", "20240001", None),
        ("yyyyMMdd", "20241231", millis(2024, 12, 31)),
        ("yyyyMMdd", "20240132", None),
        ("yyyyMMdd", "20240100", None),
        ("yyyyMMdd", "20240231", millis(2024, 3, 2)),
        ("yyyyMM", "202401", None),
        ("yyMMdd", "240305", millis(2024, 3, 5)),
        ("dd.MM.uu", "05.03.99", millis(2099, 3, 5)),
        ("yyMMdd", "20240305", None),
        ("y-M-d", "2024-3-5", millis(2024, 3, 5)),
        ("yMMdd", "20240305", millis(2024, 3, 5)),
        ("u/M/d", "99/3/5", millis(99, 3, 5)),
        ("yyy-MM-dd", "2024-03-05", millis(2024, 3, 5)),
        ("yyy-MM-dd", "24-03-05", None),
        ("yyyyy-MM-dd", "02024-03-05", millis(2024, 3, 5)),
        ("yyyyy-MM-dd", "2024-03-05", None),
        ("MMdd", "0101", None),
        (None, "2024-03-05 06:07:08.0091", millis(2024, 3, 5, 6, 7, 8) + 9),
        (None, "2024-3-5 6:7:8", millis(2024, 3, 5, 6, 7, 8)),
        (None, "2024-03-05 24:00:00", millis(2024, 3, 6)),
        (None, "2024-13-01", millis(2025, 1, 1)),
        (None, "2024-12-31", millis(2024, 12, 31)),
        (None, "2024-03-05 06:07", None),
        (None, "20240305", None),
    ],
)
def test_times_of_partitions(formatter: str | None, text: str, expected: int | None) -> None:
    assert PartitionTime(None, formatter).millis(["a", "b"], [text, "x"]) == expected
    assert PartitionTime("$b", formatter).millis(["a", "b"], ["x", text]) == expected
    assert PartitionTime("$b", formatter).millis(["a", "b"], [None, text]) is None


def test_patterns_take_the_longest_key() -> None:
    assert PartitionTime("$y-$y1-$y12").millis(["y", "y1", "y12"], ["2024", "02", "03"]) == millis(2024, 2, 3)
    for formatter in ("yyyyMMdd z", "yyyy yyyy", "yyyyuu", "yy yyyy", "uu yy", "MM M"):
        with pytest.raises(UsageError, match="is not understood"):
            PartitionTime(None, formatter).millis(["a"], ["x"])


def test_partitions_by_timestamps(tmp_path: Path) -> None:
    columns = {"t": "TIMESTAMP(3) NOT NULL", "k": "INT NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["t", "k"], ["t"])
    times = ["2024-03-05T06:07:08.009", "2025-01-01T00:00:00", "2024-01-01T12:30:00"]
    for time in times:
        write(context, [{"t": time, "k": 1}, {"t": time, "k": 2}])
    found = plan_partitions(context, millis(2024, 12, 1)).expired
    expected = [millis(2024, 1, 1, 12, 30), millis(2024, 3, 5, 6, 7, 8) + 9]
    assert [(one.time_millis, one.files, one.rows) for one in found] == [(time, 1, 2) for time in expected]
    assert len(plan_partitions(context, millis(2024, 12, 1), 1).expired) == 1
    sizes = {file.stat().st_size for file in (tmp_path / "t").glob("t=*/bucket-0/*")}
    assert {one.size for one in found} <= sizes


def test_data_files_to_delete(tmp_path: Path) -> None:
    context = commit_tables.make_table(tmp_path)
    file = replace(data_file("a", extra_files=("a.x", "b")), file_size=77)
    entry = ManifestEntry(EntryKind.ADD, EMPTY_ROW, 1, 2, file)
    base = f"{context.url}/bucket-1"
    files = list(data_files_to_delete(context, entry, "kind"))
    assert files == [
        FileToDelete(f"{base}/a", "kind", 77),
        FileToDelete(f"{base}/a.x", "index"),
        FileToDelete(f"{base}/b", "index"),
    ]
    assert total_size([*files, FileToDelete("x", "y", 3)]) == 80
    with pytest.raises(Refused, match="s3://x/a"):
        list(data_files_to_delete(context, replace(entry, file=replace(file, external_path="s3://x/a")), "kind"))


def test_defaults_report_that_nothing_was_done() -> None:
    summary = ExpirySummary()
    assert (summary.snapshots, summary.data_files, summary.metadata_files, summary.size) == ((), 0, 0, 0)
    lost = OrphanedCommit("u")
    assert (lost.modified_millis, lost.added, lost.snapshot) == (0, [], None)


def test_every_consumer_counts(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    assert consumers(context) == [] and oldest_consumed(context) is None
    folder = Path(context.layout.consumer_directory)
    (folder / "consumer-directory").mkdir(parents=True)
    for name, number in (("b", 4), ("a", 5), ("c", 3)):
        (folder / f"consumer-{name}").write_text(f'{{"nextSnapshot": {number}}}')
    (folder / "other").write_text("x")
    times = {name: int((folder / f"consumer-{name}").stat().st_mtime * 1000) for name in "abc"}
    found = consumers(context)
    assert [(one.name, one.next_snapshot) for one in found] == [("a", 5), ("b", 4), ("c", 3)]
    assert all(isinstance(one, Consumer) and abs(one.modified_millis - times[one.name]) <= 1 for one in found)
    assert oldest_consumed(context) == 3


def test_only_cut_off_writes_are_temporary(tmp_path: Path) -> None:
    """Except in the directory of snapshots, which has no other files."""
    context = table_of_five(tmp_path)
    layout, names = context.layout, [".snapshot-9.ab.tmp", ".keep", "x.tmp"]
    for directory in (layout.snapshot_directory, layout.schema_directory, layout.tag_directory, layout.consumer_directory):
        Path(directory).mkdir(exist_ok=True)
        for name in names:
            (Path(directory) / name).write_text("")
    found = {str(Path(file.path).relative_to(context.url)): origin for file, origin in orphans_with_origins(context)}
    expected = [f"snapshot/{name}" for name in names] + [f"{place}/{names[0]}" for place in ("schema", "tag", "consumer")]
    assert found == dict.fromkeys(expected, "temporary file of an interrupted write")


def test_a_snapshot_that_never_existed_has_no_holder(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "two", 2)
    with pytest.raises(NotFound, match="9"):
        create_tag(context, "nine", 9)
    Path(context.layout.snapshot(2)).unlink()
    assert snapshot_and_holder(context, 2)[1] == context.layout.tag("two")
    assert snapshot_and_holder(context, None)[1] == context.layout.snapshot(5)


def orphans_with_origins(context: TableContext) -> list[tuple[FileToDelete, str]]:
    from paimon_cli.maintain.orphan_origin import origins

    orphans = find_orphans(context, 1 << 60, force=True)
    texts = origins(context, orphans.files, orphans.used)
    return [(FileToDelete(file.path, file.kind), texts[file.path]) for file in orphans.files]


def test_tags_of_a_table_that_lost_its_snapshots(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    create_tag(context, "a", 2)
    create_tag(context, "b", 4)
    for path in Path(context.layout.snapshot_directory).iterdir():
        path.unlink()
    remove_tags(context, plan_removal(context, ["b"]), delete_files(context))
    assert context.tags.names() == ["a"] and needed(Path(context.url)) <= on_disk(Path(context.url))


def test_forward_over_tags_and_snapshots_of_main(tmp_path: Path) -> None:
    main = table_of_five(tmp_path)
    create_tag(main, "two", 2)
    create_branch(main, "b", snapshot_id=3)
    branch = main.at_branch("b")
    write(branch, [{"k": 9, "v": "branch"}])
    create_tag(branch, "new", 4)
    for name, number in (("four", 4), ("five", 5)):
        create_tag(main, name, number)
    create_tag(branch, "five", 3)
    plan = plan_fast_forward(main, "b")
    assert (plan.branch, plan.common, plan.added, plan.discarded_ids) == ("b", 3, (4,), (4, 5))
    assert sorted(plan.tags) == ["five", "new"] and plan.dropped_tags == ("four",)
    assert (plan.schemas, plan.dropped_schemas, plan.is_needless, plan.discards) == ((), (), False, True)
    files = files_removed_by_fast_forward(main, plan)
    assert {file.path: file.kind for file in files} == {file.path: kind_of(file.path) for file in files}
    assert {file.path for file in files if file.kind in ("snapshot", "tag")} == {
        main.layout.snapshot(4),
        main.layout.snapshot(5),
        main.layout.tag("four"),
    }
    expected = rows(branch)
    fast_forward(main, plan, delete_files(main))
    assert rows(main) == expected and main.snapshots.ids() == [1, 2, 3, 4]
    assert {name: tag.snapshot.id for name, tag in main.tags.all().items()} == {"two": 2, "new": 4, "five": 3}
    assert Path(main.layout.latest_hint).read_text() == "4"
    again = plan_fast_forward(main, "b")
    assert again.is_needless and not again.discards and files_removed_by_fast_forward(main, again) == []


def test_back_beside_tags_of_what_has_expired(tmp_path: Path) -> None:
    context = table_of_five(tmp_path)
    for name, number in (("two", 2), ("three", 3), ("five", 5)):
        create_tag(context, name, number)
    expire_snapshots(context, KEEP_ONE)
    expected = needed(Path(context.url))
    plan = plan_rollback(context, rollback_target(context, 2))
    assert (plan.snapshots, sorted(plan.tags), plan.changelogs, plan.target.id) == ((5,), ["five", "three"], (), 2)
    files = files_removed_by_rollback(context, plan)
    assert {file.path: file.kind for file in files} == {file.path: kind_of(file.path) for file in files}
    before = on_disk(Path(context.url))
    roll_back(context, plan, delete_files(context))
    assert expected <= before and on_disk(Path(context.url)) == needed(Path(context.url))
    gone = {str(Path(file.path).relative_to(context.url)) for file in files}
    assert before - on_disk(Path(context.url)) == gone
    assert Path(context.layout.latest_hint).read_text() == "2" == Path(context.layout.earliest_hint).read_text()
