"""The table options that choose a snapshot, such as `scan.snapshot-id` (FORMAT.md, section 11.4; Java TimeTravelUtil)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.options.size_and_duration import plain_number

SNAPSHOT_ID, TAG, VERSION, WATERMARK = "scan.snapshot-id", "scan.tag-name", "scan.version", "scan.watermark"
MILLIS, TIMESTAMP, MODE = "scan.timestamp-millis", "scan.timestamp", "scan.mode"
BETWEEN, BETWEEN_TIMES = "incremental-between", "incremental-between-timestamp"
BETWEEN_MODE = "incremental-between-scan-mode"
TAG_TO_SNAPSHOT = "incremental-between-tag-to-snapshot"
COMPACTED = "compacted-full"

_BY_CREATION = ("from-file-creation-time", "from-creation-timestamp")
_POSITIONS = (SNAPSHOT_ID, TAG, VERSION, WATERMARK, MILLIS, TIMESTAMP)
_BY_VERSION, _BY_TIME, _INCREMENTS = (SNAPSHOT_ID, TAG, VERSION, WATERMARK), (MILLIS, TIMESTAMP), (BETWEEN, BETWEEN_TIMES)
_NEEDED: dict[str, tuple[str, ...]] = {
    "default": (),
    "latest-full": (),
    "full": (),
    "latest": (),
    COMPACTED: (),
    "from-timestamp": _BY_TIME,
    "from-snapshot": _BY_VERSION,
    "from-snapshot-full": _BY_VERSION,
    "incremental": _INCREMENTS,
}


@dataclass(frozen=True)
class ScanOption:
    """The one option that chooses what to read, and its value."""

    key: str
    value: str

    @property
    def number(self) -> int:
        """Its value as a whole number; UsageError."""
        number = plain_number(self.value)
        if number is None:
            raise UsageError(f"{self.key}={self.value}", "the value must be a whole number")
        return number


def chosen_option(options: Mapping[str, str]) -> ScanOption | None:
    """What the options choose; None for a read of the latest snapshot. Raises UsageError for choices that contradict."""
    mode = options.get(MODE, "default").strip().lower()
    if mode in _BY_CREATION:
        raise NotSupported(f"{MODE}={mode}", "reads cannot start at the creation time of a file", f"leave {MODE} out")
    if mode not in _NEEDED:
        raise UsageError(f"{MODE}={mode}", f"the modes are {', '.join(_NEEDED)}")
    given = [key for key in (*_POSITIONS, *_INCREMENTS) if key in options]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other", "a read has one position", "set one of them")
    needed = _NEEDED[mode]
    if needed and not given:
        raise UsageError(f"{MODE}={mode} needs a starting position", hint=f"set one of {', '.join(needed)}")
    if given and mode != "default" and given[0] not in needed:
        raise UsageError(f"{MODE}={mode} cannot be combined with {given[0]}", "the mode follows from it", f"leave {MODE} out")
    if given:
        return ScanOption(given[0], options[given[0]])
    return ScanOption(MODE, COMPACTED) if mode == COMPACTED else None
