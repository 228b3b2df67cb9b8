"""Damaged files: never a traceback, never other content where there are checksums, always an error that names the file."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.errors import PaimonError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from tests import tables
from tests.hostile.file_fuzzer import Specimen, fuzz, mutated
from tests.hostile.specimens import all_specimens
from tests.invariants.damaged_tables import keyed_table
from tests.nightly import at_night

UNNOTICED_PERCENT = {"snapshot": 15, "tag": 15, "schema": 5, "manifest list": 5, "manifest": 5, "index manifest": 5}
"""JSON and Avro have no checksums: at most this many damages of a kind may pass a decoder as other content."""


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> list[Specimen]:
    return all_specimens(tmp_path_factory.mktemp("specimens"))


@pytest.mark.parametrize("files", [3_500, at_night(20_500)])
def test_decoders(files: int, specimens: list[Specimen]) -> None:
    """Two million at night: `scripts/nightly/fuzz_files.py`."""
    kinds = {specimen.kind for specimen in specimens}
    assert len(kinds) >= 11, kinds
    figures = fuzz(specimens, files, seed=1)
    assert figures.failures == []
    assert figures.files > 0.97 * files and figures.refused > figures.files // 4
    for kind, limit in UNNOTICED_PERCENT.items():
        share = 100 * figures.changed.get(kind, 0) * len(specimens) / (files * sum(s.kind == kind for s in specimens))
        assert share <= limit, f"{kind}: {share:.1f} %"


def test_the_fuzzer_finds_something() -> None:
    """Decoders that fail in one way each are caught."""
    careless = Specimen("careless", b"abcdef" * 9, lambda data, path: data.decode("ascii"))
    trusting = Specimen("trusting", b"abcdef" * 9, lambda data, path: data[:3], checked=True)
    nameless = Specimen("nameless", b"abcdef" * 9, _nameless)
    for specimen in (careless, trusting, nameless):
        assert fuzz([specimen], 300, seed=2).failures, specimen.kind


def _nameless(data: bytes, path: str) -> bytes:
    from paimon_cli.errors import DamagedFile

    if data != b"abcdef" * 9:
        raise DamagedFile("something is wrong")
    return data


@pytest.mark.parametrize("reads", [60, at_night(3_000)])
def test_whole_reads(reads: int, tmp_path: Path) -> None:
    """A table with one damaged file, read as `read` does: the right rows, or one clear error."""
    sound = keyed_table(tmp_path)
    expected = tables.rows(TableContext.open(str(sound)))
    files = sorted(path for path in sound.rglob("*") if path.is_file() and path.parent.name in ("manifest", "snapshot", "schema"))
    files += sorted(sound.glob("dt=*/bucket-*/*"))
    originals = [path.read_bytes() for path in files]
    wrong = 0
    for number in range(reads):
        chance = random.Random(f"whole/{number}")
        index = chance.randrange(len(files))
        files[index].write_bytes(mutated(originals[index], originals, chance))
        try:
            wrong += _rows(sound) != expected
        except PaimonError as error:
            assert error.exit_code in (2, 3, 8, 10), error
            assert "\n" not in error.what and str(error)
        files[index].write_bytes(originals[index])
    assert wrong <= reads // 20
    shutil.rmtree(sound)


def _rows(root: Path) -> list[tables.Row]:
    context = TableContext.open(str(root))
    snapshot = context.snapshots.latest()
    for bucket in bucket_files(context, snapshot).values():
        for _ in read_bucket(context, bucket, context.schema.field_names):
            pass
    return tables.rows(context)
