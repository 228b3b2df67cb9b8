"""Answers of Paimon's own Java classes, packed; each line is `{"in": {...}, "out": ...}` and stands alone."""

from __future__ import annotations

import json
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import Any

_ARCHIVE = Path(__file__).with_name("vectors.tar.xz")


@lru_cache(maxsize=1)
def _texts() -> dict[str, str]:
    with tarfile.open(_ARCHIVE) as archive:
        members = [(member.name.removesuffix(".jsonl"), archive.extractfile(member)) for member in archive.getmembers()]
        return {name: file.read().decode("utf-8") for name, file in members if file is not None}


def load(name: str) -> list[dict[str, Any]]:
    """All lines of `name`.jsonl, such as `load("binary_row_head")`."""
    return [json.loads(line) for line in _texts()[name].split("\n") if line]
