"""Whole tables on S3: commands end to end, commits whose answers get lost, several writers, and what is not safe there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

from paimon_cli.cli.app import app
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import CommitUnknown
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.storage_for_url import storage_for_url
from scripts.nightly.race_put_if_absent import PROCESSES
from tests.cli.calling import Answer
from tests.commit.commit_tables import data_file, live_names, make_table
from tests.storage.s3_proxy import Answer as Error
from tests.storage.s3_proxy import Fate, Request, S3Proxy
from tests.storage.s3_server import CREDENTIALS, S3Server

pytestmark = pytest.mark.xdist_group("s3")

ROWS = "".join(json.dumps({"k": k, "v": "first" if k < 5 else "x" * k}) + "\n" for k in range(20))
SECRETS = (CREDENTIALS["s3.access-key"], CREDENTIALS["s3.secret-key"])


def run(*arguments: object, code: int = 0, stdin: str | None = None) -> Answer:
    """A command in this process; no secret in what it prints, ever."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    answer = Answer(result.exit_code, result.stdout, result.stderr)
    assert answer.code == code, f"{answer.out}{answer.err}"
    assert not any(secret in answer.out + answer.err for secret in SECRETS)
    return answer


def pairs(options: dict[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in ("--option", f"{key}={value}")]


def create_and_fill(table: str, options: list[str], *more: str) -> None:
    run("create", table, "-C", "k INT NOT NULL", "-C", "v STRING", "--primary-key", "k", "--bucket", 2, *options, *more)
    run("write", table, "-", "--format", "json", "--engine", "local", *options, *more, stdin=ROWS)


class TestCommands:
    def test_end_to_end(self, s3_server: S3Server) -> None:
        table, options = f"{s3_server.new_bucket()}/wh/shop.db/orders", pairs(s3_server.options())
        create_and_fill(table, options)
        update = '{"k": 3, "v": "second"}\n{"k": 99, "v": null}\n'
        run("write", table, "-", "--format", "json", "--engine", "local", *options, stdin=update)
        run("write", table, "-", "--format", "json", "--op", "delete", "--engine", "local", *options, stdin='{"k": 4}\n')
        before = run("read", table, "-o", "ndjson", *options).lines
        run("compact", table, "--engine", "local", *options)
        after = run("read", table, "-o", "ndjson", *options).lines
        by_key = {row["k"]: row["v"] for row in after}
        assert sorted(map(str, before)) == sorted(map(str, after)) and len(after) == 20
        assert (by_key[3], by_key[99], by_key[0]) == ("second", None, "first") and 4 not in by_key
        files = run("files", "ls", table, "-o", "json", *options).json["items"]
        assert {file["level"] for file in files} == {5}
        run("read", table, "--output-path", f"{table}-export", "--engine", "local", *options)
        run("write", table, f"{table}-export/*.parquet", "--overwrite", "--engine", "local", *options)
        assert sorted(map(str, run("read", table, "-o", "ndjson", *options).lines)) == sorted(map(str, after))
        schema = run("schemas", "show", table, "latest", "-o", "json", *options).out
        assert "s3." not in schema, "where the catalog is does not belong into the table"

    def test_versions(self, s3_server: S3Server) -> None:
        """Tags, branches, ways back, expiry and orphans, where directories are only parts of names."""
        table, options = f"{s3_server.new_bucket()}/wh/shop.db/orders", pairs(s3_server.options())
        create_and_fill(table, options)
        write = ("--format", "json", "--engine", "local", *options)
        run("write", table, "-", *write, stdin='{"k": 3, "v": "second"}\n')
        run("tags", "create", table, "one", "--snapshot", 1, *options)
        run("branches", "create", table, "try", "--tag", "one", *options)
        run("write", f"{table}$branch_try", "-", *write, stdin='{"k": 99, "v": "tried"}\n')
        run("compact", table, "--engine", "local", *options)
        run("rollback", table, "--to", "one", "--as-new", *options)
        run("expire", table, "--retain-max", 1, "-y", *options)
        counts = [run("read", name, "--count", *options).out.strip() for name in (table, f"{table}$branch_try")]
        assert counts == ["20", "21"] and run("read", table, "--tag", "one", "--count", *options).out.strip() == "20"
        run("branches", "fast-forward", table, "try", "-y", *options)
        assert run("read", table, "--count", *options).out.strip() == "21"
        run("rollback", table, "--to", "one", "-y", *options)
        run("branches", "rm", table, "try", "-y", *options)
        force = ("--older-than", "now", "--force", *options)
        assert run("orphans", "ls", table, "-o", "json", *force).json["items"]
        run("orphans", "rm", table, "--apply", "-y", *force)
        assert not run("orphans", "ls", table, "-o", "json", *force).json["items"]
        assert run("read", table, "--count", *options).out.strip() == "20"
        run("drop", table, "-y", *options)
        run("read", table, *options, code=3)

    def test_settings_from_the_environment_and_from_the_catalog_file(
        self, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        bucket = s3_server.new_bucket()
        options = s3_server.options()
        catalog = {"warehouse": f"{bucket}/wh", "metastore": "filesystem", **{f"fs.{k}": v for k, v in options.items()}}
        catalog |= {"fs.s3.accessKeyId": SECRETS[0], "fs.s3.accessKeySecret": SECRETS[1]}
        (tmp_path / "paimon.yaml").write_text("".join(f"{key}: {value}\n" for key, value in catalog.items()))
        create_and_fill("shop.orders", [])
        (tmp_path / "paimon.yaml").unlink()
        monkeypatch.setenv("AWS_ENDPOINT_URL", options["s3.endpoint"])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRETS[0])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[1])
        assert len(run("read", f"{bucket}/wh/shop.db/orders", "-o", "ndjson").lines) == 20

    def test_a_refusal_of_the_store_says_where_to_look(self, s3_server: S3Server) -> None:
        with S3Proxy(s3_server.port, lambda request: Error(403, "InvalidAccessKeyId")) as proxy:
            answer = run("read", "s3://bucket/t", *pairs(s3_server.options(proxy.endpoint)), code=6)
        assert "InvalidAccessKeyId" in answer.err and "s3.access-key" in answer.err


