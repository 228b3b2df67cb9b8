"""Keeps pandas out of processes that do without it.

Arrow imports pandas, wherever it is installed, when it makes its first array: a third of a second of every command, for
nothing. PySpark cannot do without it. For each Python value whose type it infers Arrow also imports dateutil, to recognise
intervals of which there are none here; others that use dateutil get it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PANDAS, DATEUTIL = "pandas", "dateutil"


class _Doorkeeper(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == PANDAS or (name.partition(".")[0] == DATEUTIL and _is_asked_by_arrow()):
            raise ModuleNotFoundError(f"{name} is kept out of this process", name=name)
        return None


def _is_asked_by_arrow() -> bool:
    """Whether the import comes from Arrow's compiled code, which stands directly below its Python caller."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("pyarrow", "paimon_cli")


_DOORKEEPER = _Doorkeeper()


def keep_pandas_out() -> None:
    """Imports of pandas fail from here on, as if it were not installed; to be called before Arrow is used."""
    sys.meta_path.insert(0, _DOORKEEPER)


def let_pandas_in() -> None:
    """Undo `keep_pandas_out`."""
    if _DOORKEEPER in sys.meta_path:
        sys.meta_path.remove(_DOORKEEPER)
