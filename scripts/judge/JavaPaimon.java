import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.AbstractMap.SimpleEntry;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.paimon.Snapshot;
import org.apache.paimon.crosspartition.GlobalIndexAssigner;
import org.apache.paimon.crosspartition.IndexBootstrap;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.index.BucketAssigner;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.sink.StreamTableCommit;
import org.apache.paimon.table.sink.StreamTableWrite;
import org.apache.paimon.table.sink.StreamWriteBuilder;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.ScanMode;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.system.AuditLogTable;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

/**
 * Java Paimon as a process that answers requests. It reads a JSON object per line and answers {"rows": [...]} or {"error": "..."}.
 *
 * <p>Every request has "do" and "table" (a directory), and may have "options", which override those of the table.
 * Rows are objects in canonical form; "_kind" is their row kind.
 */
public class JavaPaimon {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static long identifiers = 0;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("rows", carryOut(JSON.readTree(line)));
            } catch (Throwable failure) {
                answer.put("error", chain(failure));
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    private static String chain(Throwable failure) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) text.append(cause).append(" <- ");
        return text.append(failure.getStackTrace().length > 0 ? failure.getStackTrace()[0] : "").toString();
    }

    private static List<Map<String, Object>> carryOut(JsonNode request) throws Exception {
        if (request.get("do").asText().equals("create")) return create(request);
        FileStoreTable table = open(request);
        switch (request.get("do").asText()) {
            case "write": return write(table, request.get("rows"));
            case "compact": return compact(table, request.get("full").asBoolean());
            case "read": return read(table.newReadBuilder(), table.newReadBuilder().newScan().plan().splits(), table.rowType());
            case "changelog": return changelog(table, request.get("first").asLong(), request.get("last").asLong());
            case "incremental": return incremental(table, request.get("first").asText(), request.get("last").asText());
            case "expire": return expire(table, request.get("retain").asText());
            default: throw new IllegalArgumentException("unknown request " + request.get("do"));
        }
    }

    private static FileStoreTable open(JsonNode request) {
        FileStoreTable table = FileStoreTableFactory.create(LocalFileIO.create(), new Path(request.get("table").asText()));
        return table.copy(texts(request.get("options")));
    }

    private static Map<String, String> texts(JsonNode node) {
        Map<String, String> texts = new LinkedHashMap<>();
        if (node != null) node.fields().forEachRemaining(field -> texts.put(field.getKey(), field.getValue().asText()));
        return texts;
    }

    private static List<String> names(JsonNode node) {
        List<String> names = new ArrayList<>();
        node.forEach(name -> names.add(name.asText()));
        return names;
    }

    private static List<Map<String, Object>> create(JsonNode request) throws Exception {
        JsonNode schema = request.get("schema");
        Schema.Builder builder = Schema.newBuilder();
        for (JsonNode field : schema.get("fields")) {
            builder.column(field.get("name").asText(), DataTypeJsonParser.parseDataType(field.get("type")));
        }
        builder.partitionKeys(names(schema.get("partitionKeys"))).primaryKey(names(schema.get("primaryKeys"))).options(texts(schema.get("options")));
        new SchemaManager(LocalFileIO.create(), new Path(request.get("table").asText())).createTable(builder.build());
        return List.of();
    }

    private interface Work {
        void on(StreamTableWrite writer) throws Exception;
    }

    /** One commit by a writer of its own, which waits for its compactions. */
    private static List<Map<String, Object>> commit(FileStoreTable table, Work work) throws Exception {
        StreamWriteBuilder builder = table.newStreamWriteBuilder().withCommitUser("java-" + ++identifiers);
        IOManager spilled = IOManager.create(System.getProperty("java.io.tmpdir"));
        try (StreamTableWrite writer = builder.newWrite(); StreamTableCommit commit = builder.newCommit()) {
            writer.withIOManager(spilled);
            ((TableCommitImpl) commit).ignoreEmptyCommit(true);
            work.on(writer);
            commit.commit(identifiers, writer.prepareCommit(true, identifiers));
        } finally {
            spilled.close();
        }
        return List.of(Map.of("snapshot", table.snapshotManager().latestSnapshotId()));
    }

    private static List<Map<String, Object>> write(FileStoreTable table, JsonNode rows) throws Exception {
        if (table.bucketMode() == BucketMode.KEY_DYNAMIC) return writeAcrossPartitions(table, rows);
        Buckets buckets = table.bucketMode() == BucketMode.HASH_DYNAMIC ? new Buckets(table) : null;
        return commit(table, writer -> {
            for (JsonNode cells : rows) {
                GenericRow row = rowOf(cells, table.rowType());
                if (buckets == null) writer.write(row);
                else writer.write(row, buckets.of(row));
            }
        });
    }

    /** Assigns dynamic buckets as Flink's and Spark's writers do, with all assigners in this process. */
    private static class Buckets {
        private final RowPartitionKeyExtractor keys;
        private final HashBucketAssigner[] assigners;

        Buckets(FileStoreTable table) {
            keys = new RowPartitionKeyExtractor(table.schema());
            Integer initial = table.coreOptions().dynamicBucketInitialBuckets();
            int most = table.coreOptions().dynamicBucketMaxBuckets();
            int count = initial == null ? 1 : most == -1 ? initial : Math.min(initial, most);
            assigners = new HashBucketAssigner[count];
            for (int i = 0; i < count; i++) {
                assigners[i] = new HashBucketAssigner(
                        table.snapshotManager(), "java", table.store().newIndexFileHandler(), count, count, i,
                        table.coreOptions().dynamicBucketTargetRowNum(), most);
            }
        }

        int of(InternalRow row) {
            BinaryRow partition = keys.partition(row);
            int hash = keys.trimmedPrimaryKey(row).hashCode();
            int assigner = BucketAssigner.computeAssigner(partition.hashCode(), hash, assigners.length, assigners.length);
            return assigners[assigner].assign(partition, hash);
        }
    }

    /** Like Flink and Spark: all keys of the table go into an index (RocksDB), which shows where each row belongs. */
    private static List<Map<String, Object>> writeAcrossPartitions(FileStoreTable table, JsonNode rows) throws Exception {
        IOManager indexed = IOManager.create(System.getProperty("java.io.tmpdir"));
        try (GlobalIndexAssigner assigner = new GlobalIndexAssigner(table)) {
            return commit(table, writer -> {
                assigner.open(0, indexed, 1, 0, (row, bucket) -> {
                    try {
                        writer.write(row, bucket);
                    } catch (Exception failure) {
                        throw new RuntimeException(failure);
                    }
                });
                new IndexBootstrap(table).bootstrap(1, 0, key -> {
                    try {
                        assigner.bootstrapKey(key);
                    } catch (IOException failure) {
                        throw new RuntimeException(failure);
                    }
                });
                assigner.endBoostrap(false);
                for (JsonNode row : rows) assigner.processInput(rowOf(row, table.rowType()));
            });
        } finally {
            indexed.close();
        }
    }

    private static List<Map<String, Object>> compact(FileStoreTable table, boolean full) throws Exception {
        Set<Map.Entry<BinaryRow, Integer>> buckets = new LinkedHashSet<>();
        for (ManifestEntry entry : table.store().newScan().plan().files()) buckets.add(new SimpleEntry<>(entry.partition().copy(), entry.bucket()));
        return commit(table.copy(Map.of("write-only", "false")), writer -> {
            for (Map.Entry<BinaryRow, Integer> bucket : buckets) writer.compact(bucket.getKey(), bucket.getValue(), full);
        });
    }

    private static List<Map<String, Object>> expire(FileStoreTable table, String retain) throws Exception {
        Map<String, String> limits = Map.of(
                "snapshot.num-retained.min", retain, "snapshot.num-retained.max", retain, "snapshot.time-retained", "1 ms",
                "snapshot.expire.limit", "1000", "write-only", "false");
        try (TableCommitImpl commit = table.copy(limits).newCommit("expiry")) {
            commit.expireSnapshots();
        }
        return List.of();
    }

    private static List<Map<String, Object>> changelog(FileStoreTable table, long from, long to) throws Exception {
        List<Map<String, Object>> changes = new ArrayList<>();
        for (long id = from; id <= to; id++) {
            boolean expired = !table.snapshotManager().snapshotExists(id);
            Snapshot snapshot = expired ? table.changelogManager().changelog(id) : table.snapshotManager().snapshot(id);
            if (snapshot.changelogManifestList() == null) continue;
            List<Split> splits = table.newSnapshotReader().withMode(ScanMode.CHANGELOG).withSnapshot(snapshot).read().splits();
            for (Map<String, Object> row : read(table.newReadBuilder(), splits, table.rowType())) {
                row.put("_snapshot", id);
                changes.add(row);
            }
        }
        return changes;
    }

    /** What Spark SQL's `paimon_incremental_query` shows of the audit log: the first column is the row kind. */
    private static List<Map<String, Object>> incremental(FileStoreTable table, String from, String to) throws Exception {
        Map<String, String> range = Map.of("incremental-between", from + "," + to, "incremental-between-scan-mode", "changelog");
        AuditLogTable audit = new AuditLogTable(table.copy(range));
        List<Map<String, Object>> rows = read(audit.newReadBuilder(), audit.newReadBuilder().newScan().plan().splits(), audit.rowType());
        rows.forEach(row -> row.put("_kind", row.remove("rowkind")));
        return rows;
    }

    private static List<Map<String, Object>> read(ReadBuilder builder, List<Split> splits, RowType type) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        IOManager spilled = IOManager.create(System.getProperty("java.io.tmpdir"));
        try (RecordReader<InternalRow> reader = builder.newRead().withIOManager(spilled).createReader(splits)) {
            reader.forEachRemaining(row -> {
                Map<String, Object> cells = new LinkedHashMap<>();
                cells.put("_kind", row.getRowKind().shortString());
                for (int i = 0; i < type.getFieldCount(); i++) {
                    Object cell = InternalRow.createFieldGetter(type.getTypeAt(i), i).getFieldOrNull(row);
                    cells.put(type.getFieldNames().get(i), cell == null ? null : canonical(cell, type.getTypeAt(i)));
                }
                rows.add(cells);
            });
        } finally {
            spilled.close();
        }
        return rows;
    }

    private static Object canonical(Object cell, DataType type) {
        switch (type.getTypeRoot()) {
            case CHAR: case VARCHAR: return cell.toString();
            case DECIMAL: return ((Decimal) cell).toBigDecimal().toPlainString();
            case DATE: return LocalDate.ofEpochDay((Integer) cell).toString();
            case TIMESTAMP_WITHOUT_TIME_ZONE: return timeText(((Timestamp) cell).toLocalDateTime());
            case BOOLEAN: case TINYINT: case SMALLINT: case INTEGER: case BIGINT: case FLOAT: case DOUBLE: return cell;
            case ARRAY: return items((InternalArray) cell, ((ArrayType) type).getElementType());
            default: throw new UnsupportedOperationException(type.asSQLString());
        }
    }

    private static List<Object> items(InternalArray cells, DataType type) {
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(type);
        List<Object> items = new ArrayList<>();
        for (int i = 0; i < cells.size(); i++) {
            Object item = getter.getElementOrNull(cells, i);
            items.add(item == null ? null : canonical(item, type));
        }
        return items;
    }

    private static String timeText(LocalDateTime time) {
        String nanos = time.getNano() == 0 ? "" : String.format(".%09d", time.getNano()).replaceAll("0+$", "");
        return String.format("%sT%02d:%02d:%02d%s", time.toLocalDate(), time.getHour(), time.getMinute(), time.getSecond(), nanos);
    }

    private static GenericRow rowOf(JsonNode cells, RowType type) {
        GenericRow row = new GenericRow(type.getFieldCount());
        for (int i = 0; i < type.getFieldCount(); i++) {
            DataField field = type.getFields().get(i);
            JsonNode cell = cells.get(field.name());
            row.setField(i, cell == null || cell.isNull() ? null : internal(cell, field.type()));
        }
        for (RowKind kind : RowKind.values()) if (kind.shortString().equals(cells.get("_kind").asText())) row.setRowKind(kind);
        return row;
    }

    private static Object internal(JsonNode cell, DataType type) {
        switch (type.getTypeRoot()) {
            case CHAR: case VARCHAR: return BinaryString.fromString(cell.asText());
            case BOOLEAN: return cell.asBoolean();
            case TINYINT: return (byte) cell.asInt();
            case SMALLINT: return (short) cell.asInt();
            case INTEGER: return cell.asInt();
            case BIGINT: return cell.asLong();
            case FLOAT: return (float) cell.asDouble();
            case DOUBLE: return cell.asDouble();
            case DECIMAL: {
                DecimalType decimal = (DecimalType) type;
                return Decimal.fromBigDecimal(new BigDecimal(cell.asText()), decimal.getPrecision(), decimal.getScale());
            }
            case DATE: return (int) LocalDate.parse(cell.asText()).toEpochDay();
            case TIMESTAMP_WITHOUT_TIME_ZONE: return Timestamp.fromLocalDateTime(LocalDateTime.parse(cell.asText()));
            default: throw new UnsupportedOperationException(type.asSQLString());
        }
    }
}
