"""Benchmarks. Arrow takes its memory from where the command lets it take it (see `cli.app`)."""

import os

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
