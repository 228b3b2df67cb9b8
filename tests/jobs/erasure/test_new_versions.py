"""Versions that take the place of others: what has changed or gone meanwhile is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.copy_plan import CopiedVersion
from paimon_cli.jobs.erasure.inventory import SNAPSHOT, TAG, StoredVersion
from paimon_cli.jobs.erasure.new_versions import replace_version
from paimon_cli.maintain.tags import create_tag
from tests.tables import make_table, write


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    """Two snapshots, and a tag of the first one."""
    made = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    for number in range(2):
        write(made, [{"k": number}], compact="none")
    create_tag(made, "kept", 1)
    return made


def stored(context: TableContext, kind: str) -> StoredVersion:
    path = context.layout.tag("kept") if kind == TAG else context.layout.snapshot(1)
    version = CopiedVersion.read(context.storage, path)
    assert version is not None
    return StoredVersion(context, kind, version, {}, None)


@pytest.mark.parametrize("kind", [SNAPSHOT, TAG])
def test_a_version_is_replaced_unless_it_has_changed_or_gone(context: TableContext, kind: str) -> None:
    version = stored(context, kind)
    path = Path(version.stored.path)
    assert replace_version(version, {"base_manifest_list": "new"})
    after = json.loads(path.read_bytes())
    assert after == {**json.loads(version.stored.content), "baseManifestList": "new"}
    other = path.read_bytes()
    assert not replace_version(version, {"base_manifest_list": "newer"}) and path.read_bytes() == other, "it has changed"
    path.unlink()
    assert not replace_version(version, {"base_manifest_list": "newer"}) and not path.exists(), "it was removed"
