"""Commands and options that messages, hints and help name are there: a hint must work when it is pasted."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import paimon_cli
from paimon_cli import Catalog, Table
from paimon_cli.api.definition import Alter
from paimon_cli.api.versions import Branches, Consumers, Tags
from paimon_cli.cli.app import app
from paimon_cli.command_texts import CALLS, METHODS, METHODS_OF_CATALOG, in_python
from tests.cli.test_documented_commands import COMMANDS

PACKAGE = Path(paimon_cli.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
OTHERS = {"--help", "--version", "--install-completion", "--show-completion", "--add-modules", "--glob", "--schedule", "--json"}
"""Options of every command, of the program, of the JVM, of hadoop, of the script that replays schedules, of other programs."""
OPTIONS_FILLED_IN = {"paimon-cli partitions mark-done X X"}
"""Commands whose last part stands for options."""
WORD = "X"
"""Stands for what a message fills in."""
PROGRAM = re.compile(r"(?:^ *|`|run |first: |again: |hint: )paimon-cli ([a-z][^`\n;]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
FOREIGN = re.compile(r"pip install|java|JVM|var\(--|--accent:|complete --command")
"""Texts of other programs: pip, the JVM, style sheets, the completion of a shell."""


@cache
def texts(path: Path) -> tuple[list[str], set[str]]:
    """All text of a module, with `X` for what is filled in; and its docstrings, which document, and are helps with examples."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    found, documentation = [], set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            found.append("".join(str(part.value) if isinstance(part, ast.Constant) else WORD for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            found.append(node.value)
        elif isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            documentation.add(ast.get_docstring(node, clean=False) or "")
    return found, documentation


@cache
def messages() -> list[tuple[str, str]]:
    """All text of all modules but their docstrings. Found when a test needs it: each worker of a run collects each test."""
    found = ((str(path.relative_to(SOURCES[0].parent)), *texts(path)) for path in SOURCES)
    return sorted({(module, text) for module, given, documentation in found for text in given if text not in documentation})


def options_of(name: str) -> set[str]:
    return {spelling for parameter in COMMANDS[name].params for spelling in (*parameter.opts, *parameter.secondary_opts)}


