"""TFRecord files: recognised, read in ranges, followed, written and repaired."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sawlog.chain.kernels import Window
from sawlog.chain.record_walk import RecordWalk
from sawlog.chain.records import MAX_RECORD_BYTES, RecordFormat
from sawlog.errors import OptionError
from sawlog_tfrecord import kernels, layout


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`verify_checksums`: whether those of data are; `max_record_bytes`: longer records are damage."""

    verify_checksums: bool = True
    max_record_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if not 0 <= self.max_record_bytes <= MAX_RECORD_BYTES:
            raise OptionError(f"max_record_bytes={self.max_record_bytes}: expected 0 to {MAX_RECORD_BYTES}")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """None."""


class Walk(RecordWalk):
    """One pass over a range of a file."""

    kinds = layout.Kind
    details = layout.DETAIL
    kernel = kernels.read

    def rules(self, options: ReadOptions, *, gather: bool) -> kernels.Rules:
        return kernels.Rules(options.verify_checksums, gather, options.max_record_bytes)


class TFRecord(RecordFormat):
    """The format."""

    name = "tfrecord"
    title = "TFRecord file"
    suffix = ".tfrecord"
    read_options = ReadOptions
    write_options = WriteOptions
    walk = Walk

    def begins(self, head: bytes, size: int) -> bool:
        if len(head) < layout.HEADER_SIZE:
            return False
        window = Window(np.frombuffer(head, np.uint8), *map(np.uint64, (0, len(head), size)))
        return bool(kernels.sound(window, np.uint64(0), None, None))

    def encoded(self, data: Any, offsets: Any) -> Any:
        frames = (layout.HEADER_SIZE + layout.CHECKSUM.size) * (len(offsets) - 1)
        out = np.empty(int(offsets[-1]) - int(offsets[0]) + frames, np.uint8)
        kernels.write(data, offsets, out)
        return out
