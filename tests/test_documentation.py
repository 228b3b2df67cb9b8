"""The pages show what the commands print, and the parts that are made from the program are up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paimon_cli import Table
from scripts import build_docs
from scripts.run_snippets import PAGES, ROOT, commands, comparable, rewritten
from scripts.topology_picture import topology_picture

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_what_its_commands_print(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert comparable(rewritten(text, tmp_path)) == comparable(text)


def test_pages_name_tables_in_one_way() -> None:
    """As README does: by warehouse, database and table, so that a command of one page can be pasted beside those of another."""
    created = {
        (page, name)
        for page in PAGES
        for name in re.findall(r"^\$ paimon-cli create (\S+)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(created) > 12 and {(page, name) for page, name in created if not name.startswith("wh/shop.db/")} == set()


def test_the_commands_of_the_page_about_catalogs_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(tmp_path / "wh"))
    [block] = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs/catalogs.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    shown = rewritten("```console\n" + re.sub(r"^(.*)$", r"$ \1", block.strip(), flags=re.MULTILINE) + " --yes\n```\n", tmp_path)
    said = [line for line in shown.splitlines()[1:-1] if not line.startswith("$ ")]
    assert [line.split(" ")[0] for line in said if not line.startswith(("Table", "1 table", "shop.orders "))] == [
        *("created", "created", "renamed", "cloned", "dropped")
    ], shown


@pytest.mark.nightly
def test_the_scripts_that_arrange_writers_work(tmp_path: Path) -> None:
    section = (ROOT / "docs/concurrency.md").read_text(encoding="utf-8").partition("## Arrange the writers yourself")[2]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = "\n".join(["set -euo pipefail", *blocks])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env={**os.environ, "PATH": place}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = Table.open(str(tmp_path / "wh/shop.db/orders"))
    snapshots = table.snapshots()
    assert [snapshot.kind for snapshot in snapshots] == ["APPEND"] * (1 + 4 + 2 + 1)
    writers = [snapshot.delta_record_count or 0 for snapshot in snapshots if snapshot.commit_user.startswith("writer-")]
    assert len(writers) == 4 and sum(writers) == 400
    assert table.scan().to_arrow().column("v").to_pylist() == ["first"] * 400
    assert done.stdout.endswith("\n0\n1\n2\n3\n_SUCCESS\n") or done.stdout.endswith("\n_SUCCESS\n0\n1\n2\n3\n")


def test_a_page_that_is_not_true_is_found(tmp_path: Path) -> None:
    page = "```console\n$ echo one \\\n  two\none\n$ exit 3\n$ echo $?\n3\n```\n\n```python\nx = 1\n```\n"
    assert rewritten(page, tmp_path) == page.replace("\none\n", "\none two\n")
    assert list(commands("$ a\nb\n$ c\n")) == [("$ a\n", "b\n"), ("$ c\n", "")]
    with pytest.raises(AssertionError):
        rewritten("```python\nassert False\n```\n", tmp_path)


def test_times_and_sizes_are_not_compared_but_counts_are() -> None:
    one, other = "3 rows, 1.2 kB in 0.1 s at 2026-11-22 16:54:07", "3 rows, 900 B in 12.0 s at 2026-01-01 00:00:00"
    assert comparable(one) == comparable(other) != comparable(other.replace("3 rows", "4 rows"))


def test_the_readme_is_short_and_its_generated_parts_are_new() -> None:
    assert len(README.splitlines()) <= 200
    assert build_docs.renewed(README) == README
    assert "| Java Paimon 1.4 | 23: " in README


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", README)
    assert len(links) > 15
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


LETTER, PADDING = 7, 4
"""Pixels: the mean width of a letter in a wide font, and what is left on both sides of a text in a box."""


def test_texts_fit_into_their_boxes_and_pictures_have_a_margin() -> None:
    """Boxes are as wide as their texts in any font, and no text begins or ends at the edge of its picture."""
    drawn = (build_docs.PICTURES / "topologies.svg").read_text(encoding="utf-8")
    boxes = re.findall(r'<rect x="([\d.]+)" [^>]*?width="([\d.]+)" [^>]*/><text class="" x="([\d.]+)"([^>]*)>([^<]+)<', drawn)
    assert len(boxes) == 23
    for left, width, x, more, text in boxes:
        half = len(text) * LETTER / 2
        middle = float(x) if "middle" in more else float(x) + half
        assert float(left) + PADDING <= middle - half and middle + half <= float(left) + float(width) - PADDING, text
    for picture in build_docs.PICTURES.iterdir():
        drawn = picture.read_text(encoding="utf-8")
        left, _, width, _ = map(float, re.findall(r'viewBox="([^"]+)"', drawn)[0].split())
        places = [float(x) for x in re.findall(r'<text [^>]*?x="([\d.]+)"', drawn)]
        assert left + 2 * PADDING <= min(places) and max(places) <= left + width - 2 * PADDING, picture


@pytest.mark.parametrize("name", ["lsm-tree.svg", "read-amplification.svg", "speed.svg", "topologies.svg"])
def test_pictures_are_drawn_by_the_program(name: str) -> None:
    draw = {
        "lsm-tree.svg": build_docs.lsm_picture,
        "read-amplification.svg": build_docs.amplification_picture,
        "speed.svg": build_docs.speed_picture,
        "topologies.svg": topology_picture,
    }[name]
    stored = (build_docs.PICTURES / name).read_text(encoding="utf-8")
    assert comparable(stored).strip() == comparable(draw()).strip()


def test_the_picture_of_the_browser_is_what_it_shows() -> None:
    def texts(svg: str) -> str:
        return comparable(" ".join(re.findall(r"<text[^>]*>([^<]*)<", svg)).replace("&#160;", " "))

    stored = (build_docs.SCREENS / "tui.svg").read_text(encoding="utf-8")
    assert texts(stored) == texts(build_docs.browser_picture())
    assert "bank.accounts" in texts(stored) and "http" not in stored.replace("http://www.w3.org/2000/svg", "")


def test_the_reference_has_every_command_option_and_result() -> None:
    page = build_docs.commands_page()
    assert {"## write", "## snapshots ls", "## demo", "## report"} <= set(page.splitlines())
    assert "| `--html FILE` | File or URL to write the page to. |" in page
    options = build_docs.options_page()
    assert "| `merge-engine` | `deduplicate` |" in options and options.count("\n| `") > 500
    assert "`commit_identifier`" in build_docs.json_page() and "## SnapshotRow" in build_docs.json_page()


def test_the_reference_shows_what_commands_print() -> None:
    sections = dict(part.partition("\n")[::2] for part in build_docs.commands_page().split("\n## ")[1:])
    assert "```console\n$ paimon-cli snapshots ls wh/shop.db/orders" in sections["snapshots ls"]
    assert "4 of 4 snapshots, 1 to 4" in sections["snapshots ls"]
    assert "nothing was changed (dry run)" in sections["compact"] and sections["compact"].count("```console") == 2
    assert "1 table: 0 buckets compacted" in sections["maintain"] and "```console" not in sections["tui"]
    shown = {name for name, text in sections.items() if "```console" in text}
    told = re.findall(
        r"^\$ paimon-cli (\S+(?: (?:ls|show|create|diff|explain))?) ", (ROOT / "docs/outputs.md").read_text(), re.MULTILINE
    )
    assert shown == {name.removesuffix(" wh") for name in told} and len(shown) >= 25, "each output stands below its command"


def test_no_code_block_of_the_site_has_lines_that_cannot_fit() -> None:
    """At 1280 pixels a line has 115 characters; longer ones wrap, which a table of an output should not do."""
    block = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    text = (ROOT / "docs/outputs.md").read_text(encoding="utf-8")
    assert [line for found in block.findall(text) for line in found.splitlines() if len(line) > 120] == []


@pytest.mark.nightly
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"index.html", "tutorial.html", "commands.html", "FORMAT.html"} <= {page.name for page in tmp_path.iterdir()}
    assert (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    for page in ("index.html", "commands.html"):
        text = (tmp_path / page).read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', text), "it works without a network"
        assert 'href="site/site.css"' in text and 'src="site/iframe-worker.js"' in text
        assert not re.search(r"<th[^>]*></th>", text) or page == "index.html"
    assert "white-space: pre-wrap" in (tmp_path / "site" / "site.css").read_text(encoding="utf-8"), "no line of code is cut"
    api = (tmp_path / "python-api.html").read_text(encoding="utf-8")
    for name in ("table.Table.expire", "scan.Scan.to_batches", "versions.Tags.create", "catalog.Catalog.sql"):
        assert f'id="paimon_cli.api.{name}"' in api, name
    assert 'id="paimon_cli.ingest.text_form.TextForm"' in api, "the type of an argument"
    assert "<code>max_buckets</code>: Compact at most N buckets" in api, "a keyword that is declared in a request"
    assert "&gt;&gt;&gt;" not in api.replace('<span class="gp">&gt;&gt;&gt; </span>', ""), "an example outside of a code block"


def test_every_page_of_the_navigation_is_there_or_made() -> None:
    made = {"index.md", "commands.md", "options.md", "json.md", "FORMAT.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    listed = {page for _, pages in build_docs.NAVIGATION for page in pages}
    assert listed - made <= {path.name for path in build_docs.DOCS.glob("*.md")}
