"""The files that a table needs, determined without the table manager's own code, to check its clean-ups."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import fastavro

_data: dict[str, Path] = {}
"""Where the data files lie, by name."""
LISTS = ("baseManifestList", "deltaManifestList", "changelogManifestList")


def needed(root: Path) -> set[str]:
    """Paths below the root: snapshots, tags and long-lived changelogs of all branches, and the files that they need."""
    found: set[Path] = set()
    _data.clear()
    _data.update((path.name, path) for path in root.glob("**/bucket-*/*"))
    for version_root in (root, *root.glob("branch/branch-*")):
        for path in version_root.glob("snapshot/snapshot-*"):
            found |= {path, *_version(root, json.loads(path.read_text())), *_changelog(root, json.loads(path.read_text()))}
        for path in version_root.glob("tag/tag-*"):  # a tag keeps what reads it, not what its commit changed
            manifests = (file for file in _changelog(root, json.loads(path.read_text())) if file.parent.name == "manifest")
            found |= {path, *_version(root, json.loads(path.read_text())), *manifests}
        for path in version_root.glob("changelog/changelog-*"):
            found |= {path, *_changes(root, json.loads(path.read_text()))}
    return {str(path.relative_to(root)) for path in found}


def on_disk(root: Path) -> set[str]:
    """All files except schemas, hints, consumers and foreign files."""
    aside = ("schema", "LATEST", "EARLIEST", "consumer")
    found = (path.relative_to(root) for path in root.glob("**/*") if path.is_file())
    return {str(path) for path in found if not any(part in aside for part in path.parts)}


def _version(root: Path, version: dict[str, Any]) -> Iterator[Path]:
    live: dict[tuple[bytes, int, str], dict[str, Any]] = {}
    for name in LISTS[:2]:
        for manifest in _manifests(root, version[name]):
            yield root / "manifest" / manifest
            for entry in _records(root / "manifest" / manifest):
                _fold(live, entry)
        yield root / "manifest" / version[name]
    yield from _places(root, live.values())
    if version.get("indexManifest"):
        yield root / "manifest" / version["indexManifest"]
        yield from (root / "index" / entry["_FILE_NAME"] for entry in _records(root / "manifest" / version["indexManifest"]))
    if version.get("statistics"):
        yield root / "statistics" / version["statistics"]


def _fold(live: dict[tuple[bytes, int, str], dict[str, Any]], entry: dict[str, Any]) -> None:
    key = (entry["_PARTITION"], entry["_BUCKET"], entry["_FILE"]["_FILE_NAME"])
    level = entry["_FILE"]["_LEVEL"]
    if entry["_KIND"] == 0:
        live[key] = entry
    elif key in live and live[key]["_FILE"]["_LEVEL"] == level:
        del live[key]


def _changelog(root: Path, version: dict[str, Any]) -> Iterator[Path]:
    if version.get(LISTS[2]):
        yield root / "manifest" / version[LISTS[2]]
        for manifest in _manifests(root, version[LISTS[2]]):
            yield root / "manifest" / manifest
            yield from _places(root, _records(root / "manifest" / manifest))


def _changes(root: Path, version: dict[str, Any]) -> Iterator[Path]:
    """A changelog has its own files where there is a producer, else what the commit added, with its lists."""
    if version.get(LISTS[2]):
        yield from _changelog(root, version)
        return
    for name in LISTS[:2]:
        yield root / "manifest" / version[name]
        for manifest in _manifests(root, version[name]):
            yield root / "manifest" / manifest
            if name == LISTS[1]:
                yield from _places(root, (entry for entry in _records(root / "manifest" / manifest) if entry["_KIND"] == 0))


def _places(root: Path, entries: Iterable[dict[str, Any]]) -> Iterator[Path]:
    """Names are unique in a table, so that the directory can be looked up."""
    for entry in entries:
        for name in (entry["_FILE"]["_FILE_NAME"], *entry["_FILE"]["_EXTRA_FILES"]):
            yield _data.get(name, root / "missing" / name)


def _manifests(root: Path, manifest_list: str) -> list[str]:
    return [entry["_FILE_NAME"] for entry in _records(root / "manifest" / manifest_list)]


def _records(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as stream:
        return [record for record in fastavro.reader(stream) if isinstance(record, dict)]


def kind_of(path: str) -> str:
    """The kind of a file in a listing of files to delete, by its directory and name."""
    directory, name = Path(path).parent.name, Path(path).name
    if directory.startswith("bucket-"):
        return "index" if name.endswith(".index") else "changelog" if name.startswith("changelog-") else "data"
    if directory == "manifest":
        named = {"index-manifest-": "index manifest", "manifest-list-": "manifest list"}
        return next((kind for prefix, kind in named.items() if name.startswith(prefix)), "manifest")
    return "long-lived changelog" if directory == "changelog" else directory
