"""An opened table, which all phases share: its place, storage, histories, schema and options, and the paths of its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataType
from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.history.file_cache import BranchFiles, FileCache
from paimon_cli.history.float_partitions import FloatDirectories
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_place import BRANCH_MARK, TablePlace
from paimon_cli.history.tags_and_branches import BranchList, TagHistory
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout, partition_path
from paimon_cli.metadata.table_mode import LIMITED_WORK, TableMode, gates_of
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.column_options import renamed_in_options, without_sequence_fields
from paimon_cli.options.option_catalog import Operation, refuse
from paimon_cli.options.option_text import plain_number
from paimon_cli.options.table_options import VECTORS_ENABLED, TableOptions
from paimon_cli.storage.external_storage import external_path, place_not_allowed
from paimon_cli.storage.injected import Clock, NoTrace, RandomSource, SystemClock, SystemRandom, Trace
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.storage.threads import cached_property

if TYPE_CHECKING:
    from paimon_cli.history.manifest_cache import ManifestCache
    from paimon_cli.metadata.data_file_schema import FileLayout
    from paimon_cli.metadata.external_paths import ExternalPlaces


LATEST = "latest"


@dataclass(frozen=True)
class Definition:
    """What a table is at one schema: its columns, and its options, overridden by those of the call."""

    schema: TableSchema
    options: TableOptions


@dataclass(frozen=True)
class TableContext:
    """An opened table, or a view of it: at another schema or branch, with other options. All phases of a job use it.

    Its metadata is read without Arrow, and its schema when it is first needed, unless the `definition` fixes it; it then stays.
    All views share the `cache` of what was read. Picklable: Spark tasks access the table through it; caches are not sent.
    """

    place: TablePlace
    storage: Storage
    definition: Definition | None = field(default=None, repr=False)
    given: Mapping[str, str] = field(default_factory=dict)
    """The options of the call, which override the table's own."""
    clock: Clock = field(default_factory=SystemClock)
    random: RandomSource = field(default_factory=SystemRandom)
    read_threads: int = 8
    shows_level_0: bool = False
    """Whether reads show rows of level 0 that plain reads skip until they are compacted."""
    ignores_vectors: bool = False
    """Whether reads show rows that deletion vectors mark, too."""
    only_on: Snapshot | int | None = None
    """The snapshot on which the next change of rows must follow directly, or its id, 0 for none; None if others may be in
    between.
    """
    first_new_row_id: int | None = None
    """In the view of a transaction on a table with row tracking, the least id that its commit may give to new rows."""
    trace: Trace = field(default_factory=NoTrace, repr=False, compare=False)
    cache: FileCache = field(default_factory=FileCache, repr=False, compare=False)

    @staticmethod
    def open(
        url: str,
        given: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        storage: Storage | None = None,
        clock: Clock | None = None,
        random: RandomSource | None = None,
        branch: str = MAIN_BRANCH,
        schema: TableSchema | None = None,
        trace: Trace | None = None,
    ) -> TableContext:
        """Open a table by its path, at its latest schema, or at `schema`. A table of a catalog: `catalog.open_table`.

        Raises `NotFound` if there is no table, `NotSupported` for options that this version does not know.
        """
        root = url.rstrip("/")
        if storage is None:
            storage, root = storage_for_url(url, storage_options, confined=True)
        place = TablePlace(root, root).at_branch(branch)
        clock, random, trace = clock or SystemClock(), random or SystemRandom(), trace or NoTrace()
        table = TableContext(place, storage, given=given or {}, clock=clock, random=random, trace=trace)
        return table.redefined() if schema is None else table.defined_by(schema)

    def unread(self) -> TableContext:
        """The table with nothing kept of what was read before: for those who judge what is stored now."""
        return replace(self, cache=self.cache.renewed())

    def reopened(self) -> TableContext:
        """The table at its latest schema, read again."""
        return replace(self, definition=None, cache=self.cache.renewed())

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"definition": self._defined}

    @cached_property
    def url(self) -> str:
        """The normalised root of the table."""
        return self.place.url

    @property
    def name(self) -> str:
        """The table as the user named it, without secrets."""
        return self.place.name

    @cached_property
    def branch(self) -> str:
        return self.place.branch

    @property
    def address(self) -> str:
        """The table by its path, with the branch unless it is main."""
        return self.url if self.branch == MAIN_BRANCH else f"{self.url}${BRANCH_MARK}{self.branch}"

    @cached_property
    def _files(self) -> BranchFiles:
        return self.cache.at(self.storage, self.place)

    @cached_property
    def layout(self) -> TableLayout:
        return self._files.layout

    @cached_property
    def snapshots(self) -> SnapshotHistory:
        return self._files.snapshots

    @cached_property
    def schemas(self) -> SchemaHistory:
        return self._files.schemas

    @cached_property
    def tags(self) -> TagHistory:
        return self._files.tags

    @cached_property
    def branches(self) -> BranchList:
        return self._files.branches

    @cached_property
    def manifests(self) -> ManifestReader:
        return self._files.manifests(self.read_threads)

    @cached_property
    def manifest_cache(self) -> ManifestCache:
        return self._files.manifest_cache(self.read_threads)

    def find_schema(self) -> bool:
        """Look for a schema when the table is opened; returns whether there is one."""
        return self._files.find_schema()

    def expect_not_dropped(self) -> None:
        """Raise `NotFound` if the table was dropped after it was opened, so that it only looks like one without snapshots."""
        if not self.schemas.ids():
            self.schemas.newest_id()

    def expect_existing(self) -> None:
        """Check a table that seems to have no snapshot. Raises `NotFound` if it was dropped after it was opened, `DamagedFile` if
        its snapshot files are lost: a commit would begin a new history, and all older rows would be orphans.
        """
        self.expect_not_dropped()
        self.snapshots.expect_kept()

    def snapshot(self, snapshot_id: int | None = None) -> Snapshot | None:
        """The snapshot with this id, or the latest; None if the table has no snapshots.

        Raises `NotFound` for an unknown id, and if the table was dropped after it was opened.
        """
        found = self.snapshots.latest() if snapshot_id is None else self.snapshots.get(snapshot_id)
        if found is None:
            self.expect_existing()
        return found

    def named_schema(self, name: str) -> TableSchema:
        """The schema named `latest` or by its id. Raises `NotFound` if it does not exist."""
        number = plain_number(name)
        if number is not None and number >= 0:
            return self.schemas.get(number)
        if name != LATEST:
            why = "name a schema by its id or latest"
            raise NotFound(f"no schema '{name}' of {self.name}", why, f"paimon-cli schemas ls {self.layout.argument}")
        return self.schemas.latest()

    @cached_property
    def _defined(self) -> Definition:
        """The definition; raises `NotSupported` if paimon-cli cannot honour an option of the table."""
        return self.definition or self.defined_by(self._files.schema())._defined

    @cached_property
    def schema(self) -> TableSchema:
        return self._defined.schema

    @cached_property
    def readable_schema(self) -> TableSchema:
        """The schema as queries may use it: with the columns of row tracking, if the table has it."""
        if not self.mode.tracks_rows:
            return self.schema
        from paimon_cli.metadata.data_file_schema import with_tracking_columns  # loads Arrow

        return with_tracking_columns(self.schema)

    @cached_property
    def options(self) -> TableOptions:
        """The options of the schema, overridden by those of the call."""
        return self._defined.options

    def defined_by(self, schema: TableSchema) -> TableContext:
        """The table at a schema, with its options. Raises `NotSupported` if paimon-cli cannot honour one of them."""
        options = schema.typed_options.of_table(self.layout.argument)
        defined = replace(self, definition=Definition(schema, options.with_overrides(self.given) if self.given else options))
        defined.check(Operation.OPEN)
        return defined

    def redefined(self, *, schema: TableSchema | None = None, options: TableOptions | None = None) -> TableContext:
        """The table as if it had this schema or these options; by default what it has now."""
        return replace(self, definition=Definition(schema or self.schema, options or self.options))

    def with_options(self, given: Mapping[str, str]) -> TableContext:
        """The table with other options of the call."""
        asked = replace(self, given={**self.given, **given})
        return asked if self.definition is None else asked.redefined(options=self.options.with_overrides(given))

    def at_newest_readable(self) -> TableContext | None:
        """The table at the newest schema that can be read; None if there is none. For commands that examine damaged tables."""
        schema = self.schemas.newest_readable()
        return None if schema is None else self.defined_by(schema)

    @cached_property
    def mode(self) -> TableMode:
        """What the table is: its keys, buckets, merge engine, changelog producer and deletion vectors."""
        return TableMode.of(self.schema, self.options, self.shows_level_0, self.ignores_vectors)

    @property
    def leaves_compaction(self) -> bool:
        """Whether writers of the table leave compaction to other jobs, so that they never wait for one."""
        mode, options = self.mode, self.options
        return not mode.has_keys or mode.postpones_rows or options.write_only or options.sequence_snapshot_ordering

    def check(self, work: str) -> None:
        """Raise `NotSupported` if this version cannot do `work` on the table.

        `work`: a gate of `option_catalog`, or one of `LIMITED_WORK`.
        """
        if work in LIMITED_WORK:
            self.mode.check(work, self.address)
        for gate in gates_of(work) if work in LIMITED_WORK else (work,):
            refuse(gate, self.options.raw, self.address, self.mode.has_keys)
        if work in LIMITED_WORK:
            self._check_external_places()
        if work == Operation.SCAN and self.mode.clusters_rows:
            self._check_clustered_reads()

    def _check_clustered_reads(self) -> None:
        """Raise `NotSupported` for reads that would have to merge files, which are not sorted by key."""
        if not self.options.deletion_vectors_enabled and not self.mode.merge_engine.oldest_wins:
            why = "nothing says which of the rows of a key counts, because its files cannot be merged"
            hint = "read it with the engine that made it; Paimon requires vectors here, or that the first row of a key wins"
            raise NotSupported(f"cannot read {self.address} with pk-clustering-override without deletion vectors", why, hint)
        if self.mode.merge_on_read:
            why = "files that are sorted by clustering.columns cannot be merged with level 0"
            hint = "add --option deletion-vectors.merge-on-read=false, and read without the rows that wait for a compaction"
            raise NotSupported(f"cannot read {self.address} with deletion-vectors.merge-on-read=true", why, hint)

    def _check_external_places(self) -> None:
        """Raise `Refused` before any work is done, if new files would go to a place that the user does not allow."""
        if self.options.raw.get("data-file.external-paths"):
            _ = self.external_roots

    def with_level_0(self) -> TableContext:
        """The context in which reads show rows of level 0 that plain reads skip until they are compacted."""
        if not self.mode.hides_level_0:
            return self
        if self.mode.clusters_rows:
            why = "with pk-clustering-override they cannot be merged with the others, which are not sorted by key"
            raise NotSupported(f"cannot show rows of level 0 of {self.address}", why, "compact the table with its own engine")
        return replace(self, shows_level_0=True)

    def with_buckets(self, buckets: int) -> TableContext:
        """The table as it will be with this option `bucket`, for writers of new files."""
        return self.with_options({"bucket": str(buckets)})

    def at_schema(self, schema_id: int) -> TableContext:
        """The table with the columns of an older schema.

        Options stay the same, with the older names of columns. Only `deletion-vectors.enabled` is that of the older schema.
        """
        return self if schema_id == self.schema.id else self._with_columns_of(self.schemas.named(schema_id))

    def _with_columns_of(self, older: TableSchema) -> TableContext:
        old_names = {field.id: field.name for field in older.fields}
        added = {field.name for field in self.schema.fields if field.id not in old_names}
        renamed = {
            field.name: old_names[field.id] for field in self.schema.fields if old_names.get(field.id, field.name) != field.name
        }
        options = renamed_in_options(without_sequence_fields(self.options.raw, added), renamed)
        if options.get(VECTORS_ENABLED) == self.schema.options.get(VECTORS_ENABLED):  # otherwise a dynamic option has set it
            options = {**options, VECTORS_ENABLED: older.options.get(VECTORS_ENABLED, "false")}
        return self.redefined(schema=older, options=TableOptions(options, self.options.table, self.options.given))

    def at_branch(self, branch: str) -> TableContext:
        """Another branch of the table, at its latest schema, with the options of this context."""
        if branch == self.branch:
            return self
        seen = self.seen_from(branch)
        return seen.redefined(schema=seen.schemas.latest())

    def seen_from(self, branch: str) -> TableContext:
        """The history of another branch with the schema of this context, to inspect that branch's files."""
        return replace(self.redefined(), place=self.place.at_branch(branch))

    @cached_property
    def partition_types(self) -> tuple[DataType, ...]:
        return self.schema.types_of(self.schema.partition_keys)

    @cached_property
    def key_types(self) -> tuple[DataType, ...]:
        """The types of the trimmed primary key; empty for append tables."""
        return self.schema.types_of(self.schema.trimmed_primary_keys)

    @cached_property
    def file_layout(self) -> FileLayout:
        """The columns and types of data files of this schema, shared by the writers of all buckets."""
        from paimon_cli.metadata.data_file_schema import FileLayout  # loads Arrow, which commands on metadata do not need

        return FileLayout.of(self.schema)

    @cached_property
    def named_partitions(self) -> dict[bytes, str]:
        """The paths of the partitions that were asked for so far, by their serialised values."""
        default, legacy = self.options.partition_default_name, self.options.partition_legacy_name
        return self.cache.partition_paths(self.schema.partition_keys, self.partition_types, default, legacy)

    def partition_values(self, partition: bytes) -> tuple[Any, ...]:
        """The internal values of a serialised partition."""
        return self._decoded(partition, self.partition_types, "partition")

    def key_values(self, key: bytes) -> tuple[Any, ...]:
        """The internal values of a serialised primary key."""
        self._expect_keys()
        return self._decoded(key, self.key_types, "key")

    def key_of(self, key: bytes) -> tuple[Any, ...]:
        """A serialised primary key as a value that compares in Paimon's order (`datatypes.key_order.Key`)."""
        self._expect_keys()
        from paimon_cli.datatypes.key_order import comparable_key  # loads Arrow, which commands on metadata do not need

        return comparable_key(self.key_values(key))

    def _expect_keys(self) -> None:
        """Raise `NotSupported` if the bounds of files are no keys."""
        if self.mode.clusters_rows:
            what = f"the bounds of data files of {self.address} are not bounds of keys"
            raise NotSupported(what, "with pk-clustering-override files are sorted by clustering.columns", "its rows can be read")

    def partition_path_of(self, partition: bytes) -> str:
        """The path of a partition, such as 'k=v/k2=v2/'; '' in an unpartitioned table."""
        if partition not in self.named_partitions:
            values = self.partition_values(partition)
            default, legacy = self.options.partition_default_name, self.options.partition_legacy_name
            path = partition_path(self.schema.partition_keys, self.partition_types, values, default, legacy)
            self.named_partitions[partition] = path
        return self.named_partitions[partition]

    def bucket_path(self, partition: bytes, bucket: int) -> str:
        """The path of a bucket relative to the table, such as 'k=v/bucket-0'."""
        return self.layout.bucket_directory(self.partition_path_of(partition), bucket).removeprefix(f"{self.layout.root}/")

    @cached_property
    def _float_directories(self) -> FloatDirectories | None:
        if not any(t.root in FLOATING_ROOTS for t in self.partition_types):
            return None
        return FloatDirectories(self.storage, self.data_root, self.schema, self.options)

    def data_file_path(self, partition: bytes, bucket: int, file: DataFileMeta) -> str:
        """The path of a data file. Raises `Refused` for one at a place outside of the table that the user does not allow."""
        if file.external_path is None:
            if self._float_directories is not None:
                self._float_directories.expect(self.partition_path_of(partition), self.partition_values(partition), self.address)
            return self.data_file_path_of(partition, bucket, file.file_name)
        found = self._external(f"data file {file.file_name} of {self.url}", file.external_path)
        if found.rpartition("/")[2] != file.file_name:
            why = f"its external path ends otherwise: {file.external_path!r}"
            raise DamagedFile(f"a manifest of {self.url} names data file {file.file_name} in two ways", why, table=self.url)
        return found

    def file_paths(self, partition: bytes, bucket: int, file: DataFileMeta) -> Iterator[str]:
        """The paths of a data file and of its extra files, which are beside it. Raises as `data_file_path`."""
        path = self.data_file_path(partition, bucket, file)
        directory = path.rpartition("/")[0]
        return (f"{directory}/{name}" for name in (file.file_name, *file.extra_files))

    def can_open(self, file: DataFileMeta) -> bool:
        """Whether the file is in the table, or at a place that the user allows."""
        return file.external_path is None or external_path(self.storage, file.external_path) is not None

    def new_data_file(self, partition: bytes, bucket: int, file_name: str) -> tuple[str, str | None]:
        """The path of a new data file, and its external path as manifests record it, if new files are outside of the table.

        Raises `Refused` if the user does not allow that place.
        """
        directory = self.bucket_directory(partition, bucket)
        if (places := self.external_places) is None:
            return f"{directory}/{file_name}", None
        recorded = places.path_of(directory.removeprefix(f"{self.layout.root}/"), file_name)
        return self._external(f"a new data file of {self.url}", recorded), recorded

    @cached_property
    def external_places(self) -> ExternalPlaces | None:
        """Where new data files go if that is outside of the table, else None. Raises `UsageError` for contradictory options."""
        from paimon_cli.metadata.external_paths import ExternalPlaces

        return ExternalPlaces.of(self.options)

    @property
    def external_roots(self) -> list[str]:
        """The directories outside of the table that hold partitions or buckets of new files. Raises as `new_data_file`."""
        places = self.external_places
        return (
            []
            if places is None
            else [self._external(f"the place of new data files of {self.url}", path) for path in places.paths]
        )

    def _external(self, what: str, recorded: str) -> str:
        found = external_path(self.storage, recorded)
        if found is None:
            raise place_not_allowed(what, recorded)
        return found

    def data_file_path_of(self, partition: bytes, bucket: int, file_name: str) -> str:
        """The path of a file in the table's own directory of a bucket, by its name."""
        return f"{self.bucket_directory(partition, bucket)}/{file_name}"

    def bucket_directory(self, partition: bytes, bucket: int) -> str:
        """The directory with the data files of a bucket, below `data-file.path-directory` if the table has that option."""
        return self.layout.bucket_directory(self._data_prefix + self.partition_path_of(partition), bucket)

    @property
    def data_root(self) -> str:
        """The directory with the directories of partitions or buckets: the table's root, or `data-file.path-directory`."""
        return f"{self.layout.root}/{self._data_prefix}".rstrip("/")

    @cached_property
    def _data_prefix(self) -> str:
        """The option `data-file.path-directory` as a prefix, such as 'directory/'; '' without it."""
        directory = self.options.data_file_path_directory
        return f"{directory}/" if directory else ""

    def _decoded(self, row: bytes, types: tuple[DataType, ...], what: str) -> tuple[Any, ...]:
        try:
            return deserialize_row(row, types)
        except ValueError as error:
            raise DamagedFile(f"a manifest of {self.url} holds a damaged {what}", str(error), table=self.url) from error
