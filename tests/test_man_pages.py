"""`make man`: a page for each command, with each of its options, in requests of groff that every formatter knows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import build_man
from tests.cli.test_documented_commands import COMMANDS

REQUESTS = {"TH", "SH", "PP", "TP", "B", "BR", "nf", "fi"}
SHOWN = {words: command for words, command in COMMANDS.items() if not command.hidden}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("man")
    build_man.main([str(made)])
    return made / "man1"


def test_every_command_has_a_page_with_its_options(folder: Path) -> None:
    assert {path.stem for path in folder.iterdir()} == {
        "paimon-cli",
        *(f"paimon-cli-{words.replace(' ', '-')}" for words in SHOWN),
    }
    overview = (folder / "paimon-cli.1").read_text()
    for words, command in SHOWN.items():
        page = (folder / f"paimon-cli-{words.replace(' ', '-')}.1").read_text().replace("\\-", "-")
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden and parameter.name != "help":
                assert f"\n.B {', '.join((*parameter.opts, *parameter.secondary_opts))}" in page, (words, parameter.name)
        assert f"\n.B {words}\n".replace("-", "\\-") in overview


def test_pages_hold_no_request_or_escape_of_a_text(folder: Path) -> None:
    for path in folder.iterdir():
        content = path.read_text()
        requests = set(re.findall(r"^\.([A-Za-z]+)", content, re.MULTILINE))
        assert requests <= REQUESTS, path.name
        assert not re.search(r"^'", content, re.MULTILINE), path.name
        assert set(re.findall(r"\\(.)", content)) <= {"-", "e", "&"}, path.name
    assert build_man.escaped(".so /etc/passwd\n'x \\*[y] a-b") == "\\&.so /etc/passwd\n\\&'x \\e*[y] a\\-b"


def test_pages_say_what_an_option_takes(folder: Path) -> None:
    page = (folder / "paimon-cli-expire.1").read_text()
    assert ".B \\-\\-what snapshots|partitions|changelogs|tags|consumers\n" in page
    assert ".B \\-\\-older\\-than AGE|TIME\n" in page and ".SH EXAMPLES\n.nf\npaimon\\-cli expire ./wh" in page


def test_groff_formats_the_pages(folder: Path) -> None:
    groff = shutil.which("groff")
    pages = sorted(map(str, folder.iterdir()))
    assert pages and all(Path(page).stat().st_size > 500 for page in pages)
    if groff is not None:  # an additional judge, where it is installed
        done = subprocess.run([groff, "-man", "-Tutf8", "-ww", *pages], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "warning" not in done.stderr, done.stderr[:500]
        assert "Expire only items older than this" in done.stdout
