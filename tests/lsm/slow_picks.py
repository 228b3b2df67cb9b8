"""A second, slow implementation of universal compaction from the written rules, as in 0.9 and as in the main branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Runs = list[tuple[int, int]]
"""Level and size, newest first."""


@dataclass
class SlowStrategy:
    """One strategy object as the vectors describe it; it remembers its last full compaction and its attempts."""

    line: dict[str, Any]
    main: bool
    last_full: int | None = None
    attempts: int = 0

    def pick(self, runs: Runs, now: int) -> tuple[int, int] | None:
        """Output level and number of runs."""
        count = self._early(runs, now) or self._amplified(runs) or self._ratio(runs) or self._number(runs)
        if not count and self.line.get("force_up_level0"):
            self.attempts += 1
            if self.attempts >= self.line.get("lookup_compact_max_interval", 1):
                self.attempts = 0
                level_0 = len([run for run in runs if run[0] == 0])
                count = self._grown(runs, level_0, True) if level_0 else 0
        if not count:
            return None
        level, count = self._output(runs, count)
        if count == len(runs):
            self.last_full = now
        return level, count

    def _output(self, runs: Runs, count: int) -> tuple[int, int]:
        top, rest = self.line["num_levels"] - 1, runs[count:]
        if rest and rest[0][0] > 1:
            return rest[0][0] - 1, count
        for level, _ in rest:
            count += 1
            if level > 0 and count < len(runs):
                return level, count
            if level > 0:
                break
        return top, count

    def _early(self, runs: Runs, now: int) -> int:
        if not runs or (self.main and len(runs) == 1):
            return 0
        interval = self.line.get("optimization_interval_ms")
        total, new = self.line.get("total_size_threshold"), self.line.get("incremental_size_threshold")
        top = self.line["num_levels"] - 1
        due = interval is not None and (self.last_full is None or now - self.last_full > interval)
        small = total is not None and sum(size for _, size in runs) < total
        much = new is not None and sum(size for level, size in runs if level != top) > new
        return len(runs) if due or small or much else 0

    def _amplified(self, runs: Runs) -> int:
        if len(runs) < self.line["run_trigger"]:
            return 0
        *newer, oldest = [size for _, size in runs]
        return len(runs) if sum(newer) * 100 > self.line["max_size_amp"] * oldest else 0

    def _ratio(self, runs: Runs) -> int:
        count = self._grown(runs, 1, False) if len(runs) >= self.line["run_trigger"] else 0
        return count if count > 1 else 0

    def _number(self, runs: Runs) -> int:
        over = len(runs) - self.line["run_trigger"]
        return self._grown(runs, over + 1, True) if over > 0 else 0

    def _grown(self, runs: Runs, count: int, picked: bool) -> int:
        while count < len(runs):
            level, size = runs[count]
            fits = sum(s for _, s in runs[:count]) * (100.0 + self.line["size_ratio"]) / 100.0 >= size
            if not fits and not (self.main and (picked or count > 1) and level <= 1):
                break
            count += 1
        return count
