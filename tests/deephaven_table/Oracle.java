import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Instant;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;

/** Reads every NAME.ser of a directory and says what it holds; writes objects of its own as NAME.made. */
public class Oracle {
    enum Side { BUY, SELL }

    static class AbstractDataColumn implements Serializable {
        int version = 7;
        String name = "Sym";
        Object partitionKeysToRange;
        long[] other = {1, 2};
    }

    static class SymbolDiskMappedColumn extends AbstractDataColumn {
        Side side = Side.SELL;
        Object[] objects = {"x", null, new int[0], Side.BUY};
        Class<?> type = String.class;
        transient int ignored = 5;

        private void writeObject(ObjectOutputStream out) throws IOException {
            out.defaultWriteObject();
            out.writeInt(99);
            out.write(new byte[3000]);
            out.writeObject("behind");
        }
    }

    public static class DBDateTime implements Externalizable {
        long nanos;

        public DBDateTime() {}

        DBDateTime(long nanos) {
            this.nanos = nanos;
        }

        public void writeExternal(ObjectOutput out) throws IOException {
            out.writeLong(nanos);
        }

        public void readExternal(ObjectInput in) throws IOException {
            nanos = in.readLong();
        }

        public int hashCode() {
            return Long.hashCode(nanos);
        }
    }

    static class DateTime implements Serializable {
        long nanos = 12345;
    }

    static class Nested implements Serializable {
        Object inner;
    }

    static String quote(String text) {
        StringBuilder out = new StringBuilder();
        for (char unit : text.toCharArray()) {
            out.append(String.format("%04x", (int) unit));
        }
        return out.toString();
    }

    static String key(Object key) {
        if (key == null) {
            return "null";
        }
        String name = key.getClass().getName() + ":";
        if (key instanceof String) {
            return name + quote((String) key);
        }
        if (key instanceof Character) {
            return name + (int) (Character) key;
        }
        if (key instanceof Double) {
            return name + Long.toUnsignedString(Double.doubleToLongBits((Double) key));
        }
        if (key instanceof Float) {
            return name + Integer.toUnsignedString(Float.floatToIntBits((Float) key));
        }
        return name + key;
    }

