"""Reports of all kinds of tables in a headless Chromium, at three widths, light and dark: nothing is wider than the window, no
chart has a scroll bar, and no text of a chart is smaller than 12 pixels.

    python -m scripts.nightly.report_screens [--keep DIR]

The exit code is 77 if there is no Chromium. `--keep` keeps the pages and a picture of each.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from paimon_cli import Table
from scripts.nightly.run_all import CANNOT_RUN
from tests.tables import make_table, write

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
WIDTHS = (390, 800, 1400)
COLUMNS = {"id": "BIGINT NOT NULL", "n": "BIGINT", "text": "STRING"}
KINDS: dict[str, tuple[list[str], int, dict[str, str]]] = {
    "empty": (["id"], 1, {}),
    "fixed": (["id"], 3, {"write-only": "true"}),
    "vectors": (["id"], 2, {"deletion-vectors.enabled": "true"}),
    "dynamic": (["id"], -1, {}),
    "append": ([], -1, {}),
}


def pages(folder: Path) -> Iterator[Path]:
    """A report for each kind of table, after twelve commits."""
    for kind, (keys, bucket, options) in KINDS.items():
        context = make_table(folder / f"{kind} <b>&\"'", COLUMNS, keys, bucket=bucket, options=options)
        for commit in range(0 if kind == "empty" else 12):
            write(context, [{"id": number, "n": commit, "text": "x" * commit} for number in range(commit, 40 * commit + 1)])
        page = folder / f"{kind}.html"
        Table.open(context.url).report(str(page))
        yield page


LOOK = """f => { const page = f.contentDocument, shown = [...page.querySelectorAll('svg')].filter(s => s.getClientRects().length);
  return [page.documentElement.scrollWidth,
    Math.min(...shown.map(s => 12 * s.getBoundingClientRect().width / s.viewBox.baseVal.width)),
    [...page.querySelectorAll('figure *')].filter(e => e.scrollWidth > e.clientWidth
      && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)).length] }"""
"""The width of a page, the size of the smallest text in a chart (null without charts), and how many elements of charts scroll."""


def faults_in(browser: str, page: Path, scheme: str) -> Iterator[str]:
    """What is wrong with a page in windows of each width, as the browser lays it out."""
    text = html.escape(page.read_text())
    frames = "".join(
        f'<iframe title="{width}" width="{width}" height="900" style="border:0" srcdoc="{text}"></iframe>' for width in WIDTHS
    )
    frame = page.with_suffix(".frames.html")
    script = (
        f"const look = {LOOK}; onload=()=>document.title=JSON.stringify(Object.fromEntries("
        "[...document.querySelectorAll('iframe')].map(f=>[f.title,look(f)])))"
    )
    frame.write_text(f"<!doctype html><title>-</title>{frames}<script>{script}</script>")
    found = run(browser, scheme, "--virtual-time-budget=5000", "--dump-dom", frame.as_uri())
    title = re.search(r"<title>(\{.*?\})</title>", found)
    looks = {} if title is None else json.loads(html.unescape(title[1]))
    for width in WIDTHS:
        wanted, smallest, scrolling = looks.get(str(width), (0, None, 0))
        if not 0 < wanted <= width:
            yield f"{wanted} wide at {width}"
        if smallest is not None and smallest < 12:
            yield f"text of {smallest:.1f} pixels at {width}"
        if scrolling:
            yield f"{scrolling} charts scroll at {width}"


def picture(browser: str, page: Path, scheme: str, width: int) -> None:
    target = page.with_suffix(f".{scheme}.{width}.png")
    run(browser, scheme, f"--window-size={width},2000", "--hide-scrollbars", f"--screenshot={target}", page.as_uri())


def run(browser: str, scheme: str, *arguments: str) -> str:
    settings = ["--headless", "--no-sandbox", "--disable-gpu", *(["--force-dark-mode"] if scheme == "dark" else [])]
    return subprocess.run([browser, *settings, *arguments], capture_output=True, text=True, check=True, timeout=120).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep pages and pictures there")
    kept: Path | None = parser.parse_args().keep
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"none of {', '.join(BROWSERS)} is installed")
        return CANNOT_RUN
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    place = tempfile.TemporaryDirectory() if kept is None else contextlib.nullcontext(str(kept))
    looks, faults = 0, []
    with place as folder:
        for page in pages(Path(folder)):
            for scheme in ("light", "dark"):
                looks += len(WIDTHS)
                faults += [f"{page.stem}, {scheme}: {fault}" for fault in faults_in(browser, page, scheme)]
                for width in WIDTHS if kept is not None else ():
                    picture(browser, page, scheme, width)
    print(json.dumps({"measure": "reports in a browser", "looks": looks, "faults": faults}))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
