"""Generates the parts of the documentation that describe the program: commands, options, JSON names, compatibility, pictures.

    python -m scripts.build_docs        # renews the generated parts of README.md, docs/pictures and docs/screens

The reference pages are generated while MkDocs builds the site (`make docs`); this module is one of its hooks.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import pydoc
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from griffe import Docstring, Extension, Function, Object, Parameter, ParameterKind, Parameters

import paimon_cli
from paimon_cli import Table
from scripts.run_snippets import commands as commands_of
from scripts.topology_picture import topology_picture

ROOT = Path(__file__).resolve().parent.parent
DOCS, PICTURES, SCREENS = ROOT / "docs", ROOT / "docs" / "pictures", ROOT / "docs" / "screens"
BORROWED = ("README.md", "FORMAT.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Pages in the root of the repository; on the site they are beside the others."""
NAVIGATION: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Start", ("index.md", "tutorial.md")),
    (
        "Tables",
        ("loading.md", "change-streams.md", "reading.md", "sql.md", "kinds-of-tables.md", "merge-engines.md", "compaction.md"),
    ),
    (
        "Running it",
        (
            "concurrency.md",
            "model.md",
            "lab.md",
            "operations.md",
            "history.md",
            "backup.md",
            "erasure.md",
            "service.md",
            "fluss-and-flink.md",
        ),
    ),
    ("Where tables are", ("catalogs.md", "object-stores.md")),
    ("Spark and Python", ("engines.md", "spark.md", "yarn.md", "kubernetes.md", "library.md", "agents.md", "python-api.md")),
    ("Reference", ("commands.md", "outputs.md", "options.md", "exit-codes.md", "findings.md", "json.md", "FORMAT.md")),
    ("Background", ("ARCHITECTURE.md", "decisions.md", "proofs.md", "CONTRIBUTING.md", "speed.md", "CHANGELOG.md")),
)
WRITERS = {
    "java-0.9": ("Java Paimon 0.9", ("java-0.9", "java-0.9-extra")),
    "java-1.4": ("Java Paimon 1.4", ("java-1.4",)),
    "pypaimon": ("pypaimon 2.1", ("pypaimon-2.1",)),
    "rust": ("paimon-rust 0.4", ("rust-0.4",)),
}
PICTURE_ACCOUNTS, PICTURE_CHANGES, PICTURE_COMMITS, PICTURE_COMPACTIONS = 40_000, 3_000, 30, (7, 14, 20, 25)
SCREEN = (96, 16)
"""The columns and lines of the terminal in a picture."""
BLOCK = re.compile(r"(<!-- generated: (\w+) .*?-->\n).*?(<!-- end -->)", re.DOTALL)
_EXAMPLE = re.compile(r"^(>>> .*(?:\n.+)*)", re.MULTILINE)
_FLAG = re.compile(r"\[/?[a-z ]+\]")


def readers() -> str:
    """The table of implementations whose tables we read and which read ours, with the numbers of tables in tests/goldens."""
    from tests.goldens import _all_goldens

    lines = ["| | its tables in our tests | we read and write them | it reads ours |", "|---|---|---|---|"]
    for name, archives in WRITERS.values():
        tables = [golden for golden in _all_goldens() if golden.writer in archives]
        keyed = sum(bool(golden.schema["primaryKeys"]) for golden in tables)
        kinds = f"{len(tables)}: {keyed} with a primary key, {len(tables) - keyed} append"
        lines.append(f"| {name} | {kinds} | yes | yes |")
    return "\n".join(lines)


PARTS = {"readers": readers}


def renewed(page: str) -> str:
    """The page with its generated parts renewed."""
    return BLOCK.sub(lambda block: f"{block[1]}{PARTS[block[2]]()}\n{block[3]}", page)


@contextmanager
def _pictured() -> Iterator[Table]:
    """The table of the pictures: one bucket after commits and a few compactions."""
    from paimon_cli.api.catalog import Catalog
    from paimon_cli.cli import demo_command

    with TemporaryDirectory() as folder:
        columns = ["id BIGINT NOT NULL", "owner STRING", "balance BIGINT"]
        settings = {"bucket": "1", "write-only": "true"}
        Table.create("bank.accounts", columns=columns, primary_key=["id"], options=settings, warehouse=folder)
        table = Catalog(folder).table("bank.accounts")
        for number in range(PICTURE_COMMITS):
            table.write(demo_command.batch(number, PICTURE_ACCOUNTS, PICTURE_CHANGES))
            if number in PICTURE_COMPACTIONS:
                table.compact(strategy="minor")
        yield table


