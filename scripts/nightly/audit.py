"""Known vulnerabilities of the releases in requirements.lock, by `pip-audit`.

Without a network there is no answer: then it says so, and ends with the code of a program that cannot run here.
"""

from __future__ import annotations

import json
import subprocess
import sys

from scripts.nightly.run_all import CANNOT_RUN, ROOT

COMMAND = ("-m", "pip_audit", "--requirement", "requirements.lock", "--require-hashes", "--disable-pip", "--format", "json")


def verdict(output: str, errors: str) -> tuple[int, str]:
    """The exit code and what to print, for what `pip-audit` has printed. It prints a report only if it got an answer."""
    try:
        packages = json.loads(output)["dependencies"]
    except ValueError:
        reason = (errors.strip() or "pip-audit printed nothing").splitlines()[-1]
        return CANNOT_RUN, f"not run: {reason}"
    asked = [package for package in packages if "skip_reason" not in package]
    if packages and not asked:
        return CANNOT_RUN, f"not run: {packages[0]['skip_reason']}"
    found = [f"{package['name']} {package['version']}: {flaw['id']}" for package in asked for flaw in package["vulns"]]
    figures = {"measure": "audit", "packages": len(asked), "skipped": len(packages) - len(asked), "vulnerabilities": len(found)}
    return int(bool(found)), "\n".join([*found, json.dumps(figures)])


def main() -> int:
    done = subprocess.run([sys.executable, *COMMAND, "--timeout", "15"], cwd=ROOT, capture_output=True, text=True, timeout=1200)
    code, text = verdict(done.stdout, done.stderr)
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