    static String describe(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof Map) {
            List<String> parts = new ArrayList<>();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                parts.add(key(entry.getKey()) + "=" + describe(entry.getValue()));
            }
            Collections.sort(parts);
            return value.getClass().getName() + parts;
        }
        if (value instanceof int[]) {
            return "int" + Arrays.toString((int[]) value);
        }
        if (value instanceof long[]) {
            return "long" + Arrays.toString((long[]) value);
        }
        if (value instanceof double[]) {
            return "double" + Arrays.toString(Arrays.stream((double[]) value).mapToLong(Double::doubleToRawLongBits).toArray());
        }
        if (value instanceof float[]) {
            float[] array = (float[]) value;
            int[] bits = new int[array.length];
            for (int i = 0; i < bits.length; i++) {
                bits[i] = Float.floatToRawIntBits(array[i]);
            }
            return "float" + Arrays.toString(bits);
        }
        if (value instanceof short[]) {
            return "short" + Arrays.toString((short[]) value);
        }
        if (value instanceof byte[]) {
            return "byte" + Arrays.toString((byte[]) value);
        }
        if (value instanceof boolean[]) {
            return "boolean" + Arrays.toString((boolean[]) value);
        }
        if (value instanceof char[]) {
            return "char:" + quote(new String((char[]) value));
        }
        return key(value);
    }

    static Path root;

    static void make(String name, Object value) throws IOException {
        try (ObjectOutputStream out = new ObjectOutputStream(Files.newOutputStream(root.resolve(name + ".made")))) {
            out.writeObject(value);
        }
    }

    static Map<Object, Object> ranges(Map<Object, Object> map, Object... keys) {
        int row = 0;
        for (Object key : keys) {
            map.put(key, new int[] {row, row + 2});
            row += 2;
        }
        return map;
    }

    public static void main(String[] arguments) throws Exception {
        root = Path.of(arguments[0]);
        StringBuilder out = new StringBuilder();
        File[] files = root.toFile().listFiles((directory, name) -> name.endsWith(".ser"));
        Arrays.sort(files);
        for (File file : files) {
            String found;
            try (ObjectInputStream in = new ObjectInputStream(new BufferedInputStream(new FileInputStream(file)))) {
                found = describe(in.readObject());
                if (in.read() >= 0) {
                    found = "bytes behind the object";
                }
            } catch (Exception error) {
                found = error.toString();
            }
            out.append(file.getName()).append('\t').append(found).append('\n');
        }
        Files.write(root.resolve("described.txt"), out.toString().getBytes(StandardCharsets.UTF_8));

        make("null", null);
        make("strings", ranges(new HashMap<>(), "AAPL", null, "", "a\0b", "日本\uD83D\uDE00", "x".repeat(70000)));
        make("linked", ranges(new LinkedHashMap<>(), "b", "a", null));
        make("tree", ranges(new TreeMap<>(), "b", "a"));
        make("table", ranges(new Hashtable<>(), "b", "a"));
        make("concurrent", ranges(new ConcurrentHashMap<>(), "b", "a"));
        make("integers", ranges(new HashMap<>(), 5, -1, null, Integer.MIN_VALUE));
        make("longs", ranges(new HashMap<>(), 5L, -1L, Long.MAX_VALUE));
        make("shorts", ranges(new HashMap<>(), (short) 5, (short) -1));
        make("bytes", ranges(new HashMap<>(), (byte) 5, (byte) -1));
        make("booleans", ranges(new LinkedHashMap<>(), true, false, null));
        make("characters", ranges(new HashMap<>(), 'a', '\uFFFD'));
        make("doubles", ranges(new LinkedHashMap<>(), 0.0, -0.0, 1.5, Double.POSITIVE_INFINITY));
        make("floats", ranges(new LinkedHashMap<>(), 1.5f, -2.25f));
        make("instants", ranges(new LinkedHashMap<>(), Instant.ofEpochSecond(5, 7), Instant.ofEpochSecond(-5, 7)));
        make("times", ranges(new LinkedHashMap<>(), new DBDateTime(5), new DBDateTime(-6)));
        make("fields", ranges(new LinkedHashMap<>(), new DateTime()));
        make("unknown", ranges(new HashMap<>(), new SymbolDiskMappedColumn()));
        make("enums", ranges(new HashMap<>(), Side.BUY));
        make("mixed", ranges(new HashMap<>(), 1, "1"));
        Map<Object, Object> wide = new HashMap<>();
        wide.put("A", new long[] {0, 1L << 33});
        make("wide", wide);
        make("triple", new HashMap<>(Map.of("A", new int[] {0, 1, 2})));
        make("nomap", new HashMap<>(Map.of("A", "B")));
        Map<Object, Object> many = new HashMap<>();
        for (int i = 0; i < 20000; i++) {
            many.put("S" + i, new int[] {i * 3, i * 3 + 3});
        }
        make("many", many);
        SymbolDiskMappedColumn column = new SymbolDiskMappedColumn();
        make("legacy_ungrouped", column);
        column.partitionKeysToRange = ranges(new HashMap<>(), "A", "B");
        make("legacy", column);
        make("array_I", new int[] {1, -2, Integer.MIN_VALUE});
        make("array_J", new long[] {1, -2, Long.MIN_VALUE});
        make("array_D", new double[] {1.5, Double.NaN});
        make("array_F", new float[] {1.5f});
        make("array_S", new short[] {1, -2});
        make("array_B", new byte[] {1, -2});
        make("array_C", new char[] {'a', '\uD800'});
        make("array_Z", new boolean[] {true, false});
        make("array_empty", new int[0]);
        make("array_deep", new int[][] {{1}, {2, 3}, null});
        Nested top = new Nested();
        for (int i = 0; i < 40; i++) {
            Nested outer = new Nested();
            outer.inner = top;
            top = outer;
        }
        make("deep", top);
        Object[] self = new Object[1];
        self[0] = self;
        make("cycle", self);
        ByteArrayOutputStream reset = new ByteArrayOutputStream();
        try (ObjectOutputStream stream = new ObjectOutputStream(reset)) {
            stream.reset();
            stream.writeObject(ranges(new HashMap<>(), "R"));
        }
        Files.write(root.resolve("reset.made"), reset.toByteArray());
        ByteArrayOutputStream old = new ByteArrayOutputStream();
        try (ObjectOutputStream stream = new ObjectOutputStream(old)) {
            stream.useProtocolVersion(ObjectStreamConstants.PROTOCOL_VERSION_1);
            stream.writeObject(new DBDateTime(5));
        }
        Files.write(root.resolve("protocol1.made"), old.toByteArray());
    }
}
