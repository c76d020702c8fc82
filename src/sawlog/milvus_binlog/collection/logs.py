"""Which of the logs that were found, and of those next to them, a dataset is made of."""

from __future__ import annotations

from collections.abc import Sequence

from sawlog.format import Scan
from sawlog.milvus_binlog import layout, paths
from sawlog.milvus_binlog.metadata.load import load
from sawlog.milvus_binlog.paths import LogFile


def with_deltas(logs: Sequence[LogFile], scan: Scan) -> list[LogFile]:
    """The logs, and, where only insert logs were given, the delta and stats logs next to them."""
    given = {log.kind for log in logs} | ({layout.DELTA_LOG} if scan.schema is not None else set())
    inserts = [log for log in logs if log.kind == layout.INSERT_LOG and log.root]
    if layout.DELTA_LOG in given or not inserts:
        return list(logs)
    added: list[LogFile] = []
    for root, collection in sorted({(log.root, log.collection) for log in inserts}):
        for kind in (layout.DELTA_LOG, layout.STATS_LOG):
            directory = f"{root}/{kind}/{collection}"
            if kind not in given and scan.storage.is_directory(directory):
                added += [log for log in map(paths.parse, scan.storage.find(directory)) if log is not None]
    segments = {log.segment for log in inserts}
    return [*logs, *(log for log in added if log.segment in segments or _deletes_only(log, scan))]


def _deletes_only(log: LogFile, scan: Scan) -> bool:
    """Whether a delta log belongs to a segment that has no insert logs anywhere."""
    place = f"{log.root}/{layout.INSERT_LOG}/{log.collection}/{log.partition}/{log.segment}"
    return not scan.storage.exists(place)


def followed(logs: Sequence[LogFile], scan: Scan) -> list[LogFile]:
    """Of logs that have appeared, those of the view and of the collection that a stream follows."""
    kind, wanted = layout.FOLLOWED.get(scan.view), scan.options.table
    found = [log for log in logs if kind in (None, log.kind)]
    if wanted is None:
        return found
    place = scan.options.metadata
    metas = load(place, scan.storage).at(None) if place else {}
    named = {id for id, meta in metas.items() if meta.called(wanted)}
    return [log for log in found if wanted == str(log.collection) or log.collection in named]
