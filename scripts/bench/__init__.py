"""Benchmarks. Importing this package selects the memory allocator and the sort that the command line uses (see `cli.app`)."""

import os

from paimon_cli.processor import fast_sort

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
os.environ.update(fast_sort(os.environ))
