"""`expire`, `tags`, `branches`, `rollback`, `consumers`, `drop`: what a user types and sees."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.storage.injected import BelatedClock, SystemClock
from paimon_cli.storage.local_storage import LocalStorage
from tests.cli.calling import Run
from tests.tables import make_table, write

COLUMNS = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"}


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Its snapshots were made a minute ago."""
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "k"], ["dt"])
    context = replace(context, clock=BelatedClock(SystemClock(), 60_000))
    for number in (1, 2, 3):
        write(context, [{"dt": f"2024-01-0{number}", "k": number, "v": "a"}])
    return str(tmp_path / "t")


def test_expire_shows_asks_and_does(run: Run, table: str) -> None:
    plan = run("expire", table, "--retain-max", 1, "-n", "-o", "json").json
    assert plan["kind"] == "ExpiryPlan" and {item["kind"] for item in plan["items"]} == {"snapshot", "manifest list"}
    assert all(item["size"] == (Path(table) / item["path"]).stat().st_size for item in plan["items"])
    refused = run("expire", table, "--retain-max", 1, code=7)
    assert "2 snapshots (1, 2), 6 files of" in refused.err and "--yes" in refused.err
    done = run("expire", table, "--retain-max", 1, "-y", "-o", "json").json["item"]
    assert done["removed"] == [1, 2] and done["files"] == 6
    assert done["size"] == sum(item["size"] for item in plan["items"])
    assert not any((Path(table) / item["path"]).exists() for item in plan["items"])
    assert run("expire", table, "--retain-max", 1).out == "no snapshot is due to expire\n"
    nothing = run("expire", table, "--retain-max", 1, "-o", "json").json["item"]
    assert (nothing["removed"], nothing["files"], nothing["size"]) == ([], 0, 0)
    run("expire", table, "--retain-max", 1, "--retain-min", 2, code=2)


def test_the_summary_counts_the_snapshot_files_among_all(run: Run, table: str) -> None:
    def there() -> int:
        return sum(path.is_file() and path.name not in ("EARLIEST", "LATEST") for path in Path(table).rglob("*"))

    before = there()
    out = run("expire", table, "--retain-max", 1, "-y").out
    assert re.fullmatch(r"2 snapshots deleted \(1, 2\), 6 files of [0-9.]+ k?B in all\n", out) and before - there() == 6


def test_retention_of_the_table_applies_and_ages_are_parsed(run: Run, table: str) -> None:
    assert "no snapshot" in run("expire", table, "-y").out
    assert "no snapshot" in run("expire", table, "--retain-min", 1, "--older-than", "1d", "-y").out
    assert "1 snapshot deleted" in run("expire", table, "--retain-min", 1, "--older-than", "0 s", "--limit", 1, "-y").out
    assert (
        "(2)"
        in run("expire", table, "--option", "snapshot.num-retained.max=1", "--option", "snapshot.num-retained.min=1", "-y").out
    )
    assert "it is no age, no time, no snapshot id and no tag" in run("expire", table, "--older-than", "soon", code=2).err


@pytest.mark.parametrize(
    "words", [("expire", "--older-than"), ("orphans", "rm", "--apply", "--older-than"), ("rollback", "--to")]
)
def test_what_discards_shows_the_time_that_is_meant(run: Run, table: str, words: tuple[str, ...]) -> None:
    day = time.strftime("%Y-%m-%dT%H:", time.gmtime(time.time() - 86_400))
    *command, option = words
    if command[0] == "rollback":
        assert re.search(
            r"back to snapshot 3 of \d{4}-\d\d-\d\dT[\d:]{8}Z: ", run("rollback", table, "--to", "30 s ago", "-n").out
        )
        assert "as old as 1d" in run("rollback", table, "--to", "1d", code=3).err
    else:
        assert day in run(*command, table, option, "1 day ago", "-n").out
    assert "is in the future" in run(*command, table, option, "2999-01-01", "-n", code=2).err
    assert "is in the future" in run(*command, table, option, "2999-01-01", "-y", code=2).err


def test_a_tag_is_a_version_before_it_is_an_age(run: Run, table: str) -> None:
    run("tags", "create", table, "1d", "--snapshot", 1)
    assert run("snapshots", "show", table, "1d", "-o", "json").json["item"]["id"] == 1
    assert run("files", "ls", table, "--snapshot", "1d", "-o", "json").json["items"][0]["rows"] == 1
    assert "as old as 1d ago" in run("snapshots", "diff", table, "1d ago", "latest", code=3).err
    assert "no snapshot is due to expire: none is older than" in run("expire", table, "--older-than", "1d", "-n").out


