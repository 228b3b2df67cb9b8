"""Keeps pandas out of processes that do without it.

Arrow imports pandas, wherever it is installed, when it makes its first array: a third of a second of every command, for
nothing. PySpark cannot do without it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PANDAS = "pandas"


class _Doorkeeper(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == PANDAS:
            raise ModuleNotFoundError("pandas is kept out of this process", name=name)
        return None


_DOORKEEPER = _Doorkeeper()


def keep_pandas_out() -> None:
    """Imports of pandas fail from here on, as if it were not installed; to be called before Arrow is used."""
    sys.meta_path.insert(0, _DOORKEEPER)


def let_pandas_in() -> None:
    """Undo `keep_pandas_out`."""
    if _DOORKEEPER in sys.meta_path:
        sys.meta_path.remove(_DOORKEEPER)
