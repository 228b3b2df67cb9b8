"""Local storage in which no symbolic link leads out of a table, and nothing but regular files is read."""

from __future__ import annotations

import os
from typing import BinaryIO

from paimon_cli.errors import DamagedFile, Refused
from paimon_cli.storage.catalog_options import EXTERNAL_PLACES
from paimon_cli.storage.injected import RandomSource
from paimon_cli.storage.local_storage import LocalStorage, errors_of, open_regular


class ConfinedStorage(LocalStorage):
    """`LocalStorage` that raises `DamagedFile` for paths below `root` that symbolic links resolve to a place outside of it.

    Paths elsewhere are unaffected, and `root` itself may be reached through links.
    """

    def __init__(self, root: str, random: RandomSource | None = None) -> None:
        super().__init__(random)
        self._root = root
        self._real_root = os.path.realpath(root)
        self._checked: set[str] = set()

    def __reduce__(self) -> tuple[type[ConfinedStorage], tuple[str]]:
        return ConfinedStorage, (self._root,)

    def open_input(self, path: str) -> BinaryIO:
        """Open regular files only, because opening a pipe might wait for its writer forever."""
        self._check(path, follows=True)
        with errors_of(path):
            return open(path, "rb", opener=open_regular)

    def _check(self, path: str, follows: bool = False) -> None:
        """Resolve each directory once, and with `follows` also the last component of the path."""
        if not path.startswith(f"{self._root}/"):
            return
        self._check_directory(os.path.dirname(path), path)
        if follows and os.path.islink(path):
            self._refuse_outside(path, path)

    def _check_directory(self, directory: str, path: str) -> None:
        """A directory that is no link, in one that leads nowhere else, does neither: a table of many partitions is quick."""
        if directory in self._checked:
            return
        at = self._root
        for name in directory[len(at) + 1 :].split("/") if directory != at else ():
            at = f"{at}/{name}"
            if at in self._checked:
                continue
            if name in ("", ".", "..") or os.path.islink(at):
                self._refuse_outside(directory, path)
                self._checked.add(directory)
                return
            self._checked.add(at)

    def _refuse_outside(self, followed: str, path: str) -> None:
        real = os.path.realpath(followed)
        if real != self._real_root and not real.startswith(f"{self._real_root}/"):
            why, hint = f"a symbolic link leads to {real}", "put the file itself there, or delete the link"
            if not f"{os.path.normpath(followed)}/".startswith(f"{os.path.normpath(self._root)}/"):
                why, hint = f"'..' in the path leads to {real}", "correct the option of the table that holds this path"
            raise DamagedFile(f"{path} lies outside of the table", why, hint, path=path)


class ConfinedPlace(ConfinedStorage):
    """The same for a place outside of tables that the user allows: where links lead is not allowed, so it raises `Refused`."""

    def __reduce__(self) -> tuple[type[ConfinedPlace], tuple[str]]:
        return ConfinedPlace, (self._root,)

    def _refuse_outside(self, followed: str, path: str) -> None:
        try:
            super()._refuse_outside(followed, path)
        except DamagedFile as outside:
            what, real = f"{path} lies outside of {self._root}", os.path.realpath(followed)
            hint = f"make {followed} a directory of its own, or allow the place itself: `{EXTERNAL_PLACES}: {real}`"
            raise Refused(what, f"{outside.why}, and your configuration allows only {self._root}", hint, path=path) from None
