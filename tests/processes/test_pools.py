"""Processes of the nightly programs do not outlive a program that was killed."""

from __future__ import annotations

import os
import select
import subprocess
import sys

PROGRAM = """
import os, sys
from scripts.nightly.pool import pool
with pool(1) as processes:
    print(processes.submit(os.getpid).result(), flush=True)
    sys.stdin.read()
"""


def test_an_idle_pool_ends_with_its_killed_program() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        of_pool = os.pidfd_open(int(program.stdout.readline()))
        program.kill()
    ended, _, _ = select.select([of_pool], [], [], 20)
    os.close(of_pool)
    assert ended
