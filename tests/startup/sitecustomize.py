"""Imported when a Python process of a test starts: it takes PySpark from where it is installed.

Spark puts pyspark.zip first on the path of its Python workers, and each of these processes would compile it again.
"""

import sys
from importlib.machinery import PathFinder

archives = [path for path in sys.path if path.endswith("pyspark.zip")]
others = [path for path in sys.path if path not in archives]
if archives and PathFinder.find_spec("pyspark", others) is not None:
    sys.path[:] = [*others, *archives]
