"""The pages about the code name modules and files that exist, and the map of rooms lists every room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "paimon_cli"
PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "FORMAT.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[a-z0-9_]+(/[a-z0-9_{},*]+)+(\.[a-z_]+)*/?")
PROGRAM = re.compile(r"python -m (scripts[a-z_.]+)")
BRACES = re.compile(r"\{([^}]+)\}")
BUILT = {"build/reliability.json", "build/bench.json"}
ROOMS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}


def spelled_out(path: str) -> Iterator[str]:
    """`lsm/{a,b}` -> `lsm/a`, `lsm/b`."""
    braces = BRACES.search(path)
    if braces is None:
        yield path
        return
    for choice in braces[1].split(","):
        yield from spelled_out(path.replace(braces[0], choice, 1))


def paths_in(text: str) -> Iterator[str]:
    """Paths below the package or the repository; other texts with a slash, such as paths in a table, are left out."""
    tops = ROOMS | {path.name for path in ROOT.iterdir()}
    for code in CODE.findall(text):
        yield from (program.replace(".", "/") + ".py" for program in PROGRAM.findall(code))
        if PATH.fullmatch(code) and code.split("/")[0] in tops and code not in BUILT:
            yield from spelled_out(code)


def is_there(path: str) -> bool:
    """Whether it is a module, a folder, a file, or a name in a module (`lsm/sort_merge.merge_in_memory`)."""
    for top in (PACKAGE, ROOT):
        if "*" in path:
            if any(top.glob(path)):
                return True
            continue
        place = top / path
        if place.exists() or place.with_name(f"{place.name}.py").exists():
            return True
        module, _, name = path.rpartition(".")
        source = top / f"{module}.py"
        if module and source.exists():
            return (
                re.search(rf"^(async )?(def|class) {name}\b|^{name}\b.* = ", source.read_text(encoding="utf-8"), re.M) is not None
            )
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_the_pages_exist(page: Path) -> None:
    assert [path for path in paths_in(page.read_text(encoding="utf-8")) if not is_there(path)] == []


def test_the_page_about_the_parts_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= 25_000


def test_paths_are_found() -> None:
    text = (
        "`commit/committer`, `python -m scripts.nightly.properties --steps 9`, `lsm/{sorted_rows,changelog}`, "
        "`s3/warehouse`, `docs/speed.md`, `commit/nothing`"
    )
    assert list(paths_in(text)) == [
        *(
            "commit/committer",
            "scripts/nightly/properties.py",
            "lsm/sorted_rows",
            "lsm/changelog",
            "docs/speed.md",
            "commit/nothing",
        ),
    ]
    assert is_there("commit/committer") and is_there("docs/speed.md") and is_there("lsm/sort_merge.merge_in_memory")
    assert not is_there("commit/nothing") and not is_there("lsm/sort_merge.nothing")


def test_the_map_lists_every_room() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    shown = page.split("## Rooms", 1)[1].split("```")[1]
    assert {room.rstrip("/") for room in re.findall(r"\b[a-z]+/", shown)} == ROOMS