def named_commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Command and rest of each `paimon-cli ...` in a text; the command is '' if there is none of that name."""
    for found in PROGRAM.finditer(text):
        words = found[1].split()
        if words[0] == "alter" and len(words) > 2 and WORD not in words[2]:
            words = ["alter", words[2], words[1], *words[3:]]
        names = [name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS]
        yield (names[0] if names else "", words)


OF_COMMANDS = [str(path.relative_to(PACKAGE)) for path in SOURCES if "paimon-cli " in path.read_text()]
"""Modules that name the program."""


def command_texts(module: str) -> list[str]:
    return sorted({text for text in texts(PACKAGE / module)[0] if "paimon-cli " in text and PROGRAM.search(text)})


def test_there_are_commands_in_the_texts() -> None:
    assert sum(len(command_texts(module)) for module in OF_COMMANDS) > 50


@pytest.mark.parametrize("module", OF_COMMANDS)
def test_commands_in_texts_are_there(module: str) -> None:
    named = [(text, *command) for text in command_texts(module) for command in named_commands(text)]
    for text, name, words in named:
        if (
            WORD in words[:1]
            or (words[0] == "alter" and WORD in words[2:3])
            or (not name and f"{words[0]} run" in COMMANDS)  # the command of the group that is meant without a name
            or (not name and len(words) == 1 and any(known.startswith(f"{words[0]} ") for known in COMMANDS))
        ):
            continue
        assert name, f"{module}: there is no command {' '.join(words[:3])}"
        given = {word.partition("=")[0].rstrip(".,:)") for word in words if word.startswith("-") and word not in ("-", "--")}
        unknown = {option for option in given if re.fullmatch(r"--?[a-z-]+", option)} - options_of(name) - OTHERS
        assert not unknown, f"{module}: {name} has no {unknown} ({text})"


def _leaves(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from _leaves(command) if hasattr(command, "commands") else [command]


@pytest.fixture(scope="module")
def parse() -> Callable[[list[str]], int]:
    """Parses a command line as the program would, and stops before the command runs; gives the exit code."""
    root = get_command(app)
    for leaf in _leaves(root):
        leaf.callback = lambda **values: None

    def parsed(words: list[str]) -> int:
        with pytest.raises(SystemExit) as end:
            root.main(words)
        return int(end.value.code or 0)

    return parsed


@pytest.mark.parametrize("module", OF_COMMANDS)
def test_a_hint_that_is_a_command_is_a_whole_one(module: str, parse: Callable[[list[str]], int]) -> None:
    """What the message fills in is a number here, which names a table and counts as one."""
    for line in {line for text in command_texts(module) for line in text.split("\n") if line.startswith("paimon-cli ")}:
        words = shlex.split(line.partition("    #")[0].replace(WORD, "7").removeprefix("paimon-cli "))
        if line in OPTIONS_FILLED_IN or words[0] == "7" or words[:3] == ["alter", "7", "7"]:
            continue  # the command itself is filled in
        assert parse(words) == 0, line


PASTED = re.compile(r"(?:^|[:,;] |run )paimon-cli ([a-z][^`\n;]*)$", re.MULTILINE)
"""A command to paste: the rest of a line of a message."""
PLACEHOLDER = re.compile(r"(?<![\w/:=-])(?:[A-Z][A-Z_]+|N)(?![\w/:-])|=(?:VALUE|N|[A-Z]+/[A-Z]+)\b")
MAY_BE_LEFT_OPEN = {
    "FILE": "input files, which the user has",
    "CONDITION": "the rows to delete",
    "N": "a number of buckets, or a snapshot to go back to",
    "=VALUE": "the values of a partition",
    "KEY": "the values of a partition",
    "NEW": "another name of a dropped table",
    "NEW_TABLE": "the name of a copy",
    "ROWS": "the right rows of a damaged partition",
    "BIGINT": "the columns of a new table",
}
"""What only the user can fill in, and what it is. The names of tables and columns are known."""
TABLE_IS_UNKNOWN = {
    "catalog/table_location.py": "write TABLE X",
    "catalog/metastore/filesystem.py": "create X.TABLE -C 'id BIGINT'X",
}
"""Messages about a command line that names no table."""


def test_hints_name_the_table() -> None:
    found = {
        (module, command, placeholder)
        for module, text in messages()
        for command in PASTED.findall(text)
        for placeholder in PLACEHOLDER.findall(command)
        if placeholder not in MAY_BE_LEFT_OPEN and set(placeholder) != {WORD} and TABLE_IS_UNKNOWN.get(module) != command.strip()
    }
    assert not found


def _filled_in(line: str) -> str:
    """The command with a number, which names a table and counts as one, for what is filled in, without flags that may follow."""
    command = re.sub(r"(?<=\w)X", "", line.partition("    #")[0])
    return re.sub(r"(?<=\w )N$", "7", command).replace(WORD, "7")


def test_commands_at_the_end_of_messages_are_whole_ones(parse: Callable[[list[str]], int]) -> None:
    count = 0
    for module, text in messages():
        for line in PASTED.findall(text):
            try:
                words = shlex.split(_filled_in(line))
            except ValueError:
                continue  # prose
            if words[0] == "7" or words[:3] == ["alter", "7", "7"] or f"paimon-cli {line}" in OPTIONS_FILLED_IN:
                continue  # the command itself is filled in
            assert parse(words) == 0, f"{module}: {line}"
            count += 1
    assert count > 80


DISCARDS = re.compile(
    r"paimon-cli (?:drop|drop-partition|truncate|delete|expire|rollback(?!.*--as-new)|db drop|branches rm|tags rm|stage abort"
    r"|consumers (?:rm|reset)|locks break)\b|paimon-cli [^`\n;]*--(?:overwrite|apply|force|cascade|quarantine)\b"
    r"|--on-error skip|--force\b(?! need| without)|--assume-new(?! without)"
)
SAYS_SO = re.compile(
    r"\b(?:delete[sd]?|discards?|removes?|los[et]s?|lost|leaves .* out|leave .* out|replaces?|overwrites?|expired?"
    r"|look for its rows)\b"
)
SAID_BESIDE = {
    "inspect/findings/bucket_rules.py": "a finding says what its command does, and why",
    "inspect/findings/history_rules.py": "a finding says what its command does, and why",
    "inspect/findings/runner.py": "a finding says what its command does, and why",
    "invariants/file_repairs.py": "a step of a repair says what is lost (`loss`)",
    "invariants/repair_plan.py": "a step of a repair says what is lost (`loss`)",
}
"""Modules whose commands are shown beside a text that says what they do."""


KEEP_THEIR_QUESTION = re.compile(
    r"paimon-cli (?:drop|truncate|sql|rollback|db drop|branches rm|tags rm|expire|stage abort|locks break|trash empty)\b"
)
"""Commands that discard something: in the hint of an error they still ask, and without a terminal they refuse."""
ALWAYS_ASK = re.compile(r"paimon-cli (?:db )?drop\b")
"""Commands that delete whatever table has the name by now: they ask even in a finding."""
ONLY_LOOK_WITHOUT = {"repair": "--apply", "orphans rm": "--apply", "health": "--fix"}


def test_commands_can_be_pasted_without_a_terminal() -> None:
    """The command of a finding or a repair step has `--yes`, unless it drops a table; so has a hint that discards nothing."""
    count = 0
    for module, text in messages():
        for line in PASTED.findall(text):
            for name, words in named_commands(f"paimon-cli {line}"):
                if not name or "--yes" not in options_of(name) or ONLY_LOOK_WITHOUT.get(name, name) not in (name, *words):
                    continue
                if PLACEHOLDER.search(line.replace(WORD, "")):
                    continue  # cannot be pasted as it is
                asks = ALWAYS_ASK if module in SAID_BESIDE else KEEP_THEIR_QUESTION
                is_answered = bool({"--yes", "--dry-run", "-n"} & set(words))
                assert is_answered != bool(asks.match(f"paimon-cli {line}")), f"{module}: {line}"
                count += 1
    assert count > 15


def test_hints_that_discard_something_say_so() -> None:
    silent = {
        (module, text)
        for module, text in messages()
        if module not in SAID_BESIDE and " " in text.strip() and " takes no " not in text and DISCARDS.search(text)
        if not SAYS_SO.search(DISCARDS.sub("", text))
    }
    assert not silent


def test_the_library_names_calls() -> None:
    calls = 0
    for _, text in messages():
        for command in re.findall(r"paimon-cli [a-z][^`\n;]*", text):
            told = in_python(command.replace(WORD, "7"))
            if told.startswith("Table.open("):
                call = ast.parse(told, mode="eval").body
                assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
                parts = {".alter.": Alter, ".tags.": Tags, ".branches.": Branches, ".consumers.": Consumers}
                owner = next((owner for part, owner in parts.items() if part in told), Table)
                signature = inspect.signature(getattr(owner, call.func.attr))
                takes_more = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
                unknown = {word.arg for word in call.keywords} - set(signature.parameters)
                assert not unknown or takes_more, told
                calls += 1
    assert calls > 30
    assert all(callable(getattr(Table, method)) for method in METHODS.values() if "." not in method)
    assert all(hasattr(Catalog, method) for method in METHODS_OF_CATALOG.values())
    classes = {"Table": Table, "Catalog": Catalog}
    assert all(hasattr(classes[owner], name) for owner, _, name in (call.partition(".") for call in CALLS.values()))


@pytest.mark.parametrize(
    ("command_line", "library"),
    [
        ("create the table with `paimon-cli create`", "create the table with Table.create"),
        ("pass --warehouse URI, or name a path instead", "pass warehouse=URI, or name a path instead"),
        ("see: paimon-cli verify './a b' --level full", "see: Table.open('./a b').verify(level='full')"),
        ("paimon-cli rescale t --buckets 4; then again", "Table.open('t').rescale(buckets=4); then again"),
        ("run: paimon-cli rescale t --buckets 4 --yes", "run: Table.open('t').rescale(buckets=4)"),
        ("paimon-cli snapshots ls t --user etl", "Table.open('t').snapshots(user='etl')"),
        ("paimon-cli compact t --dedicated", "Table.open('t').compact(dedicated=True)"),
        ("paimon-cli compact s.t --warehouse w --branch b", "Table.open('s.t', warehouse='w', branch='b').compact()"),
        ("paimon-cli health t --option table-timeout=1m", "paimon-cli health t --option table-timeout=1m"),
        ("paimon-cli alter t unset bucket", "Table.open('t').alter.unset('bucket')"),
        ("paimon-cli alter t set a=1 b.c=x", "Table.open('t').alter.set({'a': '1', 'b.c': 'x'})"),
        ("paimon-cli alter t add-column 'v INT'", "Table.open('t').alter.add_column('v INT')"),
        ("such as: paimon-cli alter t add-column '`a b` INT'", "such as: Table.open('t').alter.add_column('`a b` INT')"),
        ("paimon-cli alter t drop-column v", "paimon-cli alter t drop-column v"),
        ("paimon-cli create 't' -C 'id INT' -C 'v INT'", "Table.create('t', columns=['id INT', 'v INT'])"),
        ("paimon-cli create t -C 'id INT' --bucket 2", "paimon-cli create t -C 'id INT' --bucket 2"),
        ("paimon-cli drop t", "paimon-cli drop t"),
        ("paimon-cli tags ls t", "Table.open('t').tags.ls()"),
        ("to move it: paimon-cli tags replace t year-end", "to move it: Table.open('t').tags.replace('year-end')"),
        ("paimon-cli tables ls shop --warehouse 's3://a b'", "Catalog('s3://a b').tables('shop')"),
        ("paimon-cli db ls --warehouse w", "Catalog('w').databases()"),
        ("paimon-cli tables ls a b", "paimon-cli tables ls a b"),
        ("create it: paimon-cli create ./t -C 'id BIGINT'", "create it: Table.create('./t', columns=['id BIGINT'])"),
        ("paimon-cli create t --bucket 1", "paimon-cli create t --bucket 1"),
        ("paimon-cli db create shop --warehouse w", "Catalog('w').create_database('shop')"),
        ("paimon-cli tables clone a ./b", "Catalog().clone_table('a', './b')"),
        ("paimon-cli undrop shop.t", "Catalog().undrop('shop.t')"),
        ("paimon-cli undrop shop.t --as NEW", "paimon-cli undrop shop.t --as NEW"),
        ("paimon-cli compare ./t@1 ./t@4", "Catalog().compare('./t@1', './t@4')"),
        ("paimon-cli repair t --only hints --apply --yes", "Table.open('t').repair(only='hints')"),
        ("paimon-cli repair t", "Table.open('t').plan_repair()"),
        ("paimon-cli branches create t b", "Table.open('t').branches.create('b')"),
        ("paimon-cli compact t u", "paimon-cli compact t u"),
        ("paimon-cli files ls t --snapshot 7", "Table.open('t').files(snapshot=7)"),
        (f"paimon-cli files ls t --snapshot {'9' * 5000}", f"Table.open('t').files(snapshot='{'9' * 5000}')"),
        ("paimon-cli files ls t --snapshot ٣", "Table.open('t').files(snapshot='٣')"),
        ("add --order-by a,b", "add order_by a,b"),
        ("run it again with --trace; --engine local needs no Spark", "run it again with trace; engine='local' needs no Spark"),
        ("use fewer cores: --master 'local[2]'", "use fewer cores: master='local[2]'"),
        ("such as --remote sc://localhost:15002", "such as master='sc://localhost:15002'"),
        ("--remote sc://: no host", "remote sc://: no host"),
        ("check --master and --spark-conf", "check master and spark_conf"),
    ],
)
def test_hints_in_the_library(command_line: str, library: str) -> None:
    assert in_python(command_line) == library


def test_hints_about_spark_fit_into_a_notebook() -> None:
    """There is no command line: settings are arguments of calls, which Python can read."""
    told = [
        (module, in_python(text)) for module, text in messages() if module.startswith(("jobs/spark/", "spark/")) and "--" in text
    ]
    assert len(told) > 5
    for module, text in told:
        assert not re.search(r"(?<!\w)--[a-z]", text), f"{module}: {text}"
        for call in re.findall(r"\b(?:engine|master|spark_conf)=\S+(?: '[^']*'})?", text):
            assert eval(f"dict({call.rstrip('.,;')})"), f"{module}: {text}"


def test_options_in_texts_are_there() -> None:
    known = {option for name in COMMANDS for option in options_of(name)} | OTHERS
    wrong = {
        (path.name, option)
        for path in SOURCES
        for text in texts(path)[0]
        if not FOREIGN.search(text)
        for option in OPTION.findall(text)
        if option not in known
    }
    assert not wrong
