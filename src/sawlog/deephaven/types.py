"""Deephaven's types, a row each: what schema files, logs, Java and Arrow call them, and how their values are stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

import pyarrow as pa


class ColumnType(StrEnum):
    """Data types, as `.schema` files spell them."""

    BYTE = "byte"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    CHAR = "char"
    BOOLEAN = "Boolean"
    DATE_TIME = "DateTime"
    STRING = "String"
    STRING_SET = "StringSet"
    BLOB = "Blob"
    """Bytes that nobody looks into: serialized objects of unknown classes among them."""
    BIG_DECIMAL = "BigDecimal"
    BIG_INTEGER = "BigInteger"
    LOCAL_DATE = "LocalDate"
    LOCAL_TIME = "LocalTime"
    ZONED_DATE_TIME = "ZonedDateTime"
    BYTE_ARRAY = "ByteArray"
    """byte[] by its codec; `byte[]` is the array by Java serialization."""
    UTF8_STRING = "UTF8StringAsByteArray"
    """A String by a codec: UTF-8 without nulls."""
    STRING_TO_DOUBLE = "StringDoubleMap"
    STRING_TO_FLOAT = "StringFloatMap"
    STRING_TO_LONG = "StringLongMap"
    STRING_TO_INT = "StringIntMap"
    STRING_TO_BOOLEAN = "StringBooleanMap"
    STRING_TO_STRING = "StringStringMap"
    BYTES = "byte[]"
    SHORTS = "short[]"
    INTS = "int[]"
    LONGS = "long[]"
    FLOATS = "float[]"
    DOUBLES = "double[]"
    CHARS = "char[]"
    BOOLEANS = "boolean[]"


class LogType(IntEnum):
    """Types of the columns of logs: the codes in their headers."""

    BOOLEAN = 1
    BYTE = 2
    CHAR = 3
    SHORT = 4
    INT = 5
    LONG = 6
    FLOAT = 7
    DOUBLE = 8
    BLOB = 9
    ENHANCED_STRING = 10
    ENUM = 11

    @property
    def title(self) -> str:
        """The format's own name of it, such as `EnhancedString`."""
        return self.name.title().replace("_", "")


@dataclass(frozen=True, slots=True)
class Type:
    """Description of a column type of Deephaven.

    Attributes:
        type: Of a column; None for what only logs have.
        arrow: Its Arrow type, but for Strings with a symbol table and for decimals with a precision.
        java: Class of its values.
        width: Bytes of a value of fixed width; 0 where the value, or the arguments of a codec, say how many there are.
        null: Of a fixed width: the bit pattern that stands for null; what a writer writes.
        also_null: Another pattern that readers take for null.
        packed: How one value is encoded and decoded: its format for `struct`, big endian.
        codec: How objects are encoded and decoded: what the name of their codec's class contains.
        element: Of an array the type of its elements, of a map that of its values; keys are Strings.
        descriptor: Of an array: what Java calls its elements in the name of its class,
        uid: and the serialVersionUID of that; the JDK computes it from the class, so it is the same everywhere.
        log: What a log stores such values as,
        log_null: and the pattern that stands for null there, if it is another one.
        aliases: What else options and schema files call it, in lower case.
    """

    type: ColumnType | None
    arrow: pa.DataType
    java: str
    width: int = 0
    null: int = 0
    also_null: int | None = None
    packed: str = ""
    codec: str = ""
    element: ColumnType | None = None
    descriptor: str = ""
    uid: int = 0
    log: LogType | None = None
    log_null: int | None = None
    aliases: tuple[str, ...] = ()


_TIME = pa.timestamp("ns", "UTC")
_ZONED = pa.struct([("time", _TIME), ("zone", pa.string())])
_MAP = "java.util.Map"
_LEAST_LONG = 0x8000_0000_0000_0000
_C, _L = ColumnType, LogType

