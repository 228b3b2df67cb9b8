"""The shared options of commands: what a `Call` opens and shows with them, and how a command gets them."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from paimon_cli import Table
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.cli import spark_submit_line
from paimon_cli.cli.columns import Column
from paimon_cli.cli.command import Call, command
from paimon_cli.cli.output import Item, OutputFormat
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, TableName, Yes
from paimon_cli.cli.results import ARGUMENTS, ID, TEXT, View
from paimon_cli.cli.spark_submit_line import Submission
from paimon_cli.errors import DamagedFile, Refused, UsageError
from paimon_cli.storage.injected import NoTrace
from paimon_cli.storage.redaction import hiding_secrets_of_command, redact
from tests.tables import make_table, write

COLUMNS = {"id": "INT NOT NULL"}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A warehouse with a table, which a profile of the working directory names."""
    make_table(tmp_path / "wh" / "shop.db" / "t", COLUMNS, ["id"])
    (tmp_path / "paimon.yaml").write_text(f"profiles:\n  small:\n    warehouse: {tmp_path}/wh\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# What a call opens


def test_a_call_locates_a_table_with_all_of_its_options(lake: Path) -> None:
    call = Call(branch="dev", options={"bucket": "3"}, catalog_options={"profile": "small"})
    found = call.locate("shop.t", True)
    assert (found.url, found.branch, found.allow_unsafe_commit) == (f"{lake}/wh/shop.db/t", "dev", True)
    assert found.argument == call.pasted("shop.t") == "shop.t --profile small --option bucket=3 --branch dev"
    kept = Call(options={"bucket": "3"}, warehouse=f"{lake}/wh", keeps_options=True).locate("shop.t")
    assert (kept.url, kept.allow_unsafe_commit) == (f"{lake}/wh/shop.db/t", False)
    assert kept.argument == f"shop.t --warehouse {lake}/wh"


def test_the_library_gets_the_settings_of_the_engine() -> None:
    trace = NoTrace()
    call = Call(
        engine="spark",
        master="yarn",
        spark_conf={"a": "b"},
        spark_threshold="1 gb,7",
        catalog_options={"profile": "p"},
        trace=trace,
    )
    runtime = call.runtime
    assert (runtime.engine, runtime.master, runtime.spark_conf) == ("spark", "yarn", {"a": "b"})
    assert (runtime.spark_threshold, runtime.profile, runtime.trace) == ("1 gb,7", "p", trace)


def test_the_settings_of_the_engine_are_those_of_the_profile_in_the_name(lake: Path) -> None:
    """A check of a table, which may be damaged, used to take those of the profile that counts without one."""
    for opened in (Call().open, Call().open_damaged, lambda table: Call().open_to_commit(table, False)):
        table = opened("@small/shop.t")
        assert (table.runtime.profile, table.url) == ("small", f"{lake}/wh/shop.db/t")
    assert Call(catalog_options={"profile": "small"}).open("shop.t").runtime.profile == "small"


def test_options_of_a_call_reach_what_it_opens(lake: Path) -> None:
    call = Call(options={"write-buffer-size": "7 mb"}, warehouse=f"{lake}/wh")
    catalog = call.catalog()
    tables = [call.open("shop.t"), call.open_damaged("shop.t"), call.open_to_commit("shop.t", False), catalog.table("shop.t")]
    assert [table.context.options.write_buffer_size for table in tables] == [7 << 20] * 4


def test_a_catalog_is_that_of_the_call(lake: Path) -> None:
    Table.open("@small/shop.t").branches.create("dev")
    call = Call(warehouse=f"{lake}/wh", branch="dev", catalog_options={"lock.enabled": "false"})
    runtime = Call(engine="local").runtime
    catalog = call.catalog(True, runtime)
    assert catalog.runtime is runtime and call.catalog().runtime.engine == "auto"
    assert (catalog.url, catalog.branch, catalog.table("shop.t").branch) == (f"{lake}/wh", "dev", "dev")
    places = [each.table("shop.t").context.place for each in (catalog, call.catalog())]
    assert [isinstance(place, TableLocation) and place.allow_unsafe_commit for place in places] == [True, False]
    assert catalog.table("shop.t").context.layout.argument == call.pasted("shop.t")


def test_damage_is_opened_only_to_be_checked(lake: Path) -> None:
    write(make_table(lake / "wh" / "shop.db" / "d", COLUMNS, ["id"]), [{"id": 1}])
    (lake / "wh/shop.db/d/schema/schema-0").unlink()
    assert Call().open_damaged("@small/shop.d").verify(level="meta").errors
    with pytest.raises(DamagedFile):
        Call().open("@small/shop.d")


@pytest.mark.parametrize("allowed", [False, True])
def test_whether_commits_are_safe_is_checked_first(lake: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    def refuse(table: Table) -> None:
        raise Refused("no safe commit")

    monkeypatch.setattr(Table, "check_commit", refuse)
    Call().open("@small/shop.t", allowed)
    with pytest.raises(Refused):
        Call().open_to_commit("@small/shop.t", allowed)


# What a call shows


@dataclass(frozen=True)
class Shown:
    id: int = 7
    name: str = "n"


ITEM = Item("Shown", None, Shown(), [Column("id", "Id", ID), Column("name", "Name", TEXT)])


@pytest.mark.parametrize(
    ("output", "fields", "printed"),
    [
        (OutputFormat.TABLE, (), "in words\n"),
        (OutputFormat.TABLE, ("name",), "Name  n\n"),
        (OutputFormat.CSV, (), "id,name\n7,n\n"),
        (OutputFormat.CSV, ("name",), "name\nn\n"),
        (OutputFormat.NDJSON, ("name", "id"), '{"name":"n","id":7}\n'),
    ],
)
def test_results_are_shown_in_the_chosen_form(
    capsys: pytest.CaptureFixture[str], output: OutputFormat, fields: tuple[str, ...], printed: str
) -> None:
    Call(output=output, fields=fields).show(ITEM, "in words")
    assert capsys.readouterr().out == printed


def test_an_unknown_field_is_an_error_unless_something_was_changed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        Call(fields=("none",)).show(ITEM)
    Call(output=OutputFormat.CSV, fields=("none",), changes_tables=True).show(ITEM)
    shown = capsys.readouterr()
    assert shown.out == "id,name\n7,n\n" and "there is no field 'none'" in shown.err


# How a command gets its options


@dataclass(frozen=True)
class Bundle:
    number: Annotated[int, typer.Option("--number")] = 3


class Commands:
    """Commands that only note what they were called with."""

    def __init__(self) -> None:
        self.app = typer.Typer()
        self.called: list[tuple[Call, dict[str, Any]]] = []
        note = self._note

        @command(self.app, "ls", keeps_options=True)
        def keeps(call: Call, table: TableName, *, branch: Annotated[str, typer.Option("--branch")] = "own") -> None:
            """Keep options."""
            note(call, branch=branch)

        @command(self.app, "change", runs_jobs=True, reads_files=True)
        def change(
            call: Call,
            table: TableName,
            dry_run: DryRun = False,
            yes: Yes = False,
            has_work: Annotated[bool, typer.Option("--has-work/--has-none")] = True,
            *,
            bundle: Bundle,
        ) -> bool:
            """Change."""
            note(call, bundle=bundle)
            return has_work

        @command(self.app, "unsafe")
        def unsafe(call: Call, tables: list[str], allow_unsafe_commit: AllowUnsafeCommit = False) -> None:
            """Change, without a question."""
            note(call)

        @command(self.app, "plan")
        def plan(
            call: Call,
            apply: Annotated[bool, typer.Option("--apply")] = False,
            table: Annotated[str | None, typer.Argument()] = None,
        ) -> None:
            """Plan."""
            note(call)

    def _note(self, call: Call, **values: Any) -> None:
        self.called.append((call, values))

    def __call__(self, *words: str) -> tuple[Call, dict[str, Any], str]:
        """The call that a command got, its values, and what was printed. Raises what the command has raised."""
        self.called.clear()
        ARGUMENTS.set(words)
        done = CliRunner().invoke(self.app, list(words))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return (*(self.called or [(Call(), {})])[0], done.stdout)


@pytest.fixture(scope="module")
def commands() -> Commands:
    return Commands()


def test_shared_options_become_a_call(commands: Commands) -> None:
    words = "--fields a,b --vertical -o csv --branch b --warehouse w --option bucket=2 --option s3.endpoint=e --profile p"
    call, values, _ = commands("change", "t", *words.split(), "--number", "4", "--delimiter", ";", "--engine", "local")
    assert (call.fields, call.view, call.output) == (("a", "b"), View(vertical=True), OutputFormat.CSV)
    assert (call.branch, call.warehouse, call.engine) == ("b", "w", "local")
    assert (call.options, call.catalog_options) == ({"bucket": "2"}, {"s3.endpoint": "e", "profile": "p"})
    assert (call.form.delimiter, values) == (";", {"bundle": Bundle(4)})
    assert (call.changes_tables, call.keeps_options) == (True, False)
    assert commands("change", "t", "--wide")[0].view == View(wide=True)
    assert commands("change", "t", "--option", "profile=q", "--profile", "p")[0].catalog_options == {"profile": "p"}


def test_options_that_a_command_keeps_are_its_own_business(commands: Commands) -> None:
    call, _, _ = commands("ls", "t", "--option", "no-option=1", "--strict-options")
    assert (call.options, call.keeps_options, call.changes_tables) == ({"no-option": "1"}, True, False)
    for name in ("change", "unsafe"):
        with pytest.raises(UsageError, match="no-option"):
            commands(name, "t", "--option", "no-option=1", "--strict-options")
    assert commands("change", "t", "--option", "no-option=1")[0].options == {"no-option": "1"}


def test_an_option_of_a_command_stands_in_for_the_shared_one(commands: Commands) -> None:
    call, values, _ = commands("ls", "t", "--branch", "mine")
    assert (call.branch, values) == (None, {"branch": "mine"})


def test_commands_that_name_tables_have_a_branch_and_changes_are_known(commands: Commands) -> None:
    call, _, _ = commands("unsafe", "t", "--branch", "b")
    assert (call.branch, call.changes_tables) == ("b", True)
    with pytest.raises(UsageError, match="a branch belongs to a table"):
        commands("plan", "--branch", "b")
    assert commands("plan", "--branch", "b", "t")[0].branch == "b"


def test_second_names_are_hidden(commands: Commands) -> None:
    assert commands("list", "t")[0].keeps_options
    shown = CliRunner().invoke(commands.app, ["--help"]).stdout
    assert " ls " in shown and " list " not in shown


def test_a_dry_run_ends_in_the_command_that_carries_it_out(commands: Commands) -> None:
    assert commands("change", "t", "-n")[2] == "run: paimon-cli change t --yes\n"
    for words in (("-n", "--has-none"), ("-nq",), ("-n", "-o", "json"), ("-n", "--fields", "a"), ("-y",), ()):
        assert commands("change", "t", *words)[2] == ""
    assert commands("plan")[2] == "run: paimon-cli plan --apply\n"
    assert commands("plan", "--apply")[2] == ""


def test_only_the_line_of_spark_is_printed_if_that_was_asked_for(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Submission] = []

    def line_of(submission: Submission, context: Any) -> list[str]:
        asked.append(submission)
        return [context.info_name, "a table"]

    monkeypatch.setattr(spark_submit_line, "line_of", line_of)
    words = ("change", "a table", "--print-spark-submit", "--master", "yarn", "--warehouse", "w", "--spark-conf", "a=b")
    assert commands(*words, "--option", "bucket=2", "--option", "s3.endpoint=e")[2] == "change 'a table'\n"
    assert json.loads(commands(*words, "-o", "json")[2])["item"] == {"command": ["change", "a table"]}
    assert commands.called == []
    assert asked[0] == Submission("auto", "yarn", {"a": "b"}, True, {"bucket": "2", "s3.endpoint": "e"})


def test_secrets_among_the_options_are_hidden_from_then_on(commands: Commands) -> None:
    given = ("--option", "s3.secret-key=ofcatalog", "--option", "my.password=oftable", "--spark-conf", "a.password=ofspark")
    with hiding_secrets_of_command([]):
        assert "ofcatalog" in redact("ofcatalog oftable ofspark")
        commands("change", "t", *given)
        assert redact("ofcatalog oftable ofspark") == "*** *** ***"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--remote", "sc://h", "--master", "yarn"), "--remote cannot be combined with --master"),
        (("--remote", "http://user:pw@host"), "--remote http://host: it is not a Spark Connect server"),
        (("--spark-threshold", "many"), "cannot read --spark-threshold"),
        (("-v", "-q"), "-v cannot be combined with -q"),
        (("--fields", ","), "--fields names no field"),
        (("--option", "bucket"), "--option bucket is not KEY=VALUE"),
    ],
)
def test_options_that_cannot_be_are_refused_before_a_command_runs(
    commands: Commands, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        commands("change", "t", *words)
    assert refused.value.message.startswith(message) and "pw" not in refused.value.message
    assert commands.called == []


def test_a_server_of_spark_connect_takes_the_place_of_the_master(commands: Commands) -> None:
    assert commands("change", "t", "--remote", "sc://h:15002")[0].master == "sc://h:15002"


def test_what_is_said_and_paged_is_that_of_the_call(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def noted(wanted: bool, *_: Any) -> AbstractContextManager[NoTrace]:
        seen.append(wanted)
        return nullcontext(NoTrace())

    monkeypatch.setattr("paimon_cli.cli.command.paging", noted)
    monkeypatch.setattr("paimon_cli.cli.command.trace_on_stderr", noted)
    commands("change", "t")
    commands("change", "t", "--no-pager", "--trace")
    monkeypatch.setenv("PAIMON_CLI_TRACE", "1")
    commands("change", "t")
    assert seen == [True, False, False, True, True, True]
