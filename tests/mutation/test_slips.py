"""The operators of mutation runs make the slips that their names say."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from scripts.mutation.mutants import Module, Mutant

SOURCE = """
def names(files, others, kept):
    count = 0
    found = {*files, *others}
    while files:
        count += 1
        if count and kept:
            found |= kept
    for kind in ("added", "changed"):
        found.add(kind)
    kept.clear()
    return max(found), any(found), files[-1], min(count, 2), [one for one in files if one]
"""
EXPECTED = {
    "reset_in_each_turn": {"while files:\\ncount = 0", "while files:\\nfound = {"},
    "left_out_source": {"found = {*others}", "found = {*files}"},
    "left_out_alternative": {'for kind in ("changed",):', 'for kind in ("added",):'},
    "dropped_condition": {"if (count):", "if (kept):"},
    "left_out_statement": {"kept.clear() -> pass", "count += 1 -> pass", "found |= kept -> pass", "found.add(kind) -> pass"},
    "only_one_turn": {"found |= kept\\nbreak", "found.add(kind)\\nbreak"},
    "first_of_them": {"next(iter(found))", "(count)", "(2)"},
    "confused": {"min(found)", "all(found)", "max(count, 2)"},
    "other_end": {"files[0]"},
    "dropped_filter": {"[one for one in files]"},
}


@pytest.fixture(scope="module")
def mutants(tmp_path_factory: pytest.TempPathFactory) -> list[Mutant]:
    folder = tmp_path_factory.mktemp("room")
    (folder / "names.py").write_text(dedent(SOURCE))
    module = Module(folder, Path("names.py"))
    return [mutant for number in range(len(module)) if (mutant := module.mutant(number)) is not None]


@pytest.mark.parametrize("operator", sorted(EXPECTED))
def test_it_makes_its_slips(mutants: list[Mutant], operator: str) -> None:
    made = [f"{mutant.before} -> {mutant.after}".replace("\n", "\\n") for mutant in mutants if mutant.operator == operator]
    assert len(made) == len(EXPECTED[operator])
    for slip in EXPECTED[operator]:
        assert any(slip in change for change in made), made


def test_a_mutant_knows_where_it_is(mutants: list[Mutant]) -> None:
    """Of a change within a block, only the lines that differ: the tests that reach these are run."""
    turn = next(mutant for mutant in mutants if mutant.operator == "reset_in_each_turn")
    assert (turn.function, turn.first_line, turn.last_line) == ("names", 5, 5)
