"""Switches numpy's AVX-512 sort off on processors where it is slow, in the processes of the command line.

On AMD processors of family 25 (Zen 3 and 4) that sort takes five times as long as the one with AVX2: 36 instead of 7 ns a row
for int64 (numpy issue 32690). Sorting is most of the work of flushes, of dynamic buckets and of indexes of keys. Other
functions of numpy become slower without AVX-512 (`exp`, `power`: about five times), so the switch is never set in a process
that only imports this library. Nor is it sent to the executors of a cluster, whose processors may differ: only a mark is, by
which the Python workers of a Spark that a command has started decide for themselves.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "NPY_DISABLE_CPU_FEATURES"
"""Read by numpy when it is imported, and only then. Child processes inherit it."""
OWN_WORKER = "PAIMON_CLI_OWN_WORKER"
"""Marks the executors of a Spark that a command has started, and no others; `paimon_cli/__init__` looks for it."""
CPU_INFO = Path("/proc/cpuinfo")
_OF_ONE_CORE = 4096
"""Bytes at the beginning of `CPU_INFO` that describe the first core."""
_NAMES = (((2, 4), "X86_V4", "X86_V3"), ((2, 0), "AVX512F", "AVX2"))
"""What the feature is called since which version of numpy, newest first, and AVX2. A name that a version does not know has no
effect.
"""


_set_here: set[str] = set()


def set_for_this_process(variables: Mapping[str, str]) -> None:
    """Set variables that the user has not set. Programs of the user do not get them (`jobs.process.environment_of_the_user`)."""
    for name, value in variables.items():
        if name not in os.environ:
            os.environ[name] = value
            _set_here.add(name)


def was_set_here(name: str) -> bool:
    return name in _set_here


def fast_sort(environment: Mapping[str, str], cpu_info: Path = CPU_INFO) -> dict[str, str]:
    """The variable for a process that has not imported numpy yet; empty where the sort is fast, or if the user has set it."""
    if VARIABLE in environment or not sorts_slowly_with_avx512(cpu_info):
        return {}
    version = numpy_version()
    return next(({VARIABLE: name} for since, name, _ in _NAMES if version >= since), {})


def switched_off(given: str) -> tuple[bool, bool]:
    """Whether a value of the variable switches AVX-512 off, and AVX2, in the installed numpy."""
    version, named = numpy_version(), set(re.split(r"[,\s]+", given))
    return next(((wide in named, narrow in named) for since, wide, narrow in _NAMES if version >= since), (False, False))


def sorts_slowly_with_avx512(cpu_info: Path = CPU_INFO) -> bool:
    """Whether this is an AMD processor of family 25 with AVX-512; False where that cannot be seen (other systems than Linux)."""
    core = _first_core(cpu_info)
    return (core.get("vendor_id"), core.get("cpu family")) == ("AuthenticAMD", "25") and "avx512f" in core.get(
        "flags", ""
    ).split()


def processor_name(cpu_info: Path = CPU_INFO) -> str:
    """Model, family and model number of the processor, as figures of speed name it; its architecture where Linux does not say."""
    core = _first_core(cpu_info)
    if "model name" not in core:
        return platform.processor() or platform.machine()
    return f"{core['model name']} (family {core.get('cpu family', '?')}, model {core.get('model', '?')})"


def _first_core(cpu_info: Path) -> dict[str, str]:
    try:
        with cpu_info.open(encoding="ascii", errors="replace") as file:
            text = file.read(_OF_ONE_CORE)
    except OSError:
        return {}
    return dict(re.findall(r"^([\w ]+?)\s*: (.*)$", text, re.MULTILINE))


def numpy_version() -> tuple[int, ...]:
    """Major and minor version of the installed numpy, without importing it; empty if it cannot be found."""
    spec = importlib.util.find_spec("numpy")
    if spec is None or spec.origin is None:
        return ()
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return ()
    found = re.search(r'^(?:short_)?version = "(\d+)\.(\d+)', text, re.MULTILINE)
    return () if found is None else (int(found[1]), int(found[2]))
