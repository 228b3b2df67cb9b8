"""Size and time of an installation, by extra: a wheel of this checkout, installed by pip into new environments.

    python -m scripts.bench.installation [--extras '' spark s3,jdbc] [--python python3.13]

The size is what `du -sm` prints for the whole environment, with pip itself, and for the largest packages in it. The time depends
on the network, for pip's cache is not used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 8


def run(*command: str) -> str:
    return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout


def built_wheel(folder: str) -> Path:
    """A wheel of this checkout, by the backend that is installed here."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def megabytes(path: Path) -> int:
    return int(run("du", "-sm", str(path)).split()[0])


def measure(wheel: Path, extra: str, python: str, folder: Path) -> dict[str, object]:
    environment = folder / (extra.replace(",", "-") or "plain")
    run(python, "-m", "venv", str(environment))
    begun = time.monotonic()
    pip = (
        str(environment / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-cache-dir",
    )
    run(*pip, f"{wheel}[{extra}]" if extra else str(wheel))
    seconds = time.monotonic() - begun
    (packages,) = environment.glob("lib/python*/site-packages")
    sizes = sorted(((megabytes(path), path.name) for path in packages.iterdir()), reverse=True)
    assert run(str(environment / "bin" / "paimon-cli"), "--version").strip()
    return {
        "measure": "installation",
        "extra": extra,
        "mb": megabytes(environment),
        "seconds": round(seconds, 1),
        "largest": {name: size for size, name in sizes[:SHOWN]},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", nargs="+", default=["", "spark"], help="each like s3,jdbc; an empty text for none")
    parser.add_argument("--python", default=getattr(sys, "_base_executable", sys.executable), help="makes the environments")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="paimon-cli-installation-") as folder:
        wheel = built_wheel(folder)
        for extra in chosen.extras:
            print(json.dumps(measure(wheel, extra, os.path.abspath(chosen.python), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
