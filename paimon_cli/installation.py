"""How the program was installed, and the command that installs an extra into the same environment."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.util import find_spec

PACKAGE = "paimon-cli"
ON_WINDOWS = """this program does not run on Windows
a local table needs hard links, file locks and directories that can be synced, as Linux and macOS have them
hint: run it in WSL 2 or in a container"""


def install_command(extra: str = "") -> str:
    """The command, for hints, that installs `paimon-cli[extra]` into this environment, or all that it needs without an extra.

    pipx and `uv tool` make an environment of their own for the program, and a virtual environment need not be active, so that a
    plain `pip` could install the packages where this Python does not look for them.
    """
    named = f"'{PACKAGE}[{extra}]'" if extra else PACKAGE
    if _is_in_environment("pipx_metadata.json"):
        return f"pipx runpip {PACKAGE} install {named}"
    if find_spec("pip") is None:  # `uv tool install` and `uv venv` make environments without it
        return f"uv pip install -p {shlex.quote(sys.executable)} {named}"
    pip = shutil.which("pip")
    is_ours = pip is not None and os.path.dirname(pip) == os.path.dirname(sys.executable)
    return f"{'pip' if is_ours else shlex.quote(sys.executable) + ' -m pip'} install {named}"


def _is_in_environment(name: str) -> bool:
    return os.path.isfile(os.path.join(sys.prefix, name))
