"""Sound tables to damage, and tools for that: metadata rewritten with a false value, data files with other rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import IndexManifestEntry, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from tests import tables
from tests.goldens import golden_table

COLUMNS = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING", "n": "INT NOT NULL"}
Change = Callable[[ManifestEntry], ManifestEntry]


def keyed_table(folder: Path) -> Path:
    """Two partitions, two buckets, levels 0 and 5, deletes, a tag, a consumer, a branch, statistics."""
    options = {"num-sorted-run.compaction-trigger": "3"}
    context = tables.make_table(folder / "keyed", COLUMNS, ["dt", "k"], ["dt"], 2, options)
    rows = [{"dt": dt, "k": k, "v": f"v{k}", "n": k} for dt in ("a", "b") for k in range(40)]
    tables.write(context, rows)
    tables.compact(context)
    tables.write(context, [{**row, "v": None} for row in rows[:20]])
    tables.write(context, [{"dt": "a", "k": k, "v": "x", "n": 1, "_op": "-D"} for k in range(8)])
    root = Path(context.url)
    snapshot = json.loads((root / "snapshot/snapshot-4").read_text())
    (root / "statistics").mkdir()
    (root / "statistics/stat-1").write_text("{}")
    (root / "snapshot/snapshot-4").write_text(json.dumps({**snapshot, "statistics": "stat-1"}))
    for name, text in (
        ("tag/tag-kept", (root / "snapshot/snapshot-2").read_text()),
        ("consumer/consumer-reader", '{"nextSnapshot": 3}'),
        ("branch/branch-b/schema/schema-0", (root / "schema/schema-0").read_text()),
        ("branch/branch-b/snapshot/snapshot-1", (root / "snapshot/snapshot-1").read_text()),
        ("changelog/changelog-1", (root / "snapshot/snapshot-1").read_text()),
        ("snapshot/EARLIEST", "1"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def lookup_table(folder: Path, options: dict[str, str]) -> Path:
    """Inserts, updates and deletes, each compacted; the last one into a lower level if a lookup allows it."""
    name = options["changelog-producer"]
    context = tables.make_table(folder / name, {"k": "INT NOT NULL", "v": "STRING"}, ["k"], (), 1, options)
    tables.write(context, [{"k": k, "v": f"v{k}"} for k in range(60)], compact="none")
    tables.compact(context)
    changes = [(80, "new", "+I"), (4, None, "-D"), (5, "five", "+U")]
    tables.write(context, [{"k": k, "v": v, "_op": op} for k, v, op in changes], compact="none")
    tables.compact(context, strategy="full")
    tables.write(context, [{"k": k, "v": "x"} for k in range(10, 14)], compact="none")
    tables.compact(context, strategy="minor" if name == "lookup" else "full")
    return Path(context.url)


def crossing_table(folder: Path) -> Path:
    """A table whose key does not include the partition; one row has moved."""
    context = tables.make_table(folder / "crossing", {"p": "STRING", "k": "INT NOT NULL"}, ["k"], ["p"], -1)
    tables.write(context, [{"p": "ab"[k % 2], "k": k} for k in range(10)])
    tables.write(context, [{"p": "c", "k": 3}])
    return Path(context.url)


def summed_table(folder: Path) -> Path:
    """Several versions of each key, whose sums fit."""
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "write-only": "true"}
    context = tables.make_table(folder / "summed", {"k": "INT NOT NULL", "v": "TINYINT"}, ["k"], (), 1, options)
    for _ in range(2):
        tables.write(context, [{"k": k, "v": 10 * k} for k in range(5)])
    return folder / "summed"


def indexed_table(folder: Path) -> Path:
    """A key table and its bloom filters in files of their own; its newest data file has small pages and Bloom filters inside."""
    options = {"file-index.bloom-filter.columns": "v,n", "file-index.in-manifest-threshold": "1 b", "file.compression": "none"}
    context = tables.make_table(folder / "indexed", {"k": "INT NOT NULL", "v": "STRING", "n": "BIGINT"}, ["k"], options=options)
    tables.write(context, [{"k": k, "v": f"value-{k:04}", "n": k} for k in range(300)])
    bench = Bench(Path(context.url))
    entry = bench.live()[0]
    path = bench.path(entry)
    rows = pq.read_table(path)
    pq.write_table(
        rows,
        path,
        store_schema=False,
        compression="none",
        use_dictionary=False,
        write_page_index=True,
        data_page_size=500,
        write_batch_size=50,
        row_group_size=150,
        bloom_filter_options={"v": {"ndv": 300}, "n": {"ndv": 300}, "k": {"ndv": 300}},
    )
    bench.lie(entry, file_size=path.stat().st_size)
    return bench.root


SOUND: dict[str, Callable[[Path], Path]] = {
    "keyed": keyed_table,
    "dv": lambda folder: golden_table("java-0.9", "dv_dedup", folder),
    "dynamic": lambda folder: golden_table("java-0.9", "dynamic_bucket", folder),
    "changelog": lambda folder: golden_table("java-0.9", "changelog_input", folder),
    "lookup": lambda folder: lookup_table(folder, {"changelog-producer": "lookup"}),
    "crossing": crossing_table,
    "indexed": indexed_table,
    "summed": summed_table,
    "full-compaction": lambda folder: lookup_table(folder, {"changelog-producer": "full-compaction"}),
}


@dataclass
class Bench:
    """One damaged table."""

    root: Path

    @property
    def context(self) -> TableContext:
        return TableContext.open(str(self.root))

    @property
    def newest(self) -> Snapshot:
        found = self.context.snapshots.latest()
        assert found is not None
        return found

    def live(self, snapshot: Snapshot | None = None, **wanted: Any) -> list[ManifestEntry]:
        """Live entries, oldest first, whose files have these attributes."""
        entries = self.context.manifests.live_entries(snapshot or self.newest)
        return [e for e in entries if all(getattr(e.file, name) == value for name, value in wanted.items())]

    def path(self, entry: ManifestEntry) -> Path:
        return Path(self.context.data_file_path(entry.partition, entry.bucket, replace(entry.file, external_path=None)))

    def delta_manifest(self, number: int) -> Path:
        """The first manifest of that commit's delta."""
        snapshot = self.context.snapshots.get(number)
        name = self.context.manifests.manifest_list(snapshot.delta_manifest_list)[0].file_name
        return self.root / "manifest" / name

    def reforge(
        self,
        change: Change = lambda entry: entry,
        *,
        more: Sequence[ManifestEntry] = (),
        base: Callable[[list[ManifestEntry]], list[ManifestEntry]] = lambda entries: entries,
        listed: Callable[[ManifestFileMeta], ManifestFileMeta] = lambda meta: meta,
        indexes: Callable[[list[IndexManifestEntry]], list[IndexManifestEntry]] | None = None,
        **fields: Any,
    ) -> None:
        """Write the newest snapshot again: each entry of its base and delta changed, `more` in the delta."""
        context, snapshot = self.context, self.newest
        reader, writer = context.manifests, MetadataWriter(context)
        before = context.snapshots.find(snapshot.id - 1)
        old = reader.live_entries(before) if before else []
        delta = [*map(change, reader.delta_entries(snapshot)), *more]
        base_list = writer.manifest_list(writer.manifests(base([*map(change, old)])), "base")
        delta_list = writer.manifest_list([*map(listed, writer.manifests(delta))], "delta")
        index = snapshot.index_manifest
        if indexes is not None:
            index = writer.index_manifest(indexes(reader.index_entries(snapshot)))
        changed = replace(
            snapshot,
            base_manifest_list=base_list[0],
            base_manifest_list_size=base_list[1],
            delta_manifest_list=delta_list[0],
            delta_manifest_list_size=delta_list[1],
            index_manifest=index,
        )
        self.publish(replace(changed, **fields))

    def publish(self, snapshot: Snapshot) -> None:
        (self.root / f"snapshot/snapshot-{snapshot.id}").write_text(snapshot.to_json())

    def lie(self, entry: ManifestEntry, **changes: Any) -> None:
        """Let the newest snapshot record something else about one file that it added: others were checked before."""
        self.reforge(lambda e: replace(e, file=replace(e.file, **changes)) if e.identity == entry.identity else e)

    def refill(self, entry: ManifestEntry, rows: Callable[[Any], Any], **changes: Any) -> None:
        """Put other rows into a data file, and record its new size."""
        path = self.path(entry)
        pq.write_table(rows(pq.read_table(path)), path, store_schema=False)
        self.lie(entry, file_size=path.stat().st_size, **changes)

    def rechange(self, number: int, rows: Callable[[Any], Any]) -> None:
        """Put other rows into the first changelog file of a snapshot, and record their metadata."""
        context = self.context
        snapshot, writer = context.snapshots.get(number), MetadataWriter(context)
        manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list or "")
        entry, *others = [entry for entries in context.manifests.entries(manifests) for entry in entries]
        path = self.path(entry)
        changed = rows(pq.read_table(path))
        pq.write_table(changed, path, store_schema=False)
        file = replace(entry.file, file_size=path.stat().st_size, row_count=changed.num_rows)
        name, size = writer.manifest_list(writer.manifests([replace(entry, file=file), *others]), "changelog")
        self.publish(replace(snapshot, changelog_manifest_list=name, changelog_manifest_list_size=size))

    def edit_json(self, name: str, **fields: Any) -> None:
        path = self.root / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def flip(path: Path, place: int) -> None:
    """Turn all bits of one byte."""
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(bytes(content))
