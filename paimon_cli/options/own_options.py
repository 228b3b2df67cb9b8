"""Options that only paimon-cli has, beside those of Paimon in the catalog of options."""

from __future__ import annotations

DATA_CONFLICT_CHECK = "commit.data-conflict-check"
"""Paimon's writers never check whether the rows that they replace have changed meanwhile."""
DATA_CONFLICT_CHECKS = ("off", "partition", "bucket", "range", "key")
"""Its values: the unit that concurrent commits must not both write to. Later ones cause fewer conflicts, but read more."""
