"""paimon-cli: a table manager for Apache Paimon tables with a storage engine of its own.

`from paimon_cli import Catalog, Table` is the library. Nothing else is loaded until it is asked for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if "PAIMON_CLI_OWN_WORKER" in os.environ:  # `processor.OWN_WORKER`: before anything of this package imports numpy
    from paimon_cli.processor import fast_sort

    os.environ.update(fast_sort(os.environ))

if TYPE_CHECKING:
    from paimon_cli.api.catalog import Catalog, restore
    from paimon_cli.api.runtime import Runtime
    from paimon_cli.api.table import Table
    from paimon_cli.ingest.text_form import TextForm

__version__ = "0.1.0"
__all__ = ["Catalog", "Runtime", "Table", "TextForm", "__version__", "restore"]

_MODULES = {
    "Catalog": "paimon_cli.api.catalog",
    "Runtime": "paimon_cli.api.runtime",
    "Table": "paimon_cli.api.table",
    "TextForm": "paimon_cli.ingest.text_form",
    "restore": "paimon_cli.api.catalog",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if os.name == "nt":
        from paimon_cli.installation import ON_WINDOWS

        raise ImportError(ON_WINDOWS)
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