def lsm_picture() -> str:
    """The sorted runs of a bucket, as `report` draws them."""
    from paimon_cli.inspect.charts import drawing, ranges
    from paimon_cli.inspect.report_buckets import tree_ranges
    from paimon_cli.inspect.report_figures import report_figures

    with _pictured() as table:
        (tree,) = report_figures(table.context, "accounts", "accounts").trees
    title = "The sorted runs of a bucket"
    says = f"{len(tree.runs)} sorted runs after 30 commits and 4 compactions: each bar goes from the lowest key to the highest"
    return drawing("lsm", title, says, *ranges(tree_ranges(tree)), standalone=True)


def amplification_picture() -> str:
    """How the sorted runs of a bucket grow with each commit and fall with each compaction, as `report` draws them."""
    from paimon_cli.inspect.charts import Axis, Line, drawing, lines
    from paimon_cli.inspect.report_figures import report_figures

    with _pictured() as table:
        moments = report_figures(table.context, "accounts", "accounts").history
    runs = [Line([(number, moment.most_runs or 0) for number, moment in enumerate(moments)])]
    across = Axis(str, ends=(f"snapshot {moments[0].snapshot_id}", f"snapshot {moments[-1].snapshot_id}"))
    chart = lines(runs, Axis(lambda value: f"{value:g}"), across)
    says = "the number of sorted runs that a read merges: each commit adds one, and each compaction leaves fewer"
    return drawing("runs", "Read amplification", says, *chart, standalone=True)


def browser_picture() -> str:
    """The terminal browser at the sorted runs of a bucket, without the fonts that Textual would load from a network."""
    import asyncio

    from paimon_cli.cli.browser import Browser, buckets_level

    async def drawn(table: Table) -> str:
        browser = Browser(buckets_level(table, table.snapshot_ids()[-1]), 3600)
        async with browser.run_test(size=SCREEN) as pilot:
            for keys in ((), ("enter",)):
                await pilot.press(*keys)
                await pilot.pause()
                await browser.workers.wait_for_complete()
                await pilot.pause()
            return str(browser.export_screenshot(title="paimon-cli tui"))

    with _pictured() as table:
        svg = asyncio.run(drawn(table))
    return re.sub(r"\s*@font-face\s*{[^}]*}|<!--.*?-->", "", svg, flags=re.DOTALL).strip()


def speed_picture() -> str:
    """How much longer other implementations take, from the first table of docs/speed.md."""
    from paimon_cli.inspect.charts import Bar, Part, bars, drawing

    rows = []
    for cells in _table_below("## Against other implementations"):
        rows.append(Bar(f"{cells[0]}: paimon-cli", [Part(1, "l4", cells[1])], cells[1]))
        for name, cell in (("paimon-rust 0.4", cells[2]), ("Java 0.9, warm", cells[3])):
            times = re.match(r"[0-9.]+", cell)
            if times is not None:
                rows.append(Bar(name, [Part(float(times[0]), "analyze", f"{times[0]} times")], f"{times[0]} times"))
    return drawing("speed", "Speed beside other implementations", "times, shorter is faster", *bars(rows), standalone=True)


def _table_below(heading: str) -> Iterator[list[str]]:
    text = (DOCS / "speed.md").read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    yield from ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:])


def commands_page() -> str:
    """Each command with its help, arguments and options. Options that all commands share are listed once."""
    from typer.main import get_command

    from paimon_cli.cli.app import app

    commands = dict(_commands(get_command(app)))
    shared = [parameter for parameter in commands["version"].params if parameter.rich_help_panel == "Common"]
    lines = [
        "# Commands",
        "",
        "What `paimon-cli COMMAND --help` shows, and for many commands what they print (of one small table,",
    ]
    lines += ["see [outputs](outputs.md)). All commands also take:", "", *_options_table(shared)]
    outputs = outputs_of_commands(commands)
    for name, command in commands.items():
        own = [each for each in command.params if each.name not in {one.name for one in shared} and not each.hidden]
        arguments = " ".join(each.metavar or each.name.upper() for each in own if each.param_type_name == "argument")
        help_text = _FLAG.sub("", command.help or "")
        text, examples = _split_examples(help_text)
        lines += ["", f"## {name}", "", f"`paimon-cli {name} {arguments}`".replace(" `", "`"), "", text, ""]
        lines += ["```sh", *examples, "```", ""] if examples else []
        lines += [text for output in outputs.get(name, ()) for text in ("```console", output, "```", "")]
        lines += _options_table([each for each in own if each.name != "help"])
    return "\n".join(lines) + "\n"


