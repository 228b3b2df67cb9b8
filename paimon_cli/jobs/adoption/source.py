"""What is adopted: the files of a source, with the values of their partition columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import in_parallel

Stamp = tuple[int, int]
"""Size in bytes and modification time in epoch millis of a file, by which a replaced one is known."""

CHANGED_HINT = "stop the writers, and try again"
METADATA_SUFFIXES = (".metadata.json", ".metadata.json.gz")
"""The ends of the names of Iceberg's metadata files. The second one is of old versions, for what is compressed."""

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The name of a partition value that is null, as Hive and Spark write it."""


@dataclass(frozen=True)
class AdoptedFile:
    """A file by its path below the root of the source, its size in bytes, and the texts of its partition columns, None for null.

    `rows`: how many it has by the metadata of the source; None if there is none.
    """

    path: str
    size: int
    partition: tuple[str | None, ...] = ()
    rows: int | None = None


@dataclass(frozen=True)
class Source:
    """What is adopted. `kind`: `files`, `iceberg` or `hive`; `keys`: the names of the partition columns.

    `types`: their types in SQL, as far as the source says. `rows`: how many it has by its own metadata. `columns`: the names and
    SQL types of a Hive table, which has a `name`; `root` is then the directory that all of its files have in common. `order`:
    the names of the columns as an Iceberg table has them; its files may have them in another order.
    """

    kind: str
    storage: Storage
    root: str
    keys: tuple[str, ...]
    files: tuple[AdoptedFile, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    name: str = ""
    order: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How people know it."""
        return self.name or self.root

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def stamps(self, threads: int) -> dict[str, Stamp]:
        """The stamps of its files by their paths, as the directories are now; without those that are missing."""
        paths = {file.path for file in self.files}
        directories = sorted({f"{self.root}/{path}".rpartition("/")[0] for path in paths})
        listed = in_parallel(self.storage.list_directory, directories, threads)
        entries = ((entry.path[len(self.root) + 1 :], entry) for found in listed for entry in found)
        return {path: (entry.size, entry.modified_millis) for path, entry in entries if path in paths}
