"""TFRecord files: recognised, read in ranges, followed, written and repaired."""

from sawlog.chain.kernels import head_window
from sawlog.chain.record_walk import RecordFormat, RecordWalk
from sawlog_tfrecord import kernels, layout


class Walk(RecordWalk):
    """One pass over a range of a file."""

    kinds = layout.Kind
    details = layout.DETAIL
    kernel = kernels.read


class TFRecord(RecordFormat):
    """The format."""

    name = "tfrecord"
    title = "TFRecord file"
    suffix = ".tfrecord"
    walk = Walk
    frame = layout.HEADER_SIZE + layout.CHECKSUM.size
    write = kernels.write

    def begins(self, head: bytes, size: int) -> bool:
        if len(head) < layout.HEADER_SIZE:
            return False
        return bool(kernels.begins(head_window(head, size)))