def test_an_expiry_names_the_consumer_that_holds_all(run: Run, table: str) -> None:
    """Snapshots are old enough, and none goes."""
    run("consumers", "reset", table, "late", "--next", 1)
    command = ("expire", table, "--retain-max", "1")
    said = "no snapshot is due to expire: consumer late has not read snapshot 1 yet"
    assert said in run(*command, "-n").out and said in run(*command, "--older-than", "1s", "-n").out
    assert said in run(*command, "-y").out


def test_partitions_have_their_time(run: Run, table: str) -> None:
    run("expire", table, "--what", "partitions", "-y", code=2)
    midnight = datetime(2024, 1, 3).astimezone().isoformat()  # a partition's day begins at midnight of this machine's zone
    plan = run("expire", table, "--what", "partitions", "--older-than", midnight, "-n")
    assert "2 partitions (dt=2024-01-01, dt=2024-01-02)" in plan.out
    run("expire", table, "--what", "partitions", "--option", "partition.expiration-time=7 d", "--limit", 2, "-y")
    assert [row["dt"] for row in run("read", table, "-o", "ndjson").lines] == ["2024-01-03"]
    assert run("snapshots", "ls", table, "-o", "json").json["items"][0]["kind"] == "OVERWRITE"


def test_tags_and_consumers(run: Run, table: str) -> None:
    run("tags", "create", table, "one", "--snapshot", 1, "--time-retained", "1 ms")
    assert "replaced" in run("tags", "create", table, "one", "--replace", "--snapshot", 2, "--time-retained", "1 ms").out
    run("tags", "create", table, "one", code=2)
    run("tags", "rename", table, "one", "two")
    assert run("tags", "show", table, "two", "-o", "json").json["item"]["snapshot_id"] == 2
    assert "1 tag deleted (two)" in run("expire", table, "--what", "tags", "-y").out
    run("tags", "create", table, "three")
    assert "1 tag, 1 file" in run("tags", "rm", table, "three", "-n").out
    run("tags", "rm", table, "three", code=7)
    run("tags", "rm", table, "three", "-y")
    run("tags", "rm", table, "three", code=3)
    run("consumers", "reset", table, "reader", "--next", 2)
    assert run("consumers", "ls", table, "-o", "json").json["items"][0]["behind"] == 2
    assert "(1)" in run("expire", table, "--retain-max", 1, "-y").out, "the reader holds 2"
    assert "1 consumer deleted" in run("expire", table, "--what", "consumers", "--older-than", "now", "-y").out
    run("consumers", "rm", table, "reader", code=3)


def test_branches(run: Run, table: str) -> None:
    run("branches", "create", table, "try", "--snapshot", 2)
    branch = f"{table}$branch_try"
    run("drop-partition", branch, "dt=2024-01-01", "-y")
    assert run("read", branch, "--count").out.strip() == "1" and run("read", table, "--count").out.strip() == "3"
    for command in (
        ("files", "ls"),
        ("snapshots", "ls"),
        ("manifests", "ls"),
        ("lsm", "show"),
        ("partitions", "ls"),
        ("schemas", "ls"),
    ):
        assert run(*command, branch, "-o", "json").json["items"]
    assert "1 snapshot of main dropped" in run("branches", "fast-forward", table, "try", code=7).err
    run("branches", "fast-forward", table, "try", "-y")
    assert run("read", table, "--count").out.strip() == "1"
    run("branches", "rename", table, "try", "tried")
    assert [item["name"] for item in run("branches", "ls", table, "-o", "json").json["items"]] == ["main", "tried"]
    assert run("branches", "ls", table).out.endswith("\n2 branches\n")
    run("branches", "rm", table, "tried", code=7)
    run("branches", "rm", table, "tried", "-y")
    run("read", f"{table}$branch_tried", code=3)


def test_rollback(run: Run, table: str) -> None:
    assert "1 snapshot will be deleted" in run("rollback", table, "--to", 2, "-n").out
    run("rollback", table, "--to", 2, code=7)
    run("rollback", table, "--to", 9, code=3)
    assert "snapshot 4 has the content of snapshot 1" in run("rollback", table, "--to", 1, "--as-new").out
    assert run("read", table, "--count").out.strip() == "1"
    assert run("rollback", table, "--to", 2, "-y", "-o", "json").json["item"]["snapshots_removed"] == 2
    assert run("read", table, "--count").out.strip() == "2"


def test_rows_partitions_and_the_table_go(run: Run, table: str) -> None:
    assert "1 stored record in 1 file of 1 partition would be deleted" in run("drop-partition", table, "dt=2024-01-02", "-n").out
    assert "twice" in run("drop-partition", table, "dt=2024-01-02,dt=2024-01-01", code=2).err
    run("drop-partition", table, "dt=2024-01-02", "dt=2024-01-01", code=7)
    run("drop-partition", table, "dt=2024-01-02", "dt=2024-01-01", "-y")
    assert run("read", table, "--count").out.strip() == "1"
    run("truncate", table, code=7)
    run("truncate", table, "-y")
    assert run("truncate", table).out.startswith("there are no rows to delete")
    assert run("read", table, "--count").out.strip() == "0"
    assert run("read", table, "--snapshot", 3, "--count").out.strip() == "3"
    assert "--dry-run" in run("drop", table, code=7).err
    run("drop", table, "-y")
    assert not Path(table).exists()
    run("read", table, code=3)


