import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.StreamTableCommit;
import org.apache.paimon.table.sink.StreamTableWrite;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.types.DataTypes;

/**
 * Java's side. Commands, one per line: "create TABLE BUCKETS", "rows FILE.csv ..." (into memory, so that parsing is not
 * measured), "write TABLE FIRST END" (batches of rows, by number), "scan TABLE", "compact TABLE". Each answers with a JSON line.
 */
public class JavaSide {
    private static final int THREADS = 2;
    private static final List<List<GenericRow>> BATCHES = new ArrayList<>();
    private static long commits = 0;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        OperatingSystemMXBean machine = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            long cpu = machine.getProcessCpuTime();
            long wall = System.nanoTime();
            String found = carryOut(words);
            double took = (System.nanoTime() - wall) / 1e9;
            double burnt = (machine.getProcessCpuTime() - cpu) / 1e9;
            answers.println("{\"wall\": " + took + ", \"cpu\": " + burnt + found + "}");
            answers.flush();
        }
    }

    private static String carryOut(String[] words) throws Exception {
        switch (words[0]) {
            case "create": create(words[1], words[2]); return "";
            case "rows":
                for (int i = 1; i < words.length; i++) BATCHES.add(rows(Path.of(words[i])));
                return "";
            case "write":
                for (int i = Integer.parseInt(words[2]); i < Integer.parseInt(words[3]); i++) write(open(words[1]), BATCHES.get(i));
                return "";
            case "scan": return scan(open(words[1]));
            case "compact": compact(open(words[1]).copy(Map.of("write-only", "false"))); return "";
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private static FileStoreTable open(String table) {
        return FileStoreTableFactory.create(LocalFileIO.create(), new org.apache.paimon.fs.Path(table));
    }

    private static void create(String table, String buckets) throws Exception {
        Schema schema = Schema.newBuilder()
                .column("id", DataTypes.BIGINT().notNull()).column("qty", DataTypes.INT()).column("amount", DataTypes.DOUBLE())
                .column("price", DataTypes.DECIMAL(18, 2)).column("ts", DataTypes.TIMESTAMP(3))
                .column("status", DataTypes.STRING()).column("note", DataTypes.STRING()).primaryKey("id")
                .option("bucket", buckets).option("write-only", "true").option("file.format", "parquet").build();
        new SchemaManager(LocalFileIO.create(), new org.apache.paimon.fs.Path(table)).createTable(schema);
    }

    private static List<GenericRow> rows(Path file) throws Exception {
        List<GenericRow> rows = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            String[] cells = line.replace("\"", "").split(",");
            rows.add(GenericRow.of(
                    Long.parseLong(cells[0]), Integer.parseInt(cells[1]), Double.parseDouble(cells[2]),
                    Decimal.fromBigDecimal(new BigDecimal(cells[3]), 18, 2), Timestamp.fromEpochMillis(Long.parseLong(cells[4])),
                    BinaryString.fromString(cells[5]), BinaryString.fromString(cells[6])));
        }
        return rows;
    }

    private interface Share {
        void of(StreamTableWrite writer, int share) throws Exception;
    }

    /** Each thread has a writer of its own and every THREADS-th bucket. All results are committed at once. */
    private static void commit(FileStoreTable table, Share work) throws Exception {
        long number = ++commits;
        List<Callable<List<CommitMessage>>> shares = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            int share = i;
            shares.add(() -> {
                StreamTableWrite writer = table.newStreamWriteBuilder().withCommitUser("peer").newWrite();
                writer.withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
                work.of(writer, share);
                List<CommitMessage> made = writer.prepareCommit(true, number);
                writer.close();
                return made;
            });
        }
        List<CommitMessage> messages = new ArrayList<>();
        for (List<CommitMessage> made : inThreads(shares)) messages.addAll(made);
        try (StreamTableCommit commit = table.newStreamWriteBuilder().withCommitUser("peer").newCommit()) {
            commit.commit(number, messages);
        }
    }

    private static void write(FileStoreTable table, List<GenericRow> rows) throws Exception {
        commit(table, (writer, share) -> {
            for (GenericRow row : rows) {
                int bucket = writer.getBucket(row);
                if (bucket % THREADS == share) writer.write(row, bucket);
            }
        });
    }

    private static void compact(FileStoreTable table) throws Exception {
        int buckets = Integer.parseInt(table.options().get("bucket"));
        commit(table, (writer, share) -> {
            for (int bucket = share; bucket < buckets; bucket += THREADS) writer.compact(BinaryRow.EMPTY_ROW, bucket, true);
        });
    }

    private static String scan(FileStoreTable table) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        List<Callable<long[]>> reads = new ArrayList<>();
        for (Split split : builder.newScan().plan().splits()) reads.add(() -> read(builder, split));
        long rows = 0, sum = 0, touched = 0;
        for (long[] part : inThreads(reads)) {
            rows += part[0];
            sum += part[1];
            touched += part[2];
        }
        return ", \"rows\": " + rows + ", \"sum\": " + sum + ", \"touched\": " + touched;
    }

    /** Reads a number and both strings of each row, so that lazily decoded columns count. */
    private static long[] read(ReadBuilder builder, Split split) throws Exception {
        long rows = 0, sum = 0, touched = 0;
        try (RecordReader<InternalRow> reader = builder.newRead().createReader(split)) {
            for (RecordReader.RecordIterator<InternalRow> batch; (batch = reader.readBatch()) != null; batch.releaseBatch()) {
                for (InternalRow row; (row = batch.next()) != null; rows++) {
                    sum += row.getInt(1);
                    touched += row.getString(5).getSizeInBytes() + row.getString(6).getSizeInBytes();
                }
            }
        }
        return new long[] {rows, sum, touched};
    }

    private static <T> List<T> inThreads(List<Callable<T>> works) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        try {
            List<T> results = new ArrayList<>();
            for (Future<T> future : pool.invokeAll(works)) results.add(future.get());
            return results;
        } finally {
            pool.shutdown();
        }
    }
}
