"""The actors of `lab check`: what each kind does, the table that they need, and their jobs.

Most kinds work on JSON files. A marker, an assigner or a rescaler needs Parquet files, and then all actors beside it use them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from paimon_cli.datatypes.bucket_functions import bucket_of
from paimon_cli.datatypes.bucket_hash import hash_rows
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import UsageError
from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.actor_jobs import (
    compactor,
    expirer,
    in_turn,
    litterer,
    orphan_remover,
    overwriter,
    read_modify_write,
    restorer,
    rows,
    tagger,
    writer,
)
from paimon_cli.lab.simulation.json_files import BucketRows
from paimon_cli.lab.simulation.publication import COUNTER
from paimon_cli.lab.simulation.real_jobs import real_compactor, real_read_modify_write, real_rescaler, real_writer
from paimon_cli.metadata.data_file_schema import RowKind

ACTOR_KINDS: Mapping[str, str] = {
    "writer": "writes to a bucket of its own",
    "rival": "writes a key that every rival writes",
    "counter": "reads a counter, adds one and writes it back; retries after a data conflict",
    "twin": "makes a commit with the same identity as every other twin",
    "overwriter": "replaces all rows with its own",
    "deleter": "deletes a row that is there at the beginning",
    "restorer": "brings back the rows of the first snapshot as a new commit; starts again after a conflict",
    "compactor": "compacts every bucket fully; makes a new plan after a conflict",
    "marker": "writes a row of its own to a table with deletion vectors and compacts level 0, which marks the old row",
    "assigner": "writes a new key, the same as every assigner, to a table with dynamic buckets",
    "rescaler": "rewrites all rows with another number of buckets",
    "expirer": "expires all snapshots except the newest",
    "tagger": "tags an old snapshot",
    "cleaner": "removes orphan files",
}
SHARING = ("rival", "counter", "overwriter", "deleter", "restorer")
"""Kinds that change rows of others, which only the data conflict check makes safe."""
HAVE_ROUNDS = ("counter", "rival", "twin", "writer")
_MAX_ACTORS = 6
_NEED_FILES = {"marker", "assigner", "rescaler"}
_NEED_HISTORY = {"expirer", "tagger", "cleaner"}
_IMPOSSIBLE = (
    ("counter", "overwriter", "the overwriter resets the counter, so lost increments cannot be detected"),
    ("counter", "restorer", "the restorer resets the counter, so lost increments cannot be detected"),
    ("marker", "assigner", "with vectors reads hide level 0 by bucket, and the checker cannot tell the bucket of a new key"),
    ("assigner", "rescaler", "a rescale gives the table fixed buckets, and the assigner needs dynamic ones"),
)
ROWS_PER_DYNAMIC_BUCKET = 2
NEW_KEY = 50_000
"""The key of all assigners."""
_CHANGED, FIRST_MARKED = 1, 20
"""Of the keys in the shared bucket: the number of the one that all change, and of the first one that a marker replaces."""
_KEY_TYPE = parse_type("INT NOT NULL")
_HASHED = 1_000
"""More keys than a bucket needs for its actors: the shipped hash spreads that number over all buckets."""


@dataclass(frozen=True)
class Cast:
    """The actors of one search, by kind."""

    actors: tuple[str, ...]
    rounds: int = 1

    def check(self) -> None:
        """Raise `UsageError` for actors that cannot work together, before any of them starts."""
        unknown = [kind for kind in self.actors if kind not in ACTOR_KINDS]
        if unknown:
            raise UsageError(f"unknown actor '{unknown[0]}'", f"actors are {', '.join(ACTOR_KINDS)}")
        if not 1 <= len(self.actors) <= _MAX_ACTORS:
            raise UsageError(f"{len(self.actors)} actors", f"1 to {_MAX_ACTORS} can be interleaved")
        if self.rounds != 1 and not set(HAVE_ROUNDS) & set(self.actors):
            why = f"only {', '.join(HAVE_ROUNDS)} repeat their work"
            raise UsageError("--rounds does not apply to these actors", why, "remove --rounds")
        for one, other, why in _IMPOSSIBLE:
            if {one, other} <= set(self.actors):
                raise UsageError(f"{one} and {other} cannot be combined", why)

    @property
    def names(self) -> list[str]:
        """Names of the actors, numbered if there are several of a kind: `writer 1`, `writer 2`, `compactor`."""
        counts: Counter[str] = Counter()
        names = []
        for kind in self.actors:
            counts[kind] += 1
            names.append(f"{kind} {counts[kind]}" if self.actors.count(kind) > 1 else kind)
        return names

    @property
    def has_real_files(self) -> bool:
        return bool(_NEED_FILES & set(self.actors))

    @property
    def deletes_files(self) -> bool:
        return bool({"expirer", "cleaner"} & set(self.actors))

    @property
    def shares_rows(self) -> bool:
        """Whether two actors change the same rows."""
        return sum(kind in SHARING for kind in self.actors) > 1

    @property
    def table_options(self) -> Mapping[str, str]:
        """Options that these actors need. With real files, only actors that compact do so: writers are write-only."""
        if not self.has_real_files:
            return {"bucket": str(self._bucket_count)}
        options = {"bucket": str(self._bucket_count), "write-only": "true"}
        if "assigner" in self.actors:
            options |= {"bucket": "-1", "dynamic-bucket.target-row-num": str(ROWS_PER_DYNAMIC_BUCKET)}
        if "marker" in self.actors:
            options["deletion-vectors.enabled"] = "true"
        return options

    @property
    def _bucket_count(self) -> int:
        return 2 + self.actors.count("writer")

    @cached_property
    def _keys(self) -> Mapping[int, Sequence[int]]:
        """The keys of each bucket, as the shipped hash assigns them. The first bucket is that of the counter, key 1."""
        hashes = hash_rows([pa.array(range(1, _HASHED), pa.int32())], [_KEY_TYPE])
        keys: dict[int, list[int]] = {}
        for key, bucket in enumerate(bucket_of(hashes, self._bucket_count).tolist(), 1):
            keys.setdefault(bucket, []).append(key)
        return keys

    @property
    def _buckets(self) -> Sequence[int]:
        """The bucket that all share, then one for each writer, then that of the twins."""
        return list(self._keys)

    def _shared(self, *numbers: int, value: str = "", kind: int = RowKind.INSERT) -> BucketRows:
        """Rows of the shared bucket, by the numbers of their keys."""
        bucket = self._buckets[0]
        return rows(bucket, *(self._keys[bucket][number] for number in numbers), value=value, kind=kind)

    def _own(self, number: int, value: str) -> BucketRows:
        """A row of another bucket."""
        bucket = self._buckets[number]
        return rows(bucket, self._keys[bucket][0], value=value)

    @property
    def first_rows(self) -> BucketRows:
        """The rows of snapshot 1: the counter, a row that others change, and one for each marker."""
        return self._shared(0, _CHANGED, *range(FIRST_MARKED, FIRST_MARKED + self.actors.count("marker")), value="0")

    def beginning(self) -> Job:
        """Two writes to the shared bucket. For actors that need files at the top level or a history, it is compacted too."""
        later = self._shared(_CHANGED, _CHANGED + 1)
        litter = [litterer()] if "cleaner" in self.actors else []
        if self.has_real_files:
            first, second = real_writer("first", self.first_rows), real_writer("second", later)
            # with marked rows at the top level and none at level 0, a full compaction rewrites what a marker marks meanwhile
            marks = [real_compactor("minor")] if "marker" in self.actors else []
            return in_turn(first, real_compactor(), second, *marks, *litter)
        first = writer("first", self.first_rows, later)
        return in_turn(first, compactor(), *litter) if _NEED_HISTORY & set(self.actors) else first

    def jobs(self) -> Iterator[Job]:
        for number, kind in enumerate(self.actors):
            yield self._job(f"{kind}-{number}", kind, number, self.actors[:number].count(kind))

    def _job(self, user: str, kind: str, number: int, of_its_kind: int) -> Job:
        value = "abcdef"[number]
        if kind == "writer":
            return self._writer(user, [self._own(1 + of_its_kind, f"{value}{r}") for r in self._rounds])
        if kind == "rival":
            # with different row counts, the rivals assign different sequence numbers to the shared key
            keys = range(_CHANGED + len(self.actors) - number - 1, _CHANGED - 1, -1)
            return self._writer(user, [self._shared(*keys, value=f"{value}{r}") for r in self._rounds])
        if kind == "twin":
            return self._writer("twin", [self._own(-1, f"t{r}") for r in self._rounds], repeatable=True)
        if kind == "counter":
            return in_turn(*(self._counter(f"{user}-{r}") for r in self._rounds))
        if kind == "overwriter":
            own = self._shared(0, value="0")
            return real_writer(user, own, overwrite=True, refusal=UsageError) if self.has_real_files else overwriter(user, own)
        if kind == "deleter":
            return self._writer(user, [self._shared(_CHANGED, kind=RowKind.DELETE)])
        if kind == "restorer":
            return restorer(user, 1, self.first_rows)
        if kind == "tagger":
            return tagger(user, 2)
        if kind == "marker":
            return in_turn(self._writer(user, [self._shared(FIRST_MARKED + of_its_kind, value=value)]), real_compactor("minor"))
        if kind == "assigner":
            # one more row before it, or not, leads the new key to different buckets
            first = () if of_its_kind % 2 else (NEW_KEY + 1 + of_its_kind,)
            return self._writer(user, [rows(0, *first, NEW_KEY, value="new")])
        if kind == "rescaler":
            return real_rescaler(user, self._bucket_count + 1 + of_its_kind)
        return self._maintenance[kind]()

    @property
    def _rounds(self) -> range:
        return range(self.rounds)

    def _writer(self, user: str, batches: Sequence[BucketRows], repeatable: bool = False) -> Job:
        if self.has_real_files:  # beside a rescaler it may start with an outdated number of buckets, and is refused
            return real_writer(user, *batches, repeatable=repeatable, refusal=UsageError)
        return writer(user, *batches, repeatable=repeatable)

    def _counter(self, user: str) -> Job:
        place = self._buckets[0], COUNTER
        if self.has_real_files:
            return real_read_modify_write(user, *place, refusal=UsageError)
        return read_modify_write(user, *place)

    @property
    def _maintenance(self) -> Mapping[str, Callable[[], Job]]:
        return {
            "compactor": real_compactor if self.has_real_files else compactor,
            "expirer": expirer,
            "cleaner": orphan_remover,
        }
