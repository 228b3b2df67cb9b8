"""What a check of the history tells of all that it has found, and of one key alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from paimon_cli.invariants.anomalies import LIKELY
from tests.commit.commit_tables import data_file, make_table
from tests.invariants.forged_tables import entry, forge
from tests.invariants.test_anomalies import A, anomalies


def test_each_pair_of_commits_that_may_share_keys_is_told_and_with_a_key_those_that_may_hold_it(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    b = replace(data_file("b", low=9, high=12), min_sequence_number=5, max_sequence_number=14)
    c = replace(data_file("c", low=20, high=29), min_sequence_number=15, max_sequence_number=24)
    d = replace(data_file("d", low=25, high=31), min_sequence_number=20, max_sequence_number=30)
    forge(context, 1, [], [entry(A)])
    forge(context, 2, [entry(A)], [entry(b)])
    forge(context, 3, [entry(A), entry(b)], [entry(c)])
    forge(context, 4, [entry(A), entry(b), entry(c)], [entry(d)])

    def lost(**options: object) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
        told = [one for one in anomalies(context, **options) if one.rule == "lost-update" and one.certainty == LIKELY]
        return [(one.snapshots, one.files) for one in told]

    first, second = ((1, 2), ("a", "b")), ((3, 4), ("c", "d"))
    assert lost(level="meta") == [first, second]
    assert lost(level="meta", key={"k": 9}) == [first] and lost(level="meta", key={"k": 27}) == [second]
    assert not lost(level="meta", key={"k": 3}) and not lost(level="meta", key={"k": 15})
