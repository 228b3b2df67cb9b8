"""Numpy's sort is switched where it is slow: in the command line's processes, by the name that the installed version knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paimon_cli import processor
from paimon_cli.processor import (
    OWN_WORKER,
    VARIABLE,
    fast_sort,
    numpy_version,
    processor_name,
    sorts_slowly_with_avx512,
)

ZEN_4 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
flags\t\t: fpu vme avx2 avx512f avx512dq
"""
OTHERS = {
    "Zen 3, without AVX-512": ZEN_4.replace(" avx512f avx512dq", ""),
    "Zen 5": ZEN_4.replace(": 25", ": 26"),
    "Intel": ZEN_4.replace("AuthenticAMD", "GenuineIntel"),
    "empty": "",
    "not what it should be": "\x00: : :\n" * 2000,
}


@pytest.fixture
def zen_4(tmp_path: Path) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(ZEN_4)
    return path


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ((2, 0), "AVX512F"),
        ((2, 2), "AVX512F"),
        ((2, 3), "AVX512F"),
        ((2, 4), "X86_V4"),
        ((2, 9), "X86_V4"),
        ((1, 26), None),
        ((), None),
    ],
)
def test_the_name_is_that_of_the_version(
    version: tuple[int, ...], name: str | None, zen_4: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "numpy_version", lambda: version)
    assert fast_sort({}, zen_4) == ({} if name is None else {VARIABLE: name})


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_processors_keep_their_sort(text: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert fast_sort({}, tmp_path / "cpuinfo") == fast_sort({}, tmp_path / "missing") == {}


def test_what_the_user_says_stands(zen_4: Path) -> None:
    assert fast_sort({VARIABLE: ""}, zen_4) == {}


def test_the_processor_is_named(zen_4: Path, tmp_path: Path) -> None:
    assert processor_name(zen_4) == "AMD EPYC (family 25, model 17)"
    assert processor_name(tmp_path / "missing")


def test_the_version_is_found_without_an_import() -> None:
    assert numpy_version() == tuple(map(int, np.__version__.split(".")[:2]))


def printed(code: str, environment: dict[str, str], *options: str) -> str:
    """The last line that a Python process prints; its exit code does not matter."""
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.splitlines()[-1]


@pytest.fixture
def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != VARIABLE}


def test_the_installed_numpy_knows_the_name(zen_4: Path, environment: dict[str, str]) -> None:
    """Without a warning, and the feature is off, on any processor."""
    environment |= fast_sort(environment, zen_4)
    look = "import json, numpy._core._multiarray_umath as m; print(json.dumps(m.__cpu_features__))"
    assert json.loads(printed(look, environment, "-W", "error"))[environment[VARIABLE]] is False


RELEASES = {"2.2.6": (3, 10), "2.3.5": (3, 11), "2.4.6": (3, 11), "2.5.5": (3, 12)}
"""Releases of numpy, of each minor version that is supported, and the Python from which on they can be installed."""


@pytest.mark.nightly
@pytest.mark.parametrize("release", [name for name, python in RELEASES.items() if sys.version_info[:2] >= python])
def test_each_supported_numpy_knows_the_name(release: str, zen_4: Path, environment: dict[str, str]) -> None:
    """In an environment with this numpy alone; the feature is off, and nothing warns."""
    look = f"""import sys; sys.path.append({str(Path(__file__).parents[1])!r})
import json, os, pathlib
from paimon_cli.processor import VARIABLE, fast_sort
os.environ.update(fast_sort({{}}, pathlib.Path({str(zen_4)!r})))
import numpy, numpy._core._multiarray_umath as m
print(json.dumps([numpy.__version__, m.__cpu_features__[os.environ[VARIABLE]]]))"""
    uv = [sys.executable, "-m", "uv", "run", "--quiet", "--no-project", "--python", sys.executable, "--with", f"numpy=={release}"]
    done = subprocess.run([*uv, "python", "-W", "error", "-c", look], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [release, False]


def test_workers_of_our_own_spark_decide_for_themselves(zen_4: Path, environment: dict[str, str]) -> None:
    """Before numpy is imported, whatever module of the package comes first; other workers are left alone."""
    look = "import numpy._core._multiarray_umath as m; print(m.__cpu_features__[name])"
    name = fast_sort({}, zen_4)[VARIABLE]
    first = f"name = {name!r}; import paimon_cli.datatypes.key_order; {look}"
    plain = printed(first, environment)
    assert printed(first, {**environment, OWN_WORKER: "1"}) == ("False" if sorts_slowly_with_avx512() else plain)
    assert printed(first, {**environment, OWN_WORKER: "1", VARIABLE: ""}) == plain, "what the user says stands"


def test_only_the_command_line_switches_it(environment: dict[str, str]) -> None:
    """A program that imports the library keeps numpy's `exp`; the processes of a command inherit the switch."""
    say = f"import os; print(os.environ.get({VARIABLE!r}, 'nothing'))"
    library = f"import paimon_cli.jobs.write_job; from paimon_cli import Table; {say}"
    command = f"""import paimon_cli.__main__ as program, paimon_cli.cli.app as app
def run():
    {say}
app.main = run
program.main()
"""
    assert printed(library, environment) == "nothing"
    assert (printed(command, environment) != "nothing") is sorts_slowly_with_avx512()
