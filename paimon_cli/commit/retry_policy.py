"""How often a commit is tried again after others were faster, and how long it waits in between."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.table_context import TableContext

_JITTER = 0.2


class RetryPolicy:
    """Iterates over attempts, from 1, with growing waits, until `commit.max-retries` or `commit.timeout` is exhausted.

    As in Java, there is one attempt more than retries, and the timeout is checked before a wait, not after it.
    """

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self.begin_millis = context.clock.now_millis()
        self.attempts = 0

    def __iter__(self) -> Iterator[int]:
        options, context = self._context.options, self._context
        for retry in range(options.commit_max_retries + 1):
            self.attempts = retry + 1
            yield self.attempts
            if options.commit_timeout is not None and self.elapsed_millis > options.commit_timeout:
                return
            if retry < options.commit_max_retries:
                wait = min(options.commit_min_retry_wait * 2**retry, options.commit_max_retry_wait)
                with context.trace.timed("wait", before_attempt=self.attempts + 1):
                    context.clock.sleep(wait * (1 + _JITTER * context.random.jitter()) / 1000)

    @property
    def elapsed_millis(self) -> int:
        """Time since the first attempt started."""
        return self._context.clock.now_millis() - self.begin_millis

    def exhausted(self) -> StorageUnavailable:
        """The error to raise after the last attempt."""
        options = self._context.options
        limits = f"commit.max-retries={options.commit_max_retries}"
        if options.commit_timeout is not None:
            limits += f", commit.timeout={options.commit_timeout} ms"
        return StorageUnavailable(
            f"nothing was committed to {self._context.url}",
            f"other commits were faster in all {self.attempts} attempts, {self.elapsed_millis / 1000:.1f} s ({limits})",
            "run the job again, or raise commit.max-retries and commit.timeout",
            attempts=self.attempts,
            elapsed_millis=self.elapsed_millis,
            max_retries=options.commit_max_retries,
            timeout_millis=options.commit_timeout,
        )