# fmt: off
TYPES: Final = (
    Type(_C.BYTE, pa.int8(), "java.lang.Byte", 1, 0x80, packed=">b", log=_L.BYTE),
    Type(_C.SHORT, pa.int16(), "java.lang.Short", 2, 0x8000, packed=">h", log=_L.SHORT),
    Type(_C.INT, pa.int32(), "java.lang.Integer", 4, 0x8000_0000, packed=">i", log=_L.INT, aliases=("integer",)),
    Type(_C.LONG, pa.int64(), "java.lang.Long", 8, _LEAST_LONG, packed=">q", log=_L.LONG),
    Type(_C.FLOAT, pa.float32(), "java.lang.Float", 4, 0xFF7F_FFFF, packed=">f", log=_L.FLOAT),
    Type(_C.DOUBLE, pa.float64(), "java.lang.Double", 8, 0xFFEF_FFFF_FFFF_FFFF, packed=">d", log=_L.DOUBLE),
    # 0xFFFE in Enterprise, 0xFFFF in Community since 2021.
    Type(_C.CHAR, pa.uint16(), "java.lang.Character", 2, 0xFFFE, 0xFFFF, packed=">H", log=_L.CHAR,
         aliases=("character",)),
    # -1 in column files by the documentation; -128 in logs and in Community.
    Type(_C.BOOLEAN, pa.bool_(), "java.lang.Boolean", 1, 0xFF, 0x80, packed=">?", log=_L.BOOLEAN, log_null=0x80,
         aliases=("bool",)),
    Type(_C.DATE_TIME, _TIME, "java.time.Instant", 8, _LEAST_LONG, packed=">q", aliases=("dbdatetime", "instant")),
    Type(_C.STRING, pa.string(), "java.lang.String", log=_L.ENHANCED_STRING,
         aliases=("enhancedstring", "charsequence")),
    Type(_C.STRING_SET, pa.list_(pa.string()), "StringSet", 8, _LEAST_LONG),
    Type(_C.BLOB, pa.binary(), "java.lang.Object", log=_L.BLOB, aliases=("binary",)),
    Type(None, pa.dictionary(pa.int32(), pa.string()), "java.lang.Enum", 4, 0x8000_0000, packed=">i", log=_L.ENUM),
    Type(_C.UTF8_STRING, pa.string(), "java.lang.String", codec="UTF8String"),
    Type(_C.BYTE_ARRAY, pa.binary(), "byte[]", codec="ByteArray"),
    Type(_C.BIG_DECIMAL, pa.string(), "java.math.BigDecimal", codec="BigDecimal"),
    Type(_C.BIG_INTEGER, pa.string(), "java.math.BigInteger", codec="BigInteger"),
    Type(_C.LOCAL_DATE, pa.date32(), "java.time.LocalDate", codec="LocalDate"),
    Type(_C.LOCAL_TIME, pa.time64("ns"), "java.time.LocalTime", codec="LocalTime"),
    Type(_C.ZONED_DATE_TIME, _ZONED, "java.time.ZonedDateTime", codec="ZonedDateTime"),
    Type(_C.STRING_TO_DOUBLE, pa.map_(pa.string(), pa.float64()), _MAP, codec="StringDoubleMap", element=_C.DOUBLE),
    Type(_C.STRING_TO_FLOAT, pa.map_(pa.string(), pa.float32()), _MAP, codec="StringFloatMap", element=_C.FLOAT),
    Type(_C.STRING_TO_LONG, pa.map_(pa.string(), pa.int64()), _MAP, codec="StringLongMap", element=_C.LONG),
    Type(_C.STRING_TO_INT, pa.map_(pa.string(), pa.int32()), _MAP, codec="StringIntMap", element=_C.INT),
    Type(_C.STRING_TO_BOOLEAN, pa.map_(pa.string(), pa.bool_()), _MAP, codec="StringBooleanMap", element=_C.BOOLEAN),
    Type(_C.STRING_TO_STRING, pa.map_(pa.string(), pa.string()), _MAP, codec="StringStringMap", element=_C.STRING),
    Type(_C.BYTES, pa.list_(pa.int8()), "[B", element=_C.BYTE, descriptor="B", uid=0xACF317F8060854E0),
    Type(_C.SHORTS, pa.list_(pa.int16()), "[S", element=_C.SHORT, descriptor="S", uid=0xEF832E06E55DB0FA),
    Type(_C.INTS, pa.list_(pa.int32()), "[I", element=_C.INT, descriptor="I", uid=0x4DBA602676EAB2A5),
    Type(_C.LONGS, pa.list_(pa.int64()), "[J", element=_C.LONG, descriptor="J", uid=0x782004B512B17593),
    Type(_C.FLOATS, pa.list_(pa.float32()), "[F", element=_C.FLOAT, descriptor="F", uid=0x0B9C818922E00C42),
    Type(_C.DOUBLES, pa.list_(pa.float64()), "[D", element=_C.DOUBLE, descriptor="D", uid=0x3EA68C14AB635A1E),
    Type(_C.CHARS, pa.list_(pa.uint16()), "[C", element=_C.CHAR, descriptor="C", uid=0xB02666B0E25D84AC),
    Type(_C.BOOLEANS, pa.list_(pa.bool_()), "[Z", element=_C.BOOLEAN, descriptor="Z", uid=0x578F203914B85DE2),
)
# fmt: on

BY_COLUMN: Final = {row.type: row for row in TYPES if row.type is not None}
"""The rows by type of column."""
BY_LOG: Final = {row.log: row for row in TYPES if row.log is not None}
"""Those of what logs have."""
FIXED: Final = {kind: row for kind, row in BY_COLUMN.items() if row.width}
"""Those whose values have a fixed width."""
BOXED: Final = {kind: row.java for kind, row in FIXED.items() if row.log is not None}
"""Java's classes of what is a primitive there."""
MAPS: Final = {kind: row for kind, row in BY_COLUMN.items() if row.java == _MAP}
ARRAYS: Final = {kind: row for kind, row in BY_COLUMN.items() if row.descriptor}
"""Arrays of primitives, by Java serialization."""

INTEGERS: Final = (ColumnType.BYTE, ColumnType.SHORT, ColumnType.INT, ColumnType.LONG)
"""Each takes the values of those before it; so do the next ones."""
FLOATS: Final = (ColumnType.FLOAT, ColumnType.DOUBLE)
NUMBERS: Final = INTEGERS + FLOATS


def find_element_type(kind: ColumnType) -> ColumnType:
    """Return the type of the elements of an array, or of the values of a map."""
    element = BY_COLUMN[kind].element
    assert element is not None
    return element
