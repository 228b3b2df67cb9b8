"""This package as a zip for Spark executors, which need not have paimon-cli installed, only what it imports."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import paimon_cli

EARLIEST_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def package_files(root: Path) -> list[Path]:
    """Source and data files below `root`, without caches, in a fixed order."""
    return sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def archive_bytes(root: Path) -> bytes:
    """A zip with the directory `root` at its top; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in package_files(root):
            entry = zipfile.ZipInfo(path.relative_to(root.parent).as_posix(), EARLIEST_ZIP_TIME)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def write_package_archive(directory: Path) -> Path:
    """Write the archive of the running paimon_cli into `directory`; its name tells its content."""
    content = archive_bytes(Path(paimon_cli.__file__).parent)
    path = directory / f"paimon_cli-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    path.write_bytes(content)
    return path
