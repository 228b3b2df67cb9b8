"""Imported when a Python process of a test starts: it takes PySpark from where it is installed, and makes pieces small.

Spark puts pyspark.zip first on the path of its Python workers, and each of these processes would compile it again. The sizes of
pieces are those of the process that started this one (`tests/pieces.py`). Processes from which Spark forks workers have modules
of `TEST_LOADED`, else each worker would import them, and a task that fails takes its worker with it. When a write has failed,
they wait `TEST_TASK_END` seconds for its other tasks, which have ended in almost all tests.
"""

import json
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec

archives = [path for path in sys.path if path.endswith("pyspark.zip")]
others = [path for path in sys.path if path not in archives]
if archives and PathFinder.find_spec("pyspark", others) is not None:
    sys.path[:] = [*others, *archives]

if "TEST_PIECES" in os.environ and find_spec("paimon_cli") is not None:
    from paimon_cli.pieces import PIECES

    for name, size in json.loads(os.environ["TEST_PIECES"]).items():
        setattr(PIECES, name, size)

if "TEST_UNSYNCED" in os.environ:  # as in the process of the tests
    os.fsync = os.fstat  # type: ignore[assignment]

if "pyspark.daemon" in sys.orig_argv:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no threads before the fork
    for module in os.environ.get("TEST_LOADED", "pandas pyarrow.compute pyarrow.parquet").split():
        import_module(module)
    if "paimon_cli.spark.source_writing" in sys.modules and "TEST_TASK_END" in os.environ:
        vars(sys.modules["paimon_cli.spark.source_writing"])["TASK_END_SECONDS"] = float(os.environ["TEST_TASK_END"])
