"""How jobs report progress; a progress bar on the terminal is one implementation, silence is another."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """One job's phases, one after the other. Called from one thread only."""

    def start(self, description: str, total: int | None) -> None:
        """A new phase of `total` steps (None: unknown); ends the one before."""
        ...

    def advance(self, n: int = 1) -> None: ...

    def finish(self) -> None: ...


class NoProgress:
    """Says nothing."""

    def start(self, description: str, total: int | None) -> None: ...

    def advance(self, n: int = 1) -> None: ...

    def finish(self) -> None: ...
