import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.paimon.Snapshot;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.deletionvectors.BucketedDvMaintainer;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.FileIO;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.index.IndexFileHandler;
import org.apache.paimon.index.IndexFileMeta;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.sink.StreamTableCommit;
import org.apache.paimon.table.sink.StreamTableWrite;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.RowKind;

/**
 * Tables in whose past Java Paimon does each thing that `history check` tells: `java JavaPast FOLDER` makes FOLDER/KIND for each, with
 * Java's own writers and commits. Prints a line per table; a kind that this version of Java refuses to do is said on it.
 */
public class JavaPast {
    private static Path folder;
    private static final IOManager SPILLED = IOManager.create(System.getProperty("java.io.tmpdir"));

    private interface Scenario {
        void run(Path table) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        folder = new Path(Paths.get(arguments[0]).toAbsolutePath().toString());
        plant("lost-update", JavaPast::lostUpdate);
        plant("writers-beside-each-other", JavaPast::writersBeside);
        plant("merge-disorder", JavaPast::mergeDisorder);
        plant("row-came-back", JavaPast::rowCameBack);
        plant("row-came-back.compaction", JavaPast::rowCameBackByCompaction);
        plant("compaction-changed-rows", JavaPast::compactionChangedRows);
        plant("key-in-two-places.dynamic", JavaPast::keyInTwoDynamicBuckets);
        plant("key-in-two-places.fixed", JavaPast::keyInTwoFixedBuckets);
        plant("key-in-two-places.partitions", JavaPast::keyInTwoPartitions);
        plant("repeated-commit", JavaPast::repeatedCommit);
        plant("snapshot-overwritten", JavaPast::snapshotOverwritten);
        plant("bucket-counts-mixed", JavaPast::bucketCountsMixed);
        plant("vector-lost", JavaPast::vectorLost);
        plant("vector-lost.dangles", JavaPast::vectorDangles);
        plant("shared-file", JavaPast::sharedFile);
        plant("shared-file.partitions", JavaPast::fileOfTwoPartitions);
        plant("tag-lost-files", JavaPast::tagLostFiles);
        plant("clock-ran-back", JavaPast::clockRanBack);
        plant("none", JavaPast::nothing);
        System.exit(0);
    }

