"""The attempts of a commit: how often it is tried, and the waits in between (FORMAT.md, section 10.2)."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.table_context import TableContext

_JITTER = 0.2


class RetryPolicy:
    """1, 2, ... with a growing wait in between, until `commit.max-retries` or `commit.timeout` is spent.

    As in Java there is one attempt more than retries, and the timeout is checked before a wait, not after it.
    """

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._begin = context.clock.now_millis()
        self.made = 0

    def __iter__(self) -> Iterator[int]:
        options, context = self._context.options, self._context
        for retry in range(options.commit_max_retries + 1):
            self.made = retry + 1
            yield self.made
            if options.commit_timeout is not None and self.elapsed_millis > options.commit_timeout:
                return
            if retry < options.commit_max_retries:
                wait = min(options.commit_min_retry_wait * 2**retry, options.commit_max_retry_wait)
                with context.trace.timed("wait", before_attempt=self.made + 1):
                    context.clock.sleep(wait * (1 + _JITTER * context.names.jitter()) / 1000)

    @property
    def elapsed_millis(self) -> int:
        """Since the first attempt began."""
        return self._context.clock.now_millis() - self._begin

    def exhausted(self) -> StorageUnavailable:
        """The error after the last attempt, with all figures."""
        options = self._context.options
        limits = f"commit.max-retries={options.commit_max_retries}"
        if options.commit_timeout is not None:
            limits += f", commit.timeout={options.commit_timeout} ms"
        return StorageUnavailable(
            f"nothing was committed to {self._context.url}",
            f"other commits were faster in all {self.made} attempts, {self.elapsed_millis / 1000:.1f} s ({limits})",
            "run the job again, or raise commit.max-retries and commit.timeout",
            attempts=self.made,
            elapsed_millis=self.elapsed_millis,
            max_retries=options.commit_max_retries,
            timeout_millis=options.commit_timeout,
        )
