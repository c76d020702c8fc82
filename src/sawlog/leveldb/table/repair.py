"""A table rebuilt from the intact blocks of a damaged one."""

from __future__ import annotations

import warnings
from dataclasses import replace

from sawlog.damage import DamageWarning, Findings
from sawlog.leveldb.table.columns import SCHEMAS
from sawlog.leveldb.table.options import ReadOptions, WriteOptions
from sawlog.leveldb.table.rows import TableRange, table_map
from sawlog.leveldb.table.writer import TableWriter
from sawlog.scan import Projection, Scan
from sawlog.storage import File, Storage


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> None:
    """Write what can be read of a table to a new one, in the same dialect. See `Format.repair`."""
    options = replace(options, keys="internal") if options.keys == "stamped" else options
    schema = SCHEMAS[options.keys]
    scan = Scan(options=options, on_damage="skip", storage=storage)
    fragment = TableRange(scan, Projection.of(schema, scan), file.path, file.size, file, 0, file.size, pruned=False)
    table = table_map(file, scan)
    rocksdb = not file.name.endswith(".ldb") if table is None else table.footer.dialect != "leveldb"
    findings = Findings("skip")
    written = WriteOptions(dialect="rocksdb" if rocksdb else "leveldb")
    with warnings.catch_warnings(), TableWriter(target, schema, written, storage) as writer:
        warnings.simplefilter("ignore", DamageWarning)
        for batch in fragment.decode(schema, findings):
            writer.write(batch)