def outputs_of_commands(names: Iterable[str]) -> dict[str, list[str]]:
    """What commands print, as docs/outputs.md shows it: each command line with its output, by the name of the command."""
    found: dict[str, list[str]] = {}
    longest_first = sorted(names, key=len, reverse=True)
    for block in re.findall(
        r"^```console\n(.*?)^```$", (DOCS / "outputs.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        for line, output in commands_of(block):
            name = next((name for name in longest_first if line.startswith(f"$ paimon-cli {name} ")), None)
            if name is not None:
                found.setdefault(name, []).append((line + output).rstrip("\n"))
    return found


def _split_examples(text: str) -> tuple[str, list[str]]:
    paragraphs = [paragraph.strip() for paragraph in text.split("\n\n")]
    is_example = [paragraph.startswith("paimon-cli ") for paragraph in paragraphs]
    help_text = "\n\n".join(paragraph for paragraph, shown in zip(paragraphs, is_example, strict=True) if not shown)
    return help_text, [paragraph for paragraph, shown in zip(paragraphs, is_example, strict=True) if shown]


def _options_table(parameters: list[Any]) -> list[str]:
    if not parameters:
        return []
    lines = ["| argument or option | meaning |", "|---|---|"]
    for each in parameters:
        names = (
            each.metavar or each.name.upper()
            if each.param_type_name == "argument"
            else ", ".join((*each.opts, *each.secondary_opts))
        )
        value = (
            each.metavar if each.metavar and each.param_type_name != "argument" and not getattr(each, "is_flag", False) else ""
        )
        spelled = f"`{names} {value}`".replace(" `", "`").replace("|", "\\|")
        lines.append(f"| {spelled} | {_cell(each.help or '')} |")
    return lines


def _commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path}{name} ")
        elif not command.hidden:
            yield f"{path}{name}", command


def options_page() -> str:
    """The table options, by group."""
    from paimon_cli.options.option_catalog import OPTIONS, OWN_OPTIONS

    groups: dict[str, list[Any]] = {}
    for option in (*OWN_OPTIONS, *OPTIONS):
        groups.setdefault(option.group, []).append(option)
    lines = [
        "# Table options",
        "",
        "Every option of Paimon, and whether paimon-cli honours it. `paimon-cli options explain KEY` says",
    ]
    lines += ["more about one of them; a harmless option means nothing here."]
    for name in sorted(groups, key=lambda group: (group != "paimon-cli", group != "core", group)):
        lines += ["", f"## {name}", "", "| option | default | meaning | here |", "|---|---|---|---|"]
        for option in groups[name]:
            default = "" if option.default is None else f"`{option.default}`"
            here = f"{option.status}: {option.reason}" if option.reason else option.status
            lines.append(f"| `{option.key}` | {_cell(default)} | {_cell(option.description)} | {_cell(here)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def json_page() -> str:
    """The JSON names of every result, from the dataclasses that the commands print."""
    from paimon_cli.cli.columns import columns_of

    lines = [
        "# JSON names",
        "",
        'With `-o json` a list is `{"apiVersion": "paimon-cli/v1", "kind": ..., "table": ..., "items": [...]}`; one thing has',
        "`item` instead of `items`. `-o ndjson` prints the items alone, one a line, and `-o csv` the same names as a header.",
        "`--fields a,b` chooses some of them. Sequence numbers and commit identifiers are strings, sizes are bytes, times are",
        "RFC 3339 in UTC.",
        "",
        "Beside `items`, `doctor` has `passed` (checks without a finding, with `subject` and `message`), `verify` has `checks`",
        "(`check`, `result`, `findings`), `repair --apply` has `made` (the number of repairs) and `snapshots` (their ids), and",
        "`compact --dry-run` of one table has `snapshot_id`, for `--if-snapshot`; `health --fix` has `fixes` (`table`,",
        "`command`, `codes`, `state`, `message`).",
        "",
    ]
    for shape in sorted(_results().values(), key=lambda each: each.__name__):
        names = ", ".join(f"`{column.name}`" for column in columns_of(shape))
        lines += [f"## {shape.__name__}", "", _cell(shape.__doc__ or ""), "", names, ""]
    return "\n".join(lines)


@cache
def _results() -> Mapping[str, type]:
    """The dataclasses that commands print: those of a `Listing` in `cli`, and those whose columns are described there."""
    from paimon_cli import cli
    from paimon_cli.cli.columns import KIND_OF_NAME, SHOWN_FIELDS, TITLES

    described = {key.split(".")[0] for key in (*KIND_OF_NAME, *TITLES) if "." in key} | {*SHOWN_FIELDS}
    names = described | {
        name for path in Path(cli.__path__[0]).glob("*.py") for name in _printed(path.read_text(encoding="utf-8"))
    }
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(paimon_cli.__path__, "paimon_cli."):
        if module.name.split(".")[1] in ("inspect", "jobs", "read", "maintain", "api", "invariants", "lab", "compact", "catalog"):
            content = vars(importlib.import_module(module.name))
            found |= {name: content[name] for name in names & content.keys() if is_dataclass(content[name])}
    return found


def _printed(source: str) -> list[str]:
    return re.findall(r'Listing\("\w+", [^,]+, (\w+),', source)


def renew() -> None:
    """Renew the generated parts of README.md, and the pictures."""
    readme = ROOT / "README.md"
    readme.write_text(renewed(readme.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "lsm-tree.svg").write_text(lsm_picture() + "\n", encoding="utf-8")
    (PICTURES / "read-amplification.svg").write_text(amplification_picture() + "\n", encoding="utf-8")
    SCREENS.mkdir(exist_ok=True)
    (SCREENS / "tui.svg").write_text(browser_picture() + "\n", encoding="utf-8")
    (PICTURES / "speed.svg").write_text(speed_picture() + "\n", encoding="utf-8")
    (PICTURES / "topologies.svg").write_text(topology_picture() + "\n", encoding="utf-8")


def _shown(parameter: inspect.Parameter) -> Parameter:
    """A parameter of a method as mkdocstrings shows it."""
    default = None if parameter.default is inspect.Parameter.empty else repr(parameter.default)
    annotation = None if parameter.annotation is inspect.Parameter.empty else inspect.formatannotation(parameter.annotation)
    is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    kind: Any = ParameterKind.keyword_only if is_keyword else ParameterKind.positional_or_keyword
    return Parameter(
        parameter.name,
        annotation=annotation,
        kind=kind,
        default=default,
    )


class FencedExamples(Extension):
    """mkdocstrings: shows the examples of docstrings as code blocks. In plain Markdown, `>>>` would be a nested quotation.

    A method that takes a request has the keywords and the docstring of the running program.
    """

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if isinstance(obj, Function) and any(str(one.value).startswith("takes(") for one in obj.decorators):
            method: Any = pydoc.locate(obj.path)
            obj.docstring = Docstring(inspect.getdoc(method) or "", parent=obj)
            obj.parameters = Parameters(*map(_shown, inspect.signature(method).parameters.values()))
        if obj.docstring is not None:
            obj.docstring = Docstring(_EXAMPLE.sub(r"```pycon\n\1\n```", obj.docstring.value), parent=obj)


def on_config(config: Any) -> Any:
    """MkDocs: the navigation. Known pages come in order, others at the end."""
    made = {"index.md", "commands.md", "options.md", "json.md", *BORROWED}
    there = made | {path.name for path in DOCS.glob("*.md")}
    listed = {page for _, pages in NAVIGATION for page in pages}
    config.nav = [{title: [page for page in pages if page in there]} for title, pages in NAVIGATION]
    config.nav += [{"More": more}] if (more := sorted(there - listed - {"README.md"})) else []
    return config


def on_files(files: Any, config: Any) -> Any:
    """MkDocs: add the generated pages, and those in the root of the repository."""
    from mkdocs.structure.files import File

    contents = {"commands.md": commands_page(), "options.md": options_page(), "json.md": json_page()}
    for name in BORROWED:
        contents["index.md" if name == "README.md" else name] = (ROOT / name).read_text(encoding="utf-8")
    for name, content in contents.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs: rewrite links between pages for the site, where all pages are in one directory."""
    markdown = re.sub(r"\]\(docs/", "](", markdown).replace('src="docs/', 'src="')
    markdown = re.sub(r"\]\(\.\./(FORMAT|ARCHITECTURE|CONTRIBUTING|CHANGELOG)\.md", r"](\1.md", markdown)
    return re.sub(r"\]\((\.\./)?README\.md", "](index.md", markdown)


if __name__ == "__main__":
    renew()
