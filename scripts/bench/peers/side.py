"""The main loop of a side: reads requests and answers them with wall and CPU seconds, one JSON line each.

It runs under any interpreter, with the packages that its engine needs.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any


def serve(commands: Mapping[str, Callable[..., Any]]) -> None:
    """Serve requests. `commands`: name -> function of the line's other members that returns what to report besides the times."""
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print
    for line in sys.stdin:
        request = json.loads(line)
        work = commands[request.pop("do")]
        cpu, wall = time.process_time(), time.perf_counter()
        found = work(**request) or {}
        took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(json.dumps({**took, "peak_mb": peak, **found}), file=answers, flush=True)
