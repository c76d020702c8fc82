"""Every number of a TFRecord: length, its masked CRC-32C, that many bytes, their masked CRC-32C; all little endian."""

from sawlog.chain.record_walk import DamageKind
from sawlog.kernels.layout import Number

LENGTH = Number(0, 8)
LENGTH_CHECKSUM = Number(8, 4)
HEADER_SIZE = LENGTH_CHECKSUM.end
CHECKSUM = Number(0, 4)
"""Of the data, after them."""
MASK_SHIFT = 15
MASK_DELTA = 0xA282EAD8


class RecordDamageKind(DamageKind):
    """Kinds of damage."""

    BAD_LENGTH = 1, "the checksum of the length should be {0:#x}, found {1:#x}; the next sound length was searched"
    BAD_CHECKSUM = 2, "the checksum of the data should be {0:#x}, found {1:#x}"
    RECORD_TOO_LARGE = 3, "{0} bytes; max_item_bytes is {1}"
    READ_ERROR = 4
