"""Values of options and arguments that commands, the library and jobs name alike."""

from __future__ import annotations


def values_of(kinds: type) -> tuple[str, ...]:
    """The values of a class of kinds, in the order of its members."""
    return tuple(value for name, value in vars(kinds).items() if name.isupper())


class OnError:
    """What to do with a row that cannot be stored. Any other value is the name of a file for the rejected cells."""

    FAIL = "fail"
    SKIP = "skip"


class OtherBuckets:
    """What to do with rows of buckets that the writer does not own."""

    REFUSE = "refuse"
    SKIP = "skip"


class OnConflict:
    """What to do with a compacted bucket whose files another commit has removed."""

    RETRY = "retry"
    SKIP = "skip"
    FAIL = "fail"


class WriterOrder:
    """What to do with rows of one key from several staged writers."""

    GIVEN = "given"
    REFUSE = "refuse"


class CompactionMode:
    """When the buckets that a job has written are compacted: not by the job, as it writes, beside it, or after its commit."""

    NONE = "none"
    INLINE = "inline"
    ASYNC = "async"
    AFTER = "after"


class ConflictCheck:
    """What concurrent commits must not both write to. Later ones cause fewer conflicts, but read more."""

    OFF = "off"
    PARTITION = "partition"
    BUCKET = "bucket"
    RANGE = "range"
    KEY = "key"