class TestWithoutConditionalPut:
    """A store that takes every PUT, whatever its condition says."""

    @pytest.fixture
    def endpoint(self, s3_server: S3Server) -> Iterator[str]:
        with S3Proxy(s3_server.port, lambda request: Fate.UNCONDITIONAL) as proxy:
            yield proxy.endpoint

    def test_commits_are_refused_before_any_work(self, s3_server: S3Server, endpoint: str) -> None:
        table, options = f"{s3_server.new_bucket()}/wh/shop.db/orders", pairs(s3_server.options(endpoint))
        columns = ("-C", "k INT NOT NULL", "-C", "v STRING", "--primary-key", "k", "--bucket", 2)
        assert "no safe commit" in run("create", table, *columns, *options, code=7).err
        run("create", table, *columns, *options, "--allow-unsafe-commit")
        for command in (("write", table, "no-such-file.json"), ("compact", table)):
            answer = run(*command, "--engine", "local", *options, code=7)
            assert "lock.enabled" in answer.err and "--allow-unsafe-commit" in answer.err

    def test_unsafe_commits_are_made_with_a_warning(self, s3_server: S3Server, endpoint: str) -> None:
        table, options = f"{s3_server.new_bucket()}/wh/shop.db/orders", pairs(s3_server.options(endpoint))
        create_and_fill(table, options, "--allow-unsafe-commit")
        answer = run("compact", table, "--engine", "local", *options, "--allow-unsafe-commit")
        assert answer.err.startswith("warning: ") and "may lose one of them" in answer.err
        assert len(run("read", table, "-o", "ndjson", *options).lines) == 20

    @pytest.mark.parametrize("database", ["sqlite"], indirect=True)
    def test_the_lock_of_the_catalog_makes_them_safe(self, s3_server: S3Server, endpoint: str, database: dict[str, str]) -> None:
        table, options = f"{s3_server.new_bucket()}/wh/shop.db/orders", pairs({**s3_server.options(endpoint), **database})
        create_and_fill(table, options)
        assert run("compact", table, "--engine", "local", *options).err.find("warning") < 0
        assert len(run("read", table, "-o", "ndjson", *options).lines) == 20

    @pytest.mark.parametrize("database", ["sqlite"], indirect=True)
    def test_a_jdbc_catalog_has_a_lock(self, s3_server: S3Server, endpoint: str, database: dict[str, str]) -> None:
        table = f"{s3_server.new_bucket()}/wh/shop.db/orders"
        catalog = pairs({**s3_server.options(endpoint), "metastore": "jdbc", "uri": database["uri"]})
        columns = ("-C", "k INT NOT NULL", "-C", "v STRING", "--primary-key", "k", "--bucket", 2)
        run("create", table, *columns, *catalog)
        run("write", table, "-", "--format", "json", "--engine", "local", *catalog, stdin=ROWS)
        assert run("read", table, "--count", *catalog).out.strip() == "20"


