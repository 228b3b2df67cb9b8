"""How often, and after which waits, a commit that lost the race is tried again (format section 10.2, step 4)."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_cli.history.table_context import TableContext

_JITTER = 0.2


def attempts(context: TableContext) -> Iterator[int]:
    """1, 2, ... with a growing wait before each but the first; ends when `commit.max-retries` or `commit.timeout` is spent."""
    options, clock = context.options, context.clock
    start = clock.now_millis()
    for retry in range(options.commit_max_retries + 1):
        if retry:
            wait = min(options.commit_min_retry_wait * 2 ** (retry - 1), options.commit_max_retry_wait)
            clock.sleep(wait * (1 + _JITTER * context.names.jitter()) / 1000)
            if options.commit_timeout is not None and clock.now_millis() - start > options.commit_timeout:
                return
        yield retry + 1
