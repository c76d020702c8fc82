"""TFRecord files: recognised, read in ranges, followed, written and repaired."""

from sawlog.chain.record_walk import RecordFormat, RecordWalk
from sawlog_tfrecord import kernels, layout


class Walk(RecordWalk):
    """One pass over a range of a file."""

    kinds = layout.RecordDamageKind
    kernel = kernels.read


class TFRecord(RecordFormat):
    """The format."""

    name = "tfrecord"
    title = "TFRecord file"
    suffix = ".tfrecord"
    walk = Walk
    frame = layout.HEADER_SIZE + layout.CHECKSUM.size
    write = kernels.write
    probe = kernels.begins
    probe_size = layout.HEADER_SIZE
