"""Cases about deletion vectors, on the abstract model: every state is explored, the shortest way to the damage is told."""

from __future__ import annotations

from paimon_cli.commit.data_conflict import OFF
from paimon_cli.lab.dv_exploration import DAMAGES, DANGLING, TWO_ROWS, Exploration, explore
from paimon_cli.lab.dv_model import TWO_LEVELS, Check, DvModel
from paimon_cli.lab.lab_table import LabSetting
from paimon_cli.lab.story import Story


def lost_vectors(setting: LabSetting) -> list[Story]:
    """One compactor marks rows while another one rewrites marked files; the vectors of the last commit win."""
    model = DvModel(writers=1, compactors=2, writes=1, compactions=2, check=_check(setting.check), beginning=TWO_LEVELS)
    return [_told("lost-deletion-vectors", setting.check, explore(model), TWO_ROWS)]


def dangling_vectors(setting: LabSetting) -> list[Story]:
    """One compactor marks rows of a file while another one merges that file away."""
    model = DvModel(writers=1, compactors=2, writes=2, compactions=3, highest_level=3, check=_check(setting.check))
    return [_told("dangling-deletion-vectors", setting.check, explore(model), DANGLING)]


def _check(check: str) -> Check:
    return Check.FILES if check == OFF else Check.BUCKET


def _told(case: str, check: str, found: Exploration, damage: str) -> Story:
    story = Story(case, (check,), "model")
    for step in found.traces.get(damage, []):
        who, _, what = step.partition(": ")
        story.tell(who, what)
    if found.traces:
        listed = ", ".join(f"{name} after {len(steps)} steps" for name, steps in sorted(found.traces.items()))
        return story.end(False, f"{DAMAGES[damage]}; {found.states:,} states explored, damage found: {listed}")
    return story.end(True, f"no damage in any of {found.states:,} states, which are all there are")
