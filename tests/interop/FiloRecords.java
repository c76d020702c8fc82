import com.typesafe.config.ConfigFactory;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import net.jpountz.xxhash.XXHash32;
import net.jpountz.xxhash.XXHashFactory;

/**
 * FiloDB's containers on a JVM, by the published description, with the libraries and the arithmetic that FiloDB uses:
 * lz4-java's XXH32, Typesafe Config's hashes, Math.pow and Math.exp.
 *
 * id DATA;COLUMNS PARTITION;COLUMNS prints the schema ID. read FILE SIZE TYPES START ID KEYS prints the records, and
 * write FILE SIZE TYPES START ID KEYS makes containers of such lines. SIZE is that of whole containers, 0 for trimmed
 * ones; TYPES are those of the columns, START is the first partition column (-1: none). Nested records have the columns
 * of NESTED. shards prints the shard of each line of metric, labels, number of shards and spread.
 */
public class FiloRecords {
    static final XXHash32 XXH = XXHashFactory.safeInstance().hash32();
    static final int SEED = 0x9747b28c;

    static final FiloRecords NESTED = new FiloRecords(new String[] {"ts", "double", "string"}, -1, 0, "");

    static int hash(byte[] data) {
        return XXH.hash(data, 0, data.length, SEED);
    }

