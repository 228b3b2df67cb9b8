"""Reports of all kinds of tables in a headless Chromium, at three widths, light and dark: nothing is wider than the window.

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


def widths_in(browser: str, page: Path, scheme: str) -> dict[str, int]:
    """The width of the page's content in windows of each width, as the browser lays it out."""
    text = html.escape(page.read_text())
    frames = "".join(
        f'<iframe title="{width}" width="{width}" height="900" style="border:0" srcdoc="{text}"></iframe>' for width in WIDTHS
    )
    script = (
        "onload=()=>document.title=JSON.stringify(Object.fromEntries([...document.querySelectorAll('iframe')]"
        ".map(f=>[f.title,f.contentDocument.documentElement.scrollWidth])))"
    )
    frame = page.with_suffix(".frames.html")
    frame.write_text(f"<!doctype html><title>-</title>{frames}<script>{script}</script>")
    found = run(browser, scheme, "--virtual-time-budget=5000", "--dump-dom", frame.as_uri())
    title = re.search(r"<title>(\{.*?\})</title>", found)
    return {} if title is None else dict(json.loads(html.unescape(title[1])))


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
                wanted = widths_in(browser, page, scheme)
                looks += len(wanted)
                too_wide = [width for width in WIDTHS if not 0 < wanted.get(str(width), 0) <= width]
                faults += [f"{page.stem}, {scheme}: {wanted.get(str(width))} wide at {width}" for width in too_wide]
                for width in WIDTHS if kept is not None else ():
                    picture(browser, page, scheme, width)
    print(json.dumps({"measure": "reports in a browser", "looks": looks, "faults": faults}))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
