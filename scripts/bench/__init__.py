"""Benchmarks. Importing this package selects the memory allocator that the command line uses (see `cli.app`)."""

import os

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