    public static void main(String[] a) throws Exception {
        if (a[0].equals("id")) {
            System.out.println((columns(a[2]) + 31 * columns(a[1])) & 0xFFFF);
            return;
        }
        if (a[0].equals("shards")) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(shard(line.split("\t", -1)));
            }
            return;
        }
        FiloRecords made = new FiloRecords(a[3].split(","), Integer.parseInt(a[4]), Integer.parseInt(a[5]), a[6]);
        if (a[0].equals("read")) {
            made.read(ByteBuffer.wrap(Files.readAllBytes(Path.of(a[1]))), Integer.parseInt(a[2]));
        } else {
            made.write(Path.of(a[1]), Integer.parseInt(a[2]));
        }
    }

    /** By the options that FiloDB ships: shard key _ns_, _ws_ and the metric without its suffix; le spreads nothing. */
    static int shard(String[] fields) {
        TreeMap<String, byte[]> labels = new TreeMap<>();
        for (String entry : fields[1].isEmpty() ? new String[0] : fields[1].split(",")) {
            String[] parts = entry.split(":", -1);
            labels.put(new String(bytes(parts[0]), StandardCharsets.UTF_8), bytes(parts[1]));
        }
        int key = 7, all = 7;
        for (String name : List.of("_ns_", "_ws_")) {
            if (labels.containsKey(name)) key = 31 * key + hash(labels.get(name));
        }
        String metric = new String(bytes(fields[0]), StandardCharsets.UTF_8);
        for (String suffix : List.of("_bucket", "_count", "_sum")) {
            if (metric.endsWith(suffix)) {
                metric = metric.substring(0, metric.length() - suffix.length());
                break;
            }
        }
        key = 31 * key + hash(metric.getBytes(StandardCharsets.UTF_8));
        for (var label : labels.entrySet()) {
            if (label.getKey().equals("le")) continue;
            all = 31 * all + (31 * hash(label.getKey().getBytes(StandardCharsets.UTF_8)) + hash(label.getValue()));
        }
        int shards = Integer.parseInt(fields[2]), group = shards >> Integer.parseInt(fields[3]);
        return key & (group - 1) | all & (shards - 1) & -group;
    }

    static int columns(String given) {
        int total = 7;
        for (String column : given.split(";")) {
            String[] parts = column.split(":", 3);
            String name = switch (parts[1]) {
                case "int" -> "IntColumn";
                case "long" -> "LongColumn";
                case "double" -> "DoubleColumn";
                case "ts" -> "TimestampColumn";
                case "string" -> "StringColumn";
                case "map" -> "MapColumn";
                case "br" -> "BinaryRecordColumn";
                default -> "HistogramColumn";
            };
            int params = ConfigFactory.parseString(parts.length > 2 ? parts[2].replace(":", "\n") : "").hashCode();
            byte[] text = parts[0].getBytes(StandardCharsets.UTF_8);
            total = 31 * total + hash(text) * name.hashCode() + params;
        }
        return total & 0xFFFF;
    }

    final String[] types;
    final int start;
    final int id;
    final String[] keys;
    final int[] offsets;
    final int slotsEnd;
    final int variable;

    FiloRecords(String[] types, int start, int id, String keys) {
        this.types = types;
        this.start = start;
        this.id = id;
        this.keys = keys.split(",");
        offsets = new int[types.length];
        int at = start >= 0 ? 6 : 4;
        for (int i = 0; i < types.length; i++) {
            offsets[i] = at;
            at += types[i].equals("long") || types[i].equals("double") || types[i].equals("ts") ? 8 : 4;
        }
        slotsEnd = at;
        variable = start >= 0 ? at + 4 : at;
    }

    void read(ByteBuffer file, int size) {
        file.order(ByteOrder.LITTLE_ENDIAN);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (int at = 0; at < file.limit(); ) {
            int end = at + 4 + file.getInt(at);
            if (file.get(at + 7) != 1) throw new IllegalStateException("version at " + at);
            for (int record = at + 16; record < end; record += (file.getInt(record) + 7) & ~3) {
                out.println(line(file, record));
            }
            at = size > 0 && file.limit() - at > size ? at + size : end;
        }
        out.flush();
    }

    String line(ByteBuffer file, int record) {
        List<String> fields = new ArrayList<>();
        int computed = 7;
        for (int i = 0; i < types.length; i++) {
            int slot = record + offsets[i];
            switch (types[i]) {
                case "int" -> fields.add(Integer.toString(file.getInt(slot)));
                case "long", "ts" -> fields.add(Long.toString(file.getLong(slot)));
                case "double" -> fields.add(Long.toHexString(file.getLong(slot)));
                default -> {
                    byte[] payload = payload(file, record + file.getInt(slot));
                    if (start >= 0 && i >= start) computed = 31 * computed + hash(hashed(types[i], payload));
                    fields.add(switch (types[i]) {
                        case "string" -> "x" + hex(payload);
                        case "map" -> map(payload);
                        case "br" -> NESTED.line(ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN), 0).replace("\t", "/");
                        default -> histogram(payload);
                    });
                }
            }
        }
        if (start >= 0) {
            if ((file.getShort(record + 4) & 0xFFFF) != id) throw new IllegalStateException("schema at " + record);
            if (file.getInt(record + slotsEnd) != computed) throw new IllegalStateException("hash at " + record);
        }
        return String.join("\t", fields);
    }

    static byte[] payload(ByteBuffer file, int at) {
        byte[] found = new byte[file.getShort(at) & 0xFFFF];
        file.get(at + 2, found);
        return found;
    }

    static byte[] hashed(String type, byte[] payload) {
        if (!type.equals("map")) return payload;
        ByteBuffer all = ByteBuffer.allocate(payload.length + 2).order(ByteOrder.LITTLE_ENDIAN);
        return all.putShort((short) payload.length).put(payload).array();
    }

    String map(byte[] payload) {
        List<String> entries = new ArrayList<>();
        ByteBuffer in = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN);
        while (in.hasRemaining()) {
            int first = in.get() & 0xFF;
            byte[] key;
            if (first >= 0xC0) {
                key = keys[first & 0x3F].getBytes(StandardCharsets.UTF_8);
            } else {
                key = new byte[first];
                in.get(key);
            }
            byte[] value = new byte[in.getShort() & 0xFFFF];
            in.get(value);
            entries.add(hex(key) + ":" + hex(value));
        }
        return "m" + String.join(",", entries);
    }

    static String histogram(byte[] blob) {
        ByteBuffer in = ByteBuffer.wrap(blob).order(ByteOrder.LITTLE_ENDIAN);
        int code = in.get(0);
        if (code == 0) return "h0|||";
        int size = in.getShort(1);
        byte[] definition = Arrays.copyOfRange(blob, 3, 3 + size);
        int count = in.getShort(3);
        boolean xor = code == 8 || code == 10 || code == 16;
        double[] tops = tops(code, definition, count);
        long[] bits = unpack(in, 3 + size, count, xor);
        if (!xor) {
            for (int i = 1; i < count; i++) bits[i] += bits[i - 1];
            for (int i = 0; i < count; i++) bits[i] = Double.doubleToRawLongBits((double) bits[i]);
        }
        return "h" + code + "|" + hex(definition) + "|" + texts(bits) + "|" + texts(rawBits(tops));
    }

    static double[] tops(int code, byte[] definition, int count) {
        ByteBuffer in = ByteBuffer.wrap(definition).order(ByteOrder.LITTLE_ENDIAN);
        double[] tops = new double[count];
        if (code == 5 || code == 10) {
            long[] bits = unpack(in, 2, count, true);
            for (int i = 0; i < count; i++) tops[i] = Double.longBitsToDouble(bits[i]);
        } else if (code == 9 || code == 16) {
            double logBase = Math.log(Math.pow(2, Math.pow(2, -in.getShort(2))));
            for (int i = 1; i < count; i++) tops[i] = Math.exp((in.getInt(4) + i) * logBase);
        } else {
            for (int i = 0; i < count; i++) tops[i] = in.getDouble(2) * Math.pow(in.getDouble(10), i) - (code == 4 ? 1 : 0);
        }
        return tops;
    }

    static long[] unpack(ByteBuffer in, int at, int count, boolean xor) {
        long[] values = new long[count];
        int done = 0;
        if (xor && count > 0) {
            values[0] = in.getLong(at);
            at += 8;
            done = 1;
        }
        while (done < count && at < in.limit()) {
            int mask = in.get(at++) & 0xFF;
            int widths = mask == 0 ? 0 : in.get(at++) & 0xFF;
            int nibbles = (widths >> 4) + 1, trailing = widths & 15, cursor = 0;
            for (int i = 0; i < 8; i++) {
                long value = 0;
                if ((mask >> i & 1) != 0) {
                    for (int k = 0; k < nibbles; k++, cursor++) {
                        long nibble = in.get(at + cursor / 2) >> 4 * (cursor % 2) & 15;
                        value |= nibble << 4 * (k + trailing);
                    }
                }
                if (done + i < count) values[done + i] = value;
            }
            at += (cursor + 1) / 2;
            done += 8;
        }
        for (int i = 1; xor && i < count; i++) values[i] ^= values[i - 1];
        return values;
    }

    static byte[] pack(long[] values, boolean xor) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        long[] rest = values.clone();
        int done = 0;
        if (xor) {
            for (int i = values.length - 1; i > 0; i--) rest[i] = values[i] ^ values[i - 1];
            out.writeBytes(ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(values[0]).array());
            done = 1;
        } else {
            for (int i = values.length - 1; i > 0; i--) rest[i] = values[i] - values[i - 1];
        }
        for (; done < rest.length; done += 8) {
            long together = 0;
            int mask = 0;
            for (int i = 0; i < 8 && done + i < rest.length; i++) {
                together |= rest[done + i];
                if (rest[done + i] != 0) mask |= 1 << i;
            }
            out.write(mask);
            if (mask == 0) continue;
            int trailing = Long.numberOfTrailingZeros(together) / 4;
            int nibbles = 16 - trailing - Long.numberOfLeadingZeros(together) / 4;
            out.write((nibbles - 1) << 4 | trailing);
            int half = 0, pending = 0;
            for (int i = 0; i < 8 && done + i < rest.length; i++) {
                for (int k = 0; rest[done + i] != 0 && k < nibbles; k++) {
                    int nibble = (int) (rest[done + i] >>> 4 * (trailing + k)) & 15;
                    if (half == 0) pending = nibble;
                    else out.write(pending | nibble << 4);
                    half ^= 1;
                }
            }
            if (half == 1) out.write(pending);
        }
        return out.toByteArray();
    }

    void write(Path path, int size) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteBuffer container = null;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] record = record(line.split("\t", -1));
            if (container != null && container.position() + record.length > size) {
                out.write(container.array());
                container = null;
            }
            if (container == null) {
                container = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
                container.putInt(12).putInt(1 << 24).putLong(1_700_000_000_000L);
            }
            container.put(record);
            container.position(container.position() + 3 & ~3);
            container.putInt(0, container.position() - 4);
        }
        if (container != null) out.write(container.array(), 0, container.position());
        Files.write(path, out.toByteArray());
    }

    byte[] record(String[] fields) {
        ByteArrayOutputStream payloads = new ByteArrayOutputStream();
        ByteBuffer fixed = ByteBuffer.allocate(variable).order(ByteOrder.LITTLE_ENDIAN);
        int computed = 7;
        for (int i = 0; i < types.length; i++) {
            switch (types[i]) {
                case "int" -> fixed.putInt(offsets[i], Integer.parseInt(fields[i]));
                case "long", "ts" -> fixed.putLong(offsets[i], Long.parseLong(fields[i]));
                case "double" -> fixed.putLong(offsets[i], Long.parseUnsignedLong(fields[i], 16));
                default -> {
                    byte[] payload = switch (types[i]) {
                        case "string" -> bytes(fields[i].substring(1));
                        case "map" -> entries(fields[i].substring(1));
                        case "br" -> NESTED.record(fields[i].split("/", -1));
                        default -> blob(fields[i].substring(1));
                    };
                    if (start >= 0 && i >= start) computed = 31 * computed + hash(hashed(types[i], payload));
                    fixed.putInt(offsets[i], variable + payloads.size());
                    payloads.writeBytes(hashed("map", payload));
                }
            }
        }
        if (start >= 0) fixed.putShort(4, (short) id).putInt(slotsEnd, computed);
        byte[] all = Arrays.copyOf(fixed.putInt(0, variable - 4 + payloads.size()).array(), variable + payloads.size());
        System.arraycopy(payloads.toByteArray(), 0, all, variable, payloads.size());
        return all;
    }

    byte[] entries(String text) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (String entry : text.isEmpty() ? new String[0] : text.split(",")) {
            String[] parts = entry.split(":", -1);
            byte[] key = bytes(parts[0]), value = bytes(parts[1]);
            int known = Arrays.asList(keys).indexOf(new String(key, StandardCharsets.UTF_8));
            if (known >= 0) {
                out.write(0xC0 | known);
            } else {
                out.write(key.length);
                out.writeBytes(key);
            }
            out.writeBytes(hashed("map", value));
        }
        return out.toByteArray();
    }

    static byte[] blob(String text) {
        String[] parts = text.split("\\|", -1);
        int code = Integer.parseInt(parts[0]);
        if (code == 0) return new byte[] {0};
        boolean xor = code == 8 || code == 10 || code == 16;
        String[] given = parts[2].split(",");
        long[] values = new long[given.length];
        for (int i = 0; i < values.length; i++) {
            values[i] = Long.parseUnsignedLong(given[i], 16);
            if (!xor) values[i] = (long) Double.longBitsToDouble(values[i]);
        }
        byte[] definition = bytes(parts[1]), packed = pack(values, xor);
        ByteBuffer out = ByteBuffer.allocate(3 + definition.length + packed.length).order(ByteOrder.LITTLE_ENDIAN);
        return out.put((byte) code).putShort((short) definition.length).put(definition).put(packed).array();
    }

    static long[] rawBits(double[] values) {
        return Arrays.stream(values).mapToLong(Double::doubleToRawLongBits).toArray();
    }

    static String texts(long[] bits) {
        return String.join(",", Arrays.stream(bits).mapToObj(Long::toHexString).toList());
    }

    static String hex(byte[] data) {
        return java.util.HexFormat.of().formatHex(data);
    }

    static byte[] bytes(String text) {
        return java.util.HexFormat.of().parseHex(text);
    }
}
