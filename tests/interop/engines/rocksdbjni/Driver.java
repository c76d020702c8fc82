// Replays a workload in RocksDB and prints what it answers; see ../workload.py for the language.
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.json.JSONArray;
import org.json.JSONObject;
import org.rocksdb.*;

public class Driver {
    static RocksDB db;
    static JSONObject chosen;
    static List<String> families = new ArrayList<>(List.of("default"));
    static Map<String, ColumnFamilyHandle> handles = new HashMap<>();
    static List<Snapshot> snapshots = new ArrayList<>();

    static byte[] bytes(JSONArray operation, int at) {
        return HexFormat.of().parseHex(operation.getString(at));
    }

    static Properties properties(JSONObject of) {
        Properties found = new Properties();
        of.keySet().forEach(name -> found.setProperty(name, of.getString(name)));
        return found;
    }

    static ColumnFamilyOptions familyOptions() {
        ColumnFamilyOptions made = ColumnFamilyOptions.getColumnFamilyOptionsFromProps(properties(chosen.getJSONObject("family")));
        if (made == null) throw new IllegalArgumentException(chosen.toString());
        return made.setMergeOperatorName("stringappend");
    }

    static void open(String path) throws RocksDBException {
        DBOptions options = DBOptions.getDBOptionsFromProps(properties(chosen.getJSONObject("database")));
        options.setCreateIfMissing(true).setCreateMissingColumnFamilies(true);
        List<ColumnFamilyDescriptor> wanted = new ArrayList<>();
        for (String name : families) {
            wanted.add(new ColumnFamilyDescriptor(name.getBytes(StandardCharsets.UTF_8), familyOptions()));
        }
        List<ColumnFamilyHandle> found = new ArrayList<>();
        db = RocksDB.open(options, path, wanted, found);
        for (int i = 0; i < families.size(); i++) handles.put(families.get(i), found.get(i));
    }

    static void close() {
        release();
        handles.values().forEach(ColumnFamilyHandle::close);
        db.close();
    }

    static void release() {
        snapshots.forEach(db::releaseSnapshot);
        snapshots.clear();
    }

    static void write(JSONObject step, ColumnFamilyHandle family) throws RocksDBException {
        try (WriteBatch batch = new WriteBatch(); WriteOptions options = new WriteOptions().setSync(step.getBoolean("sync"))) {
            for (Object each : step.getJSONArray("of")) {
                JSONArray one = (JSONArray) each;
                switch (one.getString(0)) {
                    case "put" -> batch.put(family, bytes(one, 1), bytes(one, 2));
                    case "delete" -> batch.delete(family, bytes(one, 1));
                    case "single_delete" -> batch.singleDelete(family, bytes(one, 1));
                    case "merge" -> batch.merge(family, bytes(one, 1), bytes(one, 2));
                    case "delete_range" -> batch.deleteRange(family, bytes(one, 1), bytes(one, 2));
                    case "log_data" -> batch.putLogData(bytes(one, 1));
                    default -> throw new IllegalArgumentException(one.getString(0));
                }
            }
            db.write(options, batch);
        }
    }

    static void ingest(String path, JSONObject step, ColumnFamilyHandle family) throws RocksDBException {
        List<String> paths = new ArrayList<>();
        boolean written = false;
        for (Object each : step.getJSONArray("tables")) {
            JSONObject table = (JSONObject) each;
            written = table.getBoolean("written");
            paths.add(path + "-" + paths.size() + ".sst");
            try (Options options = new Options(new DBOptions(), familyOptions());
                    SstFileWriter writer = new SstFileWriter(new EnvOptions(), options)) {
                writer.open(paths.get(paths.size() - 1));
                for (Object operation : table.getJSONArray("of")) {
                    JSONArray one = (JSONArray) operation;
                    switch (one.getString(0)) {
                        case "put" -> writer.put(bytes(one, 1), bytes(one, 2));
                        case "merge" -> writer.merge(bytes(one, 1), bytes(one, 2));
                        default -> writer.delete(bytes(one, 1));
                    }
                }
                writer.finish();
            }
        }
        try (IngestExternalFileOptions options = new IngestExternalFileOptions()) {
            try {
                IngestExternalFileOptions.class.getMethod("setWriteGlobalSeqno", boolean.class).invoke(options, written);
            } catch (ReflectiveOperationException error) {
                // Earlier releases always write it.
            }
            db.ingestExternalFile(family, paths, options);
        }
    }

    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        String path = arguments[0];
        for (String line : Files.readAllLines(Path.of(arguments[1]))) {
            JSONObject step = new JSONObject(line);
            ColumnFamilyHandle family = handles.get(step.optString("family", "default"));
            switch (step.getString("do")) {
                case "open" -> {
                    chosen = step.getJSONObject("options");
                    step.getJSONArray("families").forEach(name -> families.add((String) name));
                    open(path);
                }
                case "write" -> write(step, family);
                case "flush" -> db.flush(new FlushOptions().setWaitForFlush(true), family);
                case "compact" -> db.compactRange(family, HexFormat.of().parseHex(step.getString("low")),
                        HexFormat.of().parseHex(step.getString("high")));
                case "ingest" -> ingest(path, step, family);
                case "snapshot" -> snapshots.add(db.getSnapshot());
                case "release" -> release();
                case "reopen" -> {
                    close();
                    open(path);
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        PrintStream out = new PrintStream(System.out, false);
        for (String name : families) {
            try (RocksIterator each = db.newIterator(handles.get(name))) {
                for (each.seekToFirst(); each.isValid(); each.next()) {
                    String key = HexFormat.of().formatHex(each.key()), value = HexFormat.of().formatHex(each.value());
                    out.println(new JSONArray(List.of(name, key, value)));
                }
                each.status();
            }
        }
        out.println("open");
        out.flush();
        System.in.read();
        close();
    }
}
