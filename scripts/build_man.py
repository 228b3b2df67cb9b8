"""`make man`: writes a manual page for each command, and `paimon-cli(1)` about all of them, into man/man1.

    python -m scripts.build_man [DIRECTORY]

The pages come from the declarations of the commands, as `--help` and the reference of the documentation do; `make release` puts
them into the sdist. To read them: `man -M man paimon-cli-compact`.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paimon_cli import __version__
from scripts.build_docs import _commands, _split_examples

ROOT = Path(__file__).parent.parent
SECTION = "1"
FILES = {
    "./paimon.yaml": "The configuration of catalogs for this directory, with profiles.",
    "~/.config/paimon-cli/config.yaml": "Your own configuration, which counts in every directory; XDG_CONFIG_HOME moves it.",
}
ENVIRONMENT = {
    "PAIMON_WAREHOUSE": "The warehouse of db.table names.",
    "PAIMON_PROFILE": "The profile of the configuration.",
    "PAIMON_CLI_CONFIG": "Another file as your own configuration.",
    "PAIMON_PAGER, PAGER, NO_PAGER": "The pager of long lists on a terminal; NO_PAGER turns it off.",
    "NO_COLOR, FORCE_COLOR": "Turn colours off, and on in pipes.",
}
EXIT_CODES = {
    "0": "All is well.",
    "1": "A bug of paimon-cli.",
    "2": "Wrong usage or bad input.",
    "3": "Something does not exist.",
    "4": "A check has findings.",
    "5": "A conflict with another job.",
    "6": "A storage, server or lock is not available.",
    "7": "Refused as unsafe, or not confirmed.",
    "8": "Not supported.",
    "9": "Done in part.",
    "10": "A damaged or missing file of a table.",
    "11": "The outcome of a commit is unknown.",
    "130": "Interrupted.",
}


def escaped(text: str) -> str:
    """Text for groff: nothing in it is a request or an escape."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", plain, flags=re.MULTILINE)


def commands() -> dict[str, Any]:
    """Every command by its words, those of groups included."""
    from typer.main import get_command

    from paimon_cli.cli.app import app

    return dict(_commands(get_command(app)))


def summary(command: Any) -> str:
    """The first sentence of the help."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s", text)[0].rstrip(".")


def page(words: str, command: Any) -> str:
    """The manual page of a command."""
    text, examples = _split_examples((command.help or "").replace("\f", "").replace(r"\[", "["))
    shown = [each for each in command.params if each.name != "help" and not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    usage = " ".join(["[OPTIONS]", *(each.metavar or each.name.upper() for each in arguments)])
    name = f"paimon-cli-{words.replace(' ', '-')}"
    lines = [*head(name, f"{summary(command)[:1].lower()}{summary(command)[1:]}"), ".SH SYNOPSIS"]
    lines += [f".B {escaped(f'paimon-cli {words}')}", escaped(usage), ".SH DESCRIPTION"]
    for number, paragraph in enumerate(filter(None, text.split("\n\n"))):
        lines += [*([".PP"] if number else []), escaped(" ".join(paragraph.split()))]
    lines += section("ARGUMENTS", {each.metavar or each.name.upper(): each.help or "" for each in arguments})
    of_panel: dict[str, dict[str, str]] = {}
    for each in options:
        of_panel.setdefault(each.rich_help_panel or "Options", {})[flags(each)] = each.help or ""
    for panel, named in of_panel.items():
        lines += section("OPTIONS" if panel == "Options" else f"{panel} options".upper(), named)
    if examples:
        lines += [".SH EXAMPLES", ".nf", *(escaped(example) for example in examples), ".fi"]
    return "\n".join([*lines, ".SH SEE ALSO", r".BR paimon\-cli (1)"]) + "\n"


def overview(found: Mapping[str, Any]) -> str:
    """`paimon-cli(1)`: all commands with their first sentences, the environment, the files and the exit codes."""
    lines = [*head("paimon-cli", "create, write, read, compact and inspect Apache Paimon tables"), ".SH SYNOPSIS"]
    lines += [r".B paimon\-cli", escaped("COMMAND [OPTIONS] [ARGUMENTS]"), ".SH DESCRIPTION"]
    lines += [escaped("A table is a path or URL, db.table of a warehouse, or @PROFILE/db.table; --help is shorter.")]
    lines += section("COMMANDS", {words: f"{summary(command)}." for words, command in found.items()})
    lines += section("ENVIRONMENT", ENVIRONMENT) + section("FILES", FILES) + section("EXIT STATUS", EXIT_CODES)
    return "\n".join(lines) + "\n"


def head(name: str, what: str) -> list[str]:
    title = f'.TH "{escaped(name.upper())}" "{SECTION}" "" "paimon\\-cli {escaped(__version__)}" "paimon\\-cli"'
    return [title, ".SH NAME", f"{escaped(name)} \\- {escaped(what)}"]


def section(title: str, named: Mapping[str, str]) -> list[str]:
    """A section of names and what they mean; nothing if there are none."""
    entries = ((f".TP\n.B {escaped(name)}\n{escaped(' '.join(text.split()))}") for name, text in named.items())
    return [f".SH {escaped(title)}", *entries] if named else []


def choices(hint: Any) -> tuple[str, ...]:
    """The texts of a `Literal`, also of an optional one."""
    parts = (hint, *typing.get_args(hint))
    return next((tuple(map(str, typing.get_args(part))) for part in parts if typing.get_origin(part) is typing.Literal), ())


def flags(option: Any) -> str:
    """The names of an option, and what it takes."""
    names = ", ".join((*option.opts, *option.secondary_opts))
    value = option.metavar or "|".join(choices(option.type_descriptor.annotation))
    return f"{names} {value}" if value and not option.is_flag else names


def pages() -> Iterator[tuple[str, str]]:
    """The name and the content of each file."""
    found = commands()
    yield f"paimon-cli.{SECTION}", overview(found)
    for words, command in found.items():
        yield f"paimon-cli-{words.replace(' ', '-')}.{SECTION}", page(words, command)


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    folder = Path(given[0] if given else ROOT / "man") / f"man{SECTION}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in pages():
        (folder / name).write_text(content, encoding="utf-8")
    print(f"{sum(1 for _ in folder.iterdir())} pages in {folder}")


if __name__ == "__main__":
    main()
