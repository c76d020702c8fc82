import io.deephaven.util.codec.ObjectCodec;
import java.lang.reflect.Constructor;
import java.math.BigDecimal;
import java.nio.*;
import java.nio.file.*;
import java.time.*;
import java.util.*;

/** Decodes the columns of a location by Deephaven's own codecs, says what they hold, and encodes them again. */
public class Codecs {
    static String describe(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof BigDecimal) {
            BigDecimal stripped = ((BigDecimal) value).stripTrailingZeros();
            return stripped.signum() == 0 ? "0" : stripped.toPlainString();
        }
        if (value instanceof LocalTime) {
            return String.valueOf(((LocalTime) value).toNanoOfDay());
        }
        if (value instanceof LocalDate) {
            return String.valueOf(((LocalDate) value).toEpochDay());
        }
        if (value instanceof ZonedDateTime) {
            ZonedDateTime time = (ZonedDateTime) value;
            long nanos = Math.addExact(Math.multiplyExact(time.toEpochSecond(), 1_000_000_000L), time.getNano());
            return nanos + " " + time.getZone();
        }
        if (value instanceof byte[]) {
            return "bytes" + Arrays.toString((byte[]) value);
        }
        if (value instanceof int[]) {
            return Arrays.toString((int[]) value);
        }
        if (value instanceof double[]) {
            return Arrays.toString(Arrays.stream((double[]) value).mapToLong(Double::doubleToRawLongBits).toArray());
        }
        if (value instanceof Map) {
            TreeMap<String, String> sorted = new TreeMap<>();
            ((Map<?, ?>) value).forEach((key, one) -> sorted.put(describe(key), one instanceof Double
                    ? String.valueOf(Double.doubleToRawLongBits((Double) one)) : describe(one)));
            return sorted.toString();
        }
        return value.toString();
    }

    public static void main(String[] arguments) throws Exception {
        Path root = Path.of(arguments[0]);
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(root.resolve("columns.txt"))) {
            String[] parts = line.split("\t", -1);
            String name = parts[0];
            int width = Integer.parseInt(parts[3]);
            Constructor<?> made = Class.forName("io.deephaven.util.codec." + parts[1]).getConstructor(String.class);
            @SuppressWarnings("unchecked")
            ObjectCodec<Object> codec = (ObjectCodec<Object>) made.newInstance(parts[2]);
            byte[] data = Files.readAllBytes(root.resolve("t/" + name + ".dat"));
            Path binary = root.resolve("t/" + name + ".bytes");
            byte[] bytes = width > 0 ? data : Files.readAllBytes(binary);
            if (width > 0 && codec.expectedObjectWidth() != width) {
                throw new IllegalStateException(name + ": width " + codec.expectedObjectWidth());
            }
            LongBuffer ends = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
            int rows = width > 0 ? data.length / width : ends.limit();
            for (int row = 0; row < rows; row++) {
                int start = width > 0 ? row * width : row == 0 ? 0 : (int) ends.get(row - 1);
                int end = width > 0 ? start + width : (int) ends.get(row);
                Object value = width == 0 && start == end && !parts[1].startsWith("UTF8") ? null : codec.decode(bytes, start, end - start);
                out.append(name).append('\t').append(describe(value)).append('\n');
                if (value != null && !(value instanceof Map) && !Arrays.equals(codec.encode(value), Arrays.copyOfRange(bytes, start, end))) {
                    throw new IllegalStateException(name + ", row " + row + ": " + describe(value) + " is encoded as "
                            + HexFormat.of().formatHex(codec.encode(value)));
                }
                if (value == null && width > 0 && !Arrays.equals(codec.encode(null), Arrays.copyOfRange(bytes, start, end))) {
                    throw new IllegalStateException(name + ": null is encoded as " + HexFormat.of().formatHex(codec.encode(null)));
                }
            }
        }
        Files.writeString(root.resolve("described.txt"), out.toString());
    }
}
