"""Every number of a column file, all little endian.

    magic "SCF1" | groups: times, then values, 8 bytes each | directory: an entry for each group | trailer

The trailer is the number of groups, the CRC-32 of the directory and that number, and the magic again.
"""

import struct

MAGIC = b"SCF1"
ENTRY = struct.Struct("<IIqq")
"""Rows of a group, the CRC-32 of its bytes, its least and its greatest time."""
TRAILER = struct.Struct("<II4s")
COUNT = struct.Struct("<I")
ROW_BYTES = 16
WIDTH = 8
MAX_GROUP_ROWS = 1 << 16
"""Of a larger group no more can be believed than that it is damaged: it would not fit into a batch."""
