"""`make release`: builds wheel, sdist (with manual pages) and the list of their packages (SBOM) in dist/, and tries them.

    python -m scripts.release [--pythons 3.10 3.13]

`twine check` reads the metadata. Then the wheel, and the sdist on one Python, are installed without extras for each Python on the
PATH, and make, compact, read and check a table; the Pythons that are not there are named. Nothing is uploaded. The exit code is 1
if something failed, or if no supported Python is there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts import build_man
from scripts.bench.installation import ROOT, run

DIST = ROOT / "dist"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
EXTRAS_OF_SBOM = "spark,s3,jdbc,hive,rest,sql,iceberg,tui"
TOUR: tuple[tuple[str, ...], ...] = (
    ("create", "t", "-C", "id INT NOT NULL", "-C", "s STRING", "--primary-key", "id", "--bucket", "1"),
    ("write", "t", "rows.csv"),
    ("write", "t", "rows.csv"),
    ("compact", "t"),
    ("verify", "t"),
    ("health", "t"),
)
UV = str(Path(sys.executable).parent / "uv")


def build() -> tuple[Path, Path]:
    """The wheel and the sdist, alone in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    build_man.main([])
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(DIST))
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def interpreter(version: str) -> str | None:
    """The Python of this version at hand; None if there is none."""
    found = subprocess.run([UV, "python", "find", "--no-python-downloads", version], capture_output=True, text=True)
    return found.stdout.strip() or None


def environment(python: str, package: str, folder: Path) -> Path:
    """A new environment with the package; returns its directory of programs."""
    run(UV, "venv", "--quiet", "--python", python, str(folder))
    run(UV, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), package)
    return folder / "bin"


def try_out(programs: Path, folder: Path) -> None:
    """Make, compact, read and check a table. Raises `CalledProcessError` if a command fails, `ValueError` for other rows."""
    folder.mkdir()
    (folder / "rows.csv").write_text("id,s\n1,a\n2,b\n")
    program = str(programs / "paimon-cli")
    for words in TOUR:
        subprocess.run([program, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    shown = subprocess.run([program, "read", "t", "-o", "json"], cwd=folder, check=True, capture_output=True, text=True)
    rows = json.loads(shown.stdout)["items"]
    if rows != [{"id": 1, "s": "a"}, {"id": 2, "s": "b"}]:
        raise ValueError(f"{program} read other rows than it wrote: {rows}")


def list_packages(wheel: Path, python: str, folder: Path) -> Path:
    """The packages of an installation with the usual extras, with licences, as CycloneDX."""
    programs = environment(python, f"{wheel}[{EXTRAS_OF_SBOM}]", folder)
    listed = DIST / f"{re.sub('-py3.*', '', wheel.name)}.cdx.json"
    cyclonedx = str(Path(sys.executable).parent / "cyclonedx-py")
    options = ("--pyproject", "pyproject.toml", "--output-reproducible", "--output-format", "JSON", "--output-file", str(listed))
    run(cyclonedx, "environment", *options, str(programs / "python"))
    return listed


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, metavar="VERSION")
    wanted = parser.parse_args(arguments).pythons
    wheel, sdist = build()
    run(UV, "tool", "run", "twine", "check", "--strict", str(wheel), str(sdist))
    print(f"built and checked {wheel.name} and {sdist.name}")
    pythons = {version: path for version in wanted if (path := interpreter(version)) is not None}
    with tempfile.TemporaryDirectory(prefix="paimon-cli-release-") as scratch:
        for version, path in pythons.items():
            for package in (wheel, sdist) if version == [*pythons][-1] else (wheel,):
                folder = Path(scratch) / f"{version}{package.suffix}"
                try_out(environment(path, str(package), folder), folder / "tour")
                print(f"Python {version}: {package.name} installs, and makes, compacts, reads and checks a table")
        if pythons:
            print(f"listed its packages in {list_packages(wheel, pythons[[*pythons][-1]], Path(scratch) / 'sbom').name}")
    missing = [version for version in wanted if version not in pythons]
    if missing:
        print(f"not tried, because not at hand: Python {', '.join(missing)}")
    sys.exit(0 if pythons else 1)


if __name__ == "__main__":
    main()
