"""`python -m paimon_cli` and the `paimon-cli` script: the application, and a quiet exit if its loading is interrupted."""

from __future__ import annotations

import os
import sys

from paimon_cli.processor import fast_sort, set_for_this_process

INTERRUPTED, NOT_SUPPORTED = 130, 8


def main() -> None:
    if os.name == "nt":
        from paimon_cli.installation import ON_WINDOWS

        print(f"error: {ON_WINDOWS}", file=sys.stderr, flush=True)
        sys.exit(NOT_SUPPORTED)
    try:
        set_for_this_process(fast_sort(os.environ))
        from paimon_cli.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