    private static void plant(String kind, Scenario scenario) {
        String result = "planted";
        try {
            scenario.run(new Path(folder, kind));
        } catch (Throwable failure) {
            StringBuilder chain = new StringBuilder("refused: ");
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) chain.append(cause).append(" <- ");
            result = chain.toString().replace('\n', ' ');
        }
        System.out.println(kind + "\t" + result);
    }

    // ---- tables, writers, rows ---------------------------------------------------------------------------------------------

    private static FileStoreTable create(Path path, List<String> partition, List<String> key, String... options) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        if (!partition.isEmpty()) schema.column("dt", DataTypes.STRING().notNull());
        schema.column("id", DataTypes.INT().notNull()).column("v", DataTypes.STRING()).partitionKeys(partition).primaryKey(key);
        for (int i = 0; i < options.length; i += 2) schema.option(options[i], options[i + 1]);
        new SchemaManager(LocalFileIO.create(), path).createTable(schema.build());
        return open(LocalFileIO.create(), path);
    }

    private static FileStoreTable keyed(Path path, String... options) throws Exception {
        return create(path, List.of(), List.of("id"), options);
    }

    private static FileStoreTable open(FileIO files, Path path) {
        return FileStoreTableFactory.create(files, path);
    }

    private static GenericRow row(RowKind kind, Object... cells) {
        for (int i = 0; i < cells.length; i++) if (cells[i] instanceof String) cells[i] = BinaryString.fromString((String) cells[i]);
        return GenericRow.ofKind(kind, cells);
    }

    private static GenericRow put(Object... cells) {
        return row(RowKind.INSERT, cells);
    }

    private static GenericRow delete(Object... cells) {
        return row(RowKind.DELETE, cells);
    }

    /** A job: a writer that has read the newest version when it was begun, and commits when it is told to. */
    private static class Job implements AutoCloseable {
        final StreamTableWrite writer;
        final StreamTableCommit commit;

        Job(FileStoreTable table, String user) {
            writer = table.newStreamWriteBuilder().withCommitUser(user).newWrite();
            writer.withIOManager(SPILLED);
            commit = table.newStreamWriteBuilder().withCommitUser(user).newCommit();
        }

        /** Write rows, which begins the numbers of their bucket, without a commit. */
        List<CommitMessage> prepare(long identifier, GenericRow... rows) throws Exception {
            for (GenericRow row : rows) writer.write(row);
            return writer.prepareCommit(true, identifier);
        }

        @Override
        public void close() throws Exception {
            writer.close();
            commit.close();
        }
    }

    private static void write(FileStoreTable table, String user, long identifier, GenericRow... rows) throws Exception {
        try (Job job = new Job(table, user)) {
            job.commit.commit(identifier, job.prepare(identifier, rows));
        }
    }

    private static void compact(FileStoreTable table, String user, long identifier) throws Exception {
        try (Job job = new Job(table.copy(Map.of("write-only", "false")), user)) {
            Set<Map.Entry<BinaryRow, Integer>> buckets = new LinkedHashSet<>();
            for (DataSplit split : splits(table)) buckets.add(Map.entry(split.partition().copy(), split.bucket()));
            for (Map.Entry<BinaryRow, Integer> bucket : buckets) job.writer.compact(bucket.getKey(), bucket.getValue(), true);
            job.commit.commit(identifier, job.writer.prepareCommit(true, identifier));
        }
    }

    private static List<DataSplit> splits(FileStoreTable table) {
        return table.newSnapshotReader().read().dataSplits();
    }

    private static GenericRow[] many(int from, int to, String value) {
        GenericRow[] rows = new GenericRow[to - from];
        for (int i = from; i < to; i++) rows[i - from] = put(i, value);
        return rows;
    }

    /** Two jobs that begin from one version: `first` is committed before `second`. */
    private static void beside(FileStoreTable table, GenericRow[] first, GenericRow[] second) throws Exception {
        try (Job one = new Job(table, "job-a"); Job other = new Job(table, "job-b")) {
            List<CommitMessage> late = other.prepare(1, second);
            one.commit.commit(1, one.prepare(1, first));
            other.commit.commit(1, late);
        }
    }

    private static final String[] PLAIN = {"bucket", "1", "write-only", "true"};

    // ---- what happens ------------------------------------------------------------------------------------------------------

    private static void nothing(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        for (int i = 0; i < 4; i++) write(table, "job-a", i, many(i, 10, "v" + i));
        compact(table, "job-c", 1);
        write(table, "job-b", 1, delete(3, "x"), put(4, "y"));
        compact(table, "job-c", 2);
        write(table, "job-a", 4, put(3, "again"));
    }

    private static void lostUpdate(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 0, many(0, 10, "old"));
        beside(table, new GenericRow[] {put(7, "a")}, new GenericRow[] {put(7, "b")});
    }

    private static void writersBeside(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 0, many(0, 10, "old"));
        beside(table, new GenericRow[] {put(2, "a")}, new GenericRow[] {put(7, "b")});
    }

    private static void mergeDisorder(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 0, many(0, 10, "old"));
        beside(table, many(0, 9, "a"), new GenericRow[] {put(7, "b")});
    }

    private static void rowCameBack(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 0, many(0, 10, "old"));
        beside(table, new GenericRow[] {delete(7, "old")}, many(5, 9, "b"));
    }

    /** A compaction job with an option that the readers do not have. */
    private static void rowCameBackByCompaction(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 0, many(0, 10, "old"));
        write(table, "job-a", 1, delete(7, "old"));
        compact(table.copy(Map.of("ignore-delete", "true")), "job-c", 1);
    }

    /** Two writers number their rows alike: the order of two rows with one number is that of the files, which a compaction changes. */
    private static void compactionChangedRows(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 0, many(0, 10, "m"));
        write(table, "job-a", 1, many(0, 10, "a"));
        compact(table.copy(Map.of("sequence.field", "v")), "job-c", 1);
    }

    /** Two assigners that do not know of each other's keys. */
    private static void keyInTwoDynamicBuckets(Path path) throws Exception {
        FileStoreTable table = keyed(path, "bucket", "-1", "write-only", "true", "dynamic-bucket.target-row-num", "2");
        RowPartitionKeyExtractor keys = new RowPartitionKeyExtractor(table.schema());
        try (Job one = new Job(table, "job-a"); Job other = new Job(table, "job-b")) {
            int[][] written = {{1, 2, 3}, {3, 4}};
            Job[] jobs = {one, other};
            List<List<CommitMessage>> prepared = new ArrayList<>();
            for (int j = 0; j < 2; j++) {
                HashBucketAssigner assigner = new HashBucketAssigner(
                        table.snapshotManager(), "job-" + j, table.store().newIndexFileHandler(), 1, 1, 0, 2, -1);
                for (int id : written[j]) {
                    InternalRow row = put(id, "job " + j);
                    jobs[j].writer.write(row, assigner.assign(keys.partition(row), keys.trimmedPrimaryKey(row).hashCode()));
                }
                prepared.add(jobs[j].writer.prepareCommit(true, 1));
            }
            for (int j = 0; j < 2; j++) jobs[j].commit.commit(1, prepared.get(j));
        }
    }

    /** A writer that chooses buckets itself, by another rule. */
    private static void keyInTwoFixedBuckets(Path path) throws Exception {
        FileStoreTable table = keyed(path, "bucket", "2", "write-only", "true");
        write(table, "job-a", 0, many(0, 10, "old"));
        try (Job job = new Job(table, "job-b")) {
            for (GenericRow row : many(3, 6, "new")) job.writer.write(row, 1 - row.getInt(0) % 2);
            job.commit.commit(1, job.writer.prepareCommit(true, 1));
        }
    }

    /** Keys may be in any partition, and a writer has not looked where they are. */
    private static void keyInTwoPartitions(Path path) throws Exception {
        FileStoreTable table = create(path, List.of("dt"), List.of("id"), "bucket", "-1", "write-only", "true");
        for (String day : List.of("a", "b")) {
            try (Job job = new Job(table, "job-" + day)) {
                for (int id = day.equals("a") ? 0 : 7; id < 10; id++) job.writer.write(put(day, id, day), 0);
                job.commit.commit(1, job.writer.prepareCommit(true, 1));
            }
        }
    }

    /** A job that repeats its last batch after a restart, without looking for it. */
    private static void repeatedCommit(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 7, many(0, 10, "old"));
        write(table, "job-a", 7, many(0, 10, "old"));
    }

    /** A store that publishes a snapshot in another way than it should. */
    private abstract static class OtherFiles extends LocalFileIO {
        abstract String published(Path path, String text) throws Exception;

        @Override
        public boolean tryToWriteAtomic(Path path, String text) throws IOException {
            try {
                String changed = path.getName().startsWith("snapshot-") ? published(path, text) : text;
                Files.write(Paths.get(path.toUri().getPath()), changed.getBytes(StandardCharsets.UTF_8));
                return true;
            } catch (Exception failure) {
                throw new IOException(failure);
            }
        }
    }

    /** A rename replaces what is there, and the other job publishes just before it. */
    private static void snapshotOverwritten(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 0, many(0, 10, "old"));
        write(open(new OtherFiles() {
            @Override
            String published(Path at, String text) throws Exception {
                write(open(LocalFileIO.create(), path), "job-a", 1, put(3, "a"));
                return text;
            }
        }, path), "job-b", 1, put(4, "b"));
    }

    /** One of the hosts has a clock that is an hour behind. */
    private static void clockRanBack(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 0, many(0, 10, "old"));
        write(open(new OtherFiles() {
            @Override
            String published(Path at, String text) {
                long time = Snapshot.fromJson(text).timeMillis();
                return text.replace(Long.toString(time), Long.toString(time - 3_600_000));
            }
        }, path), "job-b", 1, put(4, "b"));
    }

    /** A writer goes on with the number of buckets that it has read, after the partition was written anew with another. */
    private static void bucketCountsMixed(Path path) throws Exception {
        FileStoreTable table = create(path, List.of("dt"), List.of("dt", "id"), "bucket", "1", "write-only", "true");
        write(table, "job-a", 0, put("a", 1, "old"), put("a", 2, "old"), put("a", 3, "old"));
        try (Job job = new Job(table, "job-b")) {
            List<CommitMessage> late = job.prepare(1, put("a", 1, "late"), put("a", 2, "late"), put("a", 3, "late"));
            new SchemaManager(LocalFileIO.create(), path).commitChanges(List.of(SchemaChange.setOption("bucket", "2")));
            BatchWriteBuilder anew = open(LocalFileIO.create(), path).newBatchWriteBuilder().withOverwrite(Map.of("dt", "a"));
            try (BatchTableWrite writer = anew.newWrite(); BatchTableCommit commit = anew.newCommit()) {
                writer.withIOManager(SPILLED);
                for (int id = 1; id < 4; id++) writer.write(put("a", id, "new"));
                commit.commit(writer.prepareCommit());
            }
            job.commit.commit(1, late);
        }
    }

    private static FileStoreTable appended(Path path) throws Exception {
        FileStoreTable table = create(
                path, List.of(), List.of(), "bucket", "1", "bucket-key", "id", "write-only", "true", "deletion-vectors.enabled", "true");
        write(table, "job-a", 0, many(0, 10, "old"));
        return table;
    }

    /** The vectors of the only file of a table, which mark more of its rows than those that are stored. */
    private static CommitMessage marked(FileStoreTable table, boolean knowsStored, long... positions) throws Exception {
        DataSplit split = splits(table).get(0);
        IndexFileHandler handler = table.store().newIndexFileHandler();
        List<IndexFileMeta> stored = handler.scan(table.latestSnapshot().get(), "DELETION_VECTORS", split.partition(), split.bucket());
        BucketedDvMaintainer vectors =
                BucketedDvMaintainer.factory(handler).create(split.partition(), split.bucket(), knowsStored ? stored : List.of());
        for (long position : positions) vectors.notifyNewDeletion(split.dataFiles().get(0).fileName(), position);
        List<IndexFileMeta> written = List.of(vectors.writeDeletionVectorsIndex().get());
        DataIncrement increment = new DataIncrement(List.of(), List.of(), List.of(), written, List.of());
        return new CommitMessageImpl(split.partition(), split.bucket(), 1, increment, CompactIncrement.emptyIncrement());
    }

    /** A delete that had not read the vectors of another one. */
    private static void vectorLost(Path path) throws Exception {
        FileStoreTable table = appended(path);
        CommitMessage one = marked(table, true, 1, 2), other = marked(table, true, 5);
        try (Job a = new Job(table, "job-a"); Job b = new Job(table, "job-b")) {
            a.commit.commit(1, List.of(one));
            b.commit.commit(1, List.of(other));
        }
    }

    /** A delete marks rows of a file that a compaction has replaced. */
    private static void vectorDangles(Path path) throws Exception {
        FileStoreTable table = appended(path);
        CommitMessage late = marked(table, true, 1, 2);
        write(table, "job-a", 1, many(10, 12, "more"));
        compact(table, "job-c", 1);
        try (Job b = new Job(table, "job-b")) {
            b.commit.commit(1, List.of(late));
        }
    }

    /** A batch of files is committed twice. */
    private static void sharedFile(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        try (Job job = new Job(table, "job-a")) {
            List<CommitMessage> files = job.prepare(1, many(0, 10, "v"));
            job.commit.commit(1, files);
            job.commit.commit(2, files);
        }
    }

    /** The entry of a file is copied to another partition, with the path of the file. */
    private static void fileOfTwoPartitions(Path path) throws Exception {
        FileStoreTable table = create(path, List.of("dt"), List.of("dt", "id"), "bucket", "1", "write-only", "true");
        write(table, "job-a", 0, put("a", 1, "a"), put("b", 1, "b"));
        List<DataSplit> splits = splits(table);
        DataSplit from = splits.get(0), to = splits.get(1);
        DataFileMeta file = from.dataFiles().get(0).newExternalPath(from.bucketPath() + "/" + from.dataFiles().get(0).fileName());
        DataIncrement increment = new DataIncrement(List.of(file), List.of(), List.of());
        try (Job job = new Job(table, "job-b")) {
            job.commit.commit(1, List.of(
                    new CommitMessageImpl(to.partition(), to.bucket(), 1, increment, CompactIncrement.emptyIncrement())));
        }
    }

    /** A tag is made of a snapshot that an expiry removes at the same time. */
    private static void tagLostFiles(Path path) throws Exception {
        FileStoreTable table = keyed(path, PLAIN);
        write(table, "job-a", 0, many(0, 10, "old"));
        Snapshot read = table.latestSnapshot().get();
        compact(table, "job-c", 1);
        write(table, "job-a", 1, put(4, "b"));
        Map<String, String> limits = Map.of(
                "snapshot.num-retained.min", "1", "snapshot.num-retained.max", "1", "snapshot.time-retained", "1 ms", "write-only", "false");
        Thread.sleep(20);
        try (TableCommitImpl commit = table.copy(limits).newCommit("expiry")) {
            commit.expireSnapshots();
        }
        table.tagManager().createTag(read, "late", null, List.of(), false);
    }
}
