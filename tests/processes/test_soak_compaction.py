"""Writers, the compaction service and expiry as real processes, for a few seconds; ten minutes of it: scripts/nightly."""

from __future__ import annotations

from pathlib import Path

from scripts.nightly.soak_compaction import Soak


def test_the_service_beside_writers_of_a_write_only_table(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seconds=5, writers=2, least_buckets=6)
    figures = soak.run()
    assert soak.faults == []
    assert figures["conflicts"] == 0 and figures["compacted_buckets"] > 4 and figures["commits"] > 10
