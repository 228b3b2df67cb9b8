"""`python -m paimon_cli` and the `paimon-cli` script: the application, and a quiet exit if its loading is interrupted."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def main() -> None:
    try:
        from paimon_cli.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