@pytest.mark.parametrize("command", [("truncate",), ("drop-partition", "dt=2024-01-01")])
def test_a_repeated_deletion_says_that_it_was_made_before(run: Run, table: str, command: tuple[str, ...]) -> None:
    name, *what = command
    identity = ("--commit-user", "nightly", "--commit-id", 7)
    assert run(name, table, *what, *identity, "-y").out.startswith("snapshot 4")
    assert run("read", table, "--count").out.strip() == ("0" if name == "truncate" else "2")
    write(TableContext.open(table), [{"dt": "2024-01-01", "k": 9, "v": "late"}])
    for more in ((), ("-y",), ("-n",)):
        assert run(name, table, *what, *identity, *more).out.startswith("already committed")
    item = run(name, table, *what, *identity, "-y", "-o", "json").json["item"]
    assert (item["already_committed"], item["snapshots"], item["files"]) == (True, [], 0)
    assert "late" in run("read", table, "-o", "ndjson").out
    assert not run(name, table, *what, "-y", "-o", "json").json["item"]["already_committed"]


def two_days_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's clock is two days ahead."""
    real = SystemClock.now_millis
    monkeypatch.setattr(SystemClock, "now_millis", lambda clock: real(clock) + 2 * 86_400_000)


def test_orphans_have_the_age_that_the_storage_reports(run: Run, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path(table) / "dt=2024-01-01" / "bucket-0" / "data-on-its-way.parquet").write_bytes(b"xyz")
    before = {path.relative_to(table) for path in Path(table).rglob("*")}
    two_days_ahead(monkeypatch)
    for command in (("ls",), ("rm",), ("rm", "--apply", "--dry-run"), ("rm", "--apply", "-y")):
        answer = run("orphans", command[0], table, *command[1:])
        assert "0 orphans" in answer.out and "ahead of the storage's; ages follow" in answer.err
    assert {path.relative_to(table) for path in Path(table).rglob("*")} == before


def test_nothing_expires_early_by_a_clock_that_is_ahead(run: Run, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = sorted(path.name for path in (Path(table) / "snapshot").glob("snapshot-*"))
    two_days_ahead(monkeypatch)
    for more in (("--dry-run",), ("-y",)):
        answer = run("expire", table, "--older-than", "1d", "--retain-min", "1", *more)
        assert "no snapshot is due" in answer.out and "ahead of the storage's; ages follow" in answer.err
    assert sorted(path.name for path in (Path(table) / "snapshot").glob("snapshot-*")) == snapshots


def test_where_nothing_can_be_written_this_machines_clock_is_named(run: Run, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: LocalStorage, path: str, data: bytes) -> None:
        raise StorageUnavailable(f"the file system refused {path}", "Read-only file system")

    monkeypatch.setattr(LocalStorage, "write_new", refuse)
    for command in ("ls", "rm"):
        answer = run("orphans", command, table)
        assert "0 orphans" in answer.out and "by the clock of this machine" in answer.err
    run("orphans", "rm", table, "--apply", "-y", code=6)


def test_a_name_of_five_thousand_characters_is_refused(run: Run, table: str) -> None:
    for command in (("tags", "create"), ("tags", "show"), ("branches", "create")):
        refused = run(*command, table, "x" * 5000, code=2).err
        assert "characters is too long" in refused and len(refused) < 300


def test_orphans(run: Run, table: str) -> None:
    lost = Path(table) / "dt=2024-01-01" / "bucket-0" / "data-lost.parquet"
    lost.write_bytes(b"xyz")
    os.utime(lost, (time.time() - 60,) * 2)
    assert "0 orphans" in run("orphans", "ls", table).out
    run("orphans", "ls", table, "--older-than", "1 h", code=7)
    listed = run("orphans", "ls", table, "--older-than", "0 s", "--force", "--explain", "-o", "json").json["items"]
    assert [(item["path"], item["size"]) for item in listed] == [("dt=2024-01-01/bucket-0/data-lost.parquet", 3)]
    assert "writer died" in listed[0]["origin"]
    planned = run("orphans", "rm", table, "--older-than", "0 s", "--force").out
    assert planned.endswith(f"run: paimon-cli orphans rm {table} --older-than '0 s' --force --apply --yes\n") and lost.exists()
    assert "1 orphan of 3 B deleted" in run("orphans", "rm", table, "--older-than", "0 s", "--force", "--apply", "-y").out
    assert not lost.exists() and run("read", table, "--count").out.strip() == "3"
