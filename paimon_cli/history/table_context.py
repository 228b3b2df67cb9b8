"""The context of a table, which all phases share: storage, schema and options, histories, and the paths of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.kept_files import KeptFiles, KnownFiles
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.tags_and_branches import BranchList, TagHistory
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout, partition_path
from paimon_cli.metadata.table_mode import LIMITED_WORK, TableMode, gates_of
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.column_options import renamed_in_options, without_sequence_fields
from paimon_cli.options.option_catalog import Operation, refuse
from paimon_cli.options.table_options import VECTORS_ENABLED, TableOptions
from paimon_cli.storage.injected import Clock, NoTrace, RandomSource, SystemClock, SystemRandom, Trace
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.storage.threads import cached_property

if TYPE_CHECKING:
    from paimon_cli.history.manifest_cache import ManifestCache
    from paimon_cli.metadata.data_file_schema import FileLayout


class TableHistory:
    """The histories of a table: a base class of contexts, which have a URL, a storage and a branch."""

    url: str
    storage: Storage
    branch: str
    read_threads: int = 8

    @cached_property
    def layout(self) -> TableLayout:
        return TableLayout(self.url, self.branch)

    @cached_property
    def snapshots(self) -> SnapshotHistory:
        return SnapshotHistory(self.storage, self.layout)

    @cached_property
    def schemas(self) -> SchemaHistory:
        return SchemaHistory(self.storage, self.layout)

    @cached_property
    def tags(self) -> TagHistory:
        return TagHistory(self.storage, self.layout)

    @cached_property
    def branches(self) -> BranchList:
        return BranchList(self.storage, self.layout)

    @cached_property
    def manifests(self) -> ManifestReader:
        return ManifestReader(self.storage, self.layout, self.read_threads)

    @cached_property
    def manifest_cache(self) -> ManifestCache:
        from paimon_cli.history.manifest_cache import ManifestCache  # loads numpy, which commands on snapshots do not need

        return ManifestCache(self.manifests)

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


@dataclass(frozen=True)
class TableContext(TableHistory):
    """A table at one schema. Picklable: Spark tasks access the table through it.

    `url`: the normalised root of the table. `options`: the options of the schema, overridden by dynamic options.
    """

    url: str
    storage: Storage
    schema: TableSchema
    options: TableOptions
    clock: Clock = field(default_factory=SystemClock)
    random: RandomSource = field(default_factory=SystemRandom)
    read_threads: int = 8
    branch: str = MAIN_BRANCH
    shows_level_0: bool = False
    """Whether reads show rows of level 0 that plain reads skip until they are compacted."""
    ignores_vectors: bool = False
    """Whether reads show rows that deletion vectors mark, too."""
    trace: Trace = field(default_factory=NoTrace, repr=False, compare=False)
    kept: KeptFiles = field(default_factory=KeptFiles, repr=False, compare=False)
    argument: str | None = field(default=None, repr=False, compare=False)
    """The table as an argument of commands, if the user named it."""

    @cached_property
    def layout(self) -> TableLayout:
        return TableLayout(self.url, self.branch, self.argument)

    @staticmethod
    def open(
        url: str,
        dynamic_options: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        storage: Storage | None = None,
        clock: Clock | None = None,
        random: RandomSource | None = None,
        branch: str = MAIN_BRANCH,
        schema: TableSchema | None = None,
        trace: Trace | None = None,
        opened: TableHistory | None = None,
    ) -> TableContext:
        """Open a table at its latest schema, or at `schema`.

        `opened`: a context of the same branch on the same storage, whose histories and caches are shared.

        Raises `NotFound` if there is no table, `NotSupported` for options that this version does not know.
        """
        root = url.rstrip("/")
        if storage is None:
            storage, root = storage_for_url(url, storage_options, confined=True)
        schemas = SchemaHistory(storage, TableLayout(root, branch)) if opened is None else opened.schemas
        schema = schema or schemas.latest()
        options = schema.typed_options.of_table(schemas.layout.argument)
        if dynamic_options:
            options = options.with_overrides(dynamic_options)
        clock, random, trace = clock or SystemClock(), random or SystemRandom(), trace or NoTrace()
        argument = schemas.layout.given_argument
        context = TableContext(root, storage, schema, options, clock, random, branch=branch, trace=trace, argument=argument)
        context.__dict__.update(schemas=schemas)  # `schemas` has cached the schema
        if opened is not None:
            context.__dict__["snapshots"] = opened.snapshots
        context.check(Operation.OPEN)
        return context

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
        gates: tuple[str, ...] = (work,)
        address = self.address
        if work in LIMITED_WORK:
            self.mode.check(work, address)
            gates = gates_of(work)
        for gate in gates:
            if gate not in self._passed_gates:
                refuse(gate, self.options.raw, address, self.mode.has_keys)
                self._passed_gates.add(gate)

    @cached_property
    def _passed_gates(self) -> set[str]:
        return set()

    def with_level_0(self) -> TableContext:
        """The context in which reads show rows of level 0 that plain reads skip until they are compacted."""
        if not self.mode.hides_level_0:
            return self
        return replace(self, shows_level_0=True)

    def with_buckets(self, buckets: int) -> TableContext:
        """The table as it will be with this option `bucket`, for writers of new files."""
        return replace(self, options=self.options.with_overrides({"bucket": str(buckets)}))

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
        return replace(self, schema=older, options=TableOptions(options, self.options.table, self.options.given))

    def at_branch(self, branch: str) -> TableContext:
        """Another branch of the table, at its latest schema, with the options of this context."""
        if branch == self.branch:
            return self
        layout = self.layout.of_branch(branch)
        schema = SchemaHistory(self.storage, layout).latest()
        return replace(self, branch=branch, schema=schema, argument=layout.given_argument)

    def seen_from(self, branch: str) -> TableContext:
        """The history of another branch with the schema of this context, to inspect that branch's files."""
        return replace(self, branch=branch, argument=self.layout.of_branch(branch).given_argument)

    @property
    def address(self) -> str:
        """The table as a user would name it, with the branch unless it is main."""
        return self.url if self.branch == MAIN_BRANCH else f"{self.url}$branch_{self.branch}"

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
    def known_index_files(self) -> KnownFiles:
        return KnownFiles()

    @cached_property
    def _partition_paths(self) -> dict[bytes, str]:
        return {}

    def partition_values(self, partition: bytes) -> tuple[Any, ...]:
        """The internal values of a serialised partition."""
        return self._decoded(partition, self.partition_types, "partition")

    def key_of(self, key: bytes) -> tuple[Any, ...]:
        """A serialised primary key as a value that compares in Paimon's order (`datatypes.key_order.Key`)."""
        from paimon_cli.datatypes.key_order import comparable_key  # loads Arrow, which commands on metadata do not need

        return comparable_key(self._decoded(key, self.key_types, "key"))

    def partition_path_of(self, partition: bytes) -> str:
        """The path of a partition, such as 'k=v/k2=v2/'; '' in an unpartitioned table."""
        if partition not in self._partition_paths:
            values = self.partition_values(partition)
            default, legacy = self.options.partition_default_name, self.options.partition_legacy_name
            path = partition_path(self.schema.partition_keys, self.partition_types, values, default, legacy)
            self._partition_paths[partition] = path
        return self._partition_paths[partition]

    def bucket_path(self, partition: bytes, bucket: int) -> str:
        """The path of a bucket relative to the table, such as 'k=v/bucket-0'."""
        return self.layout.bucket_directory(self.partition_path_of(partition), bucket).removeprefix(f"{self.layout.root}/")

    def data_file_path(self, partition: bytes, bucket: int, file: DataFileMeta) -> str:
        """The path of a data file. Raises `NotSupported` for a file outside of the table."""
        if file.external_path is not None:
            raise NotSupported(
                f"data file {file.file_name} of {self.url} lies outside of the table", "external paths are not supported"
            )
        return self.data_file_path_of(partition, bucket, file.file_name)

    def data_file_path_of(self, partition: bytes, bucket: int, file_name: str) -> str:
        """The path of a file in a bucket by its name, for new files and extra files."""
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
