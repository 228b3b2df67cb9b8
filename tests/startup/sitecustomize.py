"""Imported when a Python process of a test starts: it takes PySpark from where it is installed, and makes pieces small.

Spark puts pyspark.zip first on the path of its Python workers, and each of these processes would compile it again. The sizes of
pieces are those of the process that started this one (`tests/pieces.py`). The process from which Spark forks the workers of tasks
has the large libraries, because a task that fails takes its worker with it, and importing them is half of what the next one does.
"""

import json
import os
import sys
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
    os.fsync = os.fstat

if sys.orig_argv[-2:] == ["pyspark.daemon", "pyspark.worker"]:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no threads before the fork
    import pandas  # noqa: F401
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401
