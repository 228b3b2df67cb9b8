"""An erasure on an object store, where nothing is renamed: killed between any two of its steps, and repeated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.erasure.erase_job import EraseRequest, Erasure
from paimon_cli.jobs.erasure.erase_table import EraseSummary, TableErasure
from paimon_cli.jobs.verify_job import VerifyRequest, run_verify
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from tests.jobs.erasure.plain_scan import texts_in
from tests.jobs.erasure.test_erase_job import Died, FastClock, Mortal, is_between, states
from tests.jobs.erasure.test_erase_table import CONDITION, GONE, KEYED, is_kept
from tests.nightly import at_night
from tests.storage.s3_server import S3Server
from tests.storage.test_s3_trash import objects

pytestmark = pytest.mark.xdist_group("s3")


def opened(root: str, storage: Storage) -> TableContext:
    return replace(TableContext.open(root, storage=storage, clock=FastClock()), read_threads=1)


def erase(root: str, storage: Storage, certificate: Path) -> EraseSummary:
    context = opened(root, storage)
    erasure = Erasure(context, EraseRequest(CONDITION), LocalEngine(), NoProgress())
    job = TableErasure(erasure, False, context.clock.now_millis() + 60_000, str(certificate))
    job.plan()
    return job.run()


@pytest.mark.parametrize("every", [0, at_night(4)])
@pytest.mark.parametrize(
    "kind", ["changelogs", at_night("vectors and Bloom filters"), at_night("partitions, a tag and a branch")]
)
def test_it_may_die_at_any_step(kind: str, every: int, s3_server: S3Server, tmp_path: Path) -> None:
    """By day at one step, in the middle; on a disk, at more of them (`tests/jobs/erasure`)."""
    local = Path(KEYED[kind](tmp_path / "t").url)
    files = {str(path.relative_to(local)): path.read_bytes() for path in local.rglob("*") if path.is_file()}
    bucket = s3_server.new_bucket()

    def copy(number: int) -> tuple[str, str, Storage]:
        url = f"{bucket}/wh/shop.db/t{number}"
        storage, root = storage_for_url(url, s3_server.options())
        for name, content in files.items():
            storage.overwrite(f"{root}/{name}", content)
        return url, root, storage

    _, root, storage = copy(0)
    before, whole = states(root, storage), Mortal(storage)
    done = erase(root, whole, tmp_path / "whole.json")
    assert done.found == () and whole.changes > 20
    assert any("versions and deleted objects that the store keeps" in line for line in done.outside)
    expected = {name: [one for one in found if is_kept(one)] for name, found in before.items()}
    keys = len(json.loads((tmp_path / "whole.json").read_text())["keys"])
    for at in range(3, whole.changes, every) if every else [whole.changes // 2]:
        url, root, storage = copy(at)
        certificate = tmp_path / f"{at}.json"
        with pytest.raises(Died):
            erase(root, Mortal(storage, at), certificate)
        assert is_between(states(root, storage), before), at
        done = erase(root, storage, certificate)
        assert done.found == (), (at, done.found)
        written = json.loads(certificate.read_text())
        assert written["proof"]["found"] == [] and len(written["keys"]) == keys, at
        after = states(root, storage)
        assert {name: after[name] for name in before} == expected, at
        assert texts_in(((path, storage.read_bytes(path)) for path in objects(s3_server, url)), *GONE) == {}, at
        found = run_verify(opened(root, storage), VerifyRequest(level="full"), LocalEngine(), NoProgress()).violations
        assert not found, (at, [(v.code, v.path, v.message) for v in found])
