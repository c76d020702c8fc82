"""Which segments of a collection are read."""

from __future__ import annotations

from dataclasses import dataclass

from sawlog.errors import OptionError
from sawlog.milvus_binlog.collection.model import Collection, Segment
from sawlog.milvus_binlog.options import ReadOptions


@dataclass(frozen=True, slots=True)
class Selection:
    """The segments of a collection that options ask for."""

    collection: Collection
    options: ReadOptions

    @property
    def every(self) -> list[Segment]:
        """All segments of the partitions that there is anything of."""
        known = self.within(list(self.collection.segments.values()))
        return [one for one in known if one.inserts or one.deltas or one.modern]

    @property
    def alive(self) -> list[Segment]:
        """The segments whose rows are the collection's: those that are named, or those that are alive."""
        living = self.collection.living(self.options.until, self.dropped)
        return self.within(living) if not self.options.segments else self._named

    @property
    def origins(self) -> list[Segment]:
        """The segments that hold every version of every row, each once, or those that are named."""
        return self.within(self.collection.origins()) if not self.options.segments else self._named

    @property
    def _named(self) -> list[Segment]:
        """The segments of the option.

        Raises:
            OptionError: For one that is not there.
        """
        known = self.collection.segments
        there = {id for id, one in known.items() if one.inserts or one.modern}
        unknown = [id for id in self.options.segments if id not in there]
        if unknown:
            raise OptionError(f"segments: the collection {self.collection.name} has no segment {unknown[0]}")
        return self.within([known[id] for id in sorted(set(self.options.segments))])

    @property
    def dropped(self) -> tuple[int, ...]:
        """Dropped partitions that are asked for by name or id."""
        meta = self.collection.meta
        known = meta.dropped_partitions if meta is not None else {}
        return tuple(id for id, name in known.items() if {str(id), name} & set(self.options.partitions))

    def within(self, segments: list[Segment]) -> list[Segment]:
        """Those of some segments that lie in the partitions that are asked for.

        Raises:
            OptionError: For a partition that is not known.
        """
        wanted = self.options.partitions
        if not wanted:
            return segments
        collection = self.collection
        names = {segment.partition: collection.partition_name(segment.partition) for segment in segments}
        if collection.meta is not None:
            names |= {**collection.meta.dropped_partitions, **collection.meta.partitions}
        unknown = [name for name in wanted if name not in names.values() and name not in map(str, names)]
        if unknown:
            known = ", ".join(sorted(f"{name} ({id})" for id, name in names.items()))
            raise OptionError(f"partitions: {unknown[0]!r} is none of {known}")
        return [one for one in segments if str(one.partition) in wanted or names[one.partition] in wanted]