def open_table(url: str, options: dict[str, str], tmp_path: Path) -> TableContext:
    """A table of `commit_tables`, whose data files do not exist."""
    storage, root = storage_for_url(url, options)
    SchemaHistory(storage, TableLayout(root)).commit(make_table(tmp_path / "elsewhere").schema)
    return TableContext.open(url, storage_options=options)


def message(name: str) -> CommitMessage:
    return CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))


def publishes(snapshot_id: int, request: Request) -> bool:
    return request.is_put_if_absent and unquote(request.path).endswith(f"/snapshot/snapshot-{snapshot_id}")


class TestLostAnswers:
    """Between us and the store the connection breaks, just when a snapshot is published."""

    @pytest.mark.parametrize(("fate", "times"), [(Fate.LOSE_ANSWER, 1), (Fate.LOSE_REQUEST, 3), (Error(500, "InternalError"), 2)])
    def test_the_commit_is_made_once(self, s3_server: S3Server, tmp_path: Path, fate: Fate | Error, times: int) -> None:
        left = [fate] * times
        with S3Proxy(s3_server.port) as proxy:
            context = open_table(f"{s3_server.new_bucket()}/t", s3_server.options(proxy.endpoint), tmp_path)
            Committer(context).commit([message("before")], CommitIdentity("me"))
            proxy.rule = lambda request: left.pop() if left and publishes(2, request) else Fate.PASS
            result = Committer(context).commit([message("mine")], CommitIdentity("me", 7))
            again = Committer(context).commit([message("mine")], CommitIdentity("me", 7))
        assert (result.attempts, [snapshot.id for snapshot in result.snapshots]) == (1, [2])
        assert again.already_committed and live_names(context) == ["before@0", "mine@0"]

    def test_a_snapshot_of_another_job_is_not_taken_for_ours(self, s3_server: S3Server, tmp_path: Path) -> None:
        url = f"{s3_server.new_bucket()}/t"
        rival = open_table(url, s3_server.options(), tmp_path)
        with S3Proxy(s3_server.port) as proxy:
            context = TableContext.open(url, storage_options=s3_server.options(proxy.endpoint))

            def overtake(request: Request) -> Fate:
                if publishes(1, request) and rival.snapshots.latest_id() is None:
                    Committer(rival).commit([message("theirs")], CommitIdentity("rival"))
                    return Fate.LOSE_REQUEST
                return Fate.PASS

            proxy.rule = overtake
            result = Committer(context).commit([message("mine")], CommitIdentity("me"))
        assert (result.attempts, result.snapshots[0].id) == (2, 2)
        assert live_names(rival) == ["mine@0", "theirs@0"]

    def test_a_store_that_becomes_unavailable_leaves_the_outcome_open(self, s3_server: S3Server, tmp_path: Path) -> None:
        with S3Proxy(s3_server.port) as proxy:
            context = open_table(f"{s3_server.new_bucket()}/t", s3_server.options(proxy.endpoint), tmp_path)

            def vanish(request: Request) -> Fate | Error:
                if publishes(1, request):
                    proxy.rule = lambda request: Error(403, "AccessDenied")
                    return Fate.LOSE_ANSWER
                return Fate.PASS

            proxy.rule = vanish
            with pytest.raises(CommitUnknown) as failure:
                Committer(context).commit([message("mine")], CommitIdentity("me"))
            proxy.rule = lambda request: Fate.PASS
            assert failure.value.exit_code == 11 and live_names(context) == ["mine@0"], "it was made, and nothing was deleted"


def commit_files(url: str, options: dict[str, str], commits: int, writer: int) -> None:
    context = TableContext.open(url, {"commit.max-retries": "100"}, options)
    for number in range(commits):
        Committer(context).commit([message(f"w{writer}-{number}")], CommitIdentity(f"writer-{writer}", number))


def test_writers_in_processes(s3_server: S3Server, tmp_path: Path) -> None:
    url, options = f"{s3_server.new_bucket()}/t", s3_server.options()
    context = open_table(url, options, tmp_path)
    start = partial(PROCESSES.Process, target=commit_files)
    writers = [start(args=(url, options, 3, writer)) for writer in range(4)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * 4
    assert context.snapshots.ids() == list(range(1, 13))
    assert live_names(context) == sorted(f"w{w}-{n}@0" for w in range(4) for n in range(3))
