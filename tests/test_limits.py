"""The exceptions from the limits of functions are those that are needed (`pyproject.toml`)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

ROOT = Path(__file__).parent.parent
LIMITS = {"C901", "PLR0912", "PLR0913", "PLR0915", "PLR0917"}


def spelled_out(pattern: str) -> list[str]:
    """`{api,cli}/*.py` -> `api/*.py`, `cli/*.py`."""
    braces = re.search(r"\{([^}]+)\}", pattern)
    return [pattern] if braces is None else [pattern.replace(braces[0], choice) for choice in braces[1].split(",")]


def settings() -> dict[str, Any]:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    found: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    return found


def test_every_limit_is_checked_and_every_exception_is_needed() -> None:
    lint = settings()
    assert set(lint["select"]) >= LIMITS
    asked = ["check", "--config", "lint.per-file-ignores={}", "--select", ",".join(LIMITS), "--output-format", "json", "."]
    done = subprocess.run([Path(sys.executable).with_name("ruff"), *asked], cwd=ROOT, capture_output=True, text=True)
    over = {(PurePath(found["filename"]).relative_to(ROOT), found["code"]) for found in json.loads(done.stdout)}
    needless = [
        (pattern, rule)
        for written, rules in lint["per-file-ignores"].items()
        for pattern in spelled_out(written)
        for rule in rules
        if not any(path.match(pattern) and code == rule for path, code in over)
    ]
    assert needless == [], "remove them from pyproject.toml"


def test_no_value_is_written_past_its_fields() -> None:
    """What is remembered beside a frozen value has an object of its own. `docs/decisions.md` (One table) names the exceptions:
    three constructors of values that are immutable afterwards.
    """
    writes = re.compile(r"__dict__(\[[^]]+\] = |\.(update|setdefault)\()|object\.__setattr__\(|vars\([^)]*\)\[[^]]+\] = ")
    package = ROOT / "paimon_cli"
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if writes.search(path.read_text())}
    assert found == {"options/table_options.py", "ingest/text_form.py", "requests/fields.py"}
