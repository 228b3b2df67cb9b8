"""Values of options and arguments that commands, the library and jobs name alike."""

from __future__ import annotations

from typing import Final


def values_of(kinds: type) -> tuple[str, ...]:
    """The values of a class of kinds, in the order of its members."""
    return tuple(value for name, value in vars(kinds).items() if name.isupper())


class ExternalPathStrategy:
    """How the place of a new data file is chosen, if a table keeps them outside of its directory."""

    NONE: Final = "none"
    SPECIFIC_FS: Final = "specific-fs"
    ROUND_ROBIN: Final = "round-robin"
    ENTROPY_INJECT: Final = "entropy-inject"
    WEIGHTED: Final = "weight-robin"


class OnError:
    """What to do with a row that cannot be stored. Any other value is the name of a file for the rejected cells."""

    FAIL: Final = "fail"
    SKIP: Final = "skip"


class OtherBuckets:
    """What to do with rows of buckets that the writer does not own."""

    REFUSE: Final = "refuse"
    SKIP: Final = "skip"


class OnConflict:
    """What to do with a compacted bucket whose files another commit has removed."""

    RETRY: Final = "retry"
    SKIP: Final = "skip"
    FAIL: Final = "fail"


class WriterOrder:
    """What to do with rows of one key from several staged writers."""

    GIVEN: Final = "given"
    REFUSE: Final = "refuse"


class CompactionMode:
    """When the buckets that a job has written are compacted: not by the job, as it writes, beside it, or after its commit."""

    NONE: Final = "none"
    INLINE: Final = "inline"
    ASYNC: Final = "async"
    AFTER: Final = "after"


class ConflictCheck:
    """What concurrent commits must not both write to. Later ones cause fewer conflicts, but read more."""

    OFF: Final = "off"
    PARTITION: Final = "partition"
    BUCKET: Final = "bucket"
    RANGE: Final = "range"
    KEY: Final = "key"


class TagCreation:
    """When commits create tags by themselves."""

    NONE: Final = "none"
    PROCESS_TIME: Final = "process-time"
    WATERMARK: Final = "watermark"
    BATCH: Final = "batch"


class TagPeriod:
    """How often automatic tags are created."""

    DAILY: Final = "daily"
    HOURLY: Final = "hourly"
    TWO_HOURS: Final = "two-hours"


class TagPeriodFormat:
    """How the period is spelled after which an automatic tag is named."""

    WITH_DASHES: Final = "with_dashes"
    WITHOUT_DASHES: Final = "without_dashes"
    WITHOUT_DASHES_AND_SPACES: Final = "without_dashes_and_spaces"
