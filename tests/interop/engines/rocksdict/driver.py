"""Replays a workload in RocksDB by rocksdict and prints what it answers; see ../workload.py for the language."""

import gc
import json
import os
import sys

import rocksdict as r

path, script = sys.argv[1:]
db = None
chosen: dict = {}
families: list = []
snapshots = []


def options():
    made = r.Options(raw_mode=True)
    made.create_if_missing(True)
    made.create_missing_column_families(True)
    made.set_compression_type(getattr(r.DBCompressionType, chosen["codec"])())
    made.set_write_buffer_size(chosen["buffer"])
    made.set_level_zero_file_num_compaction_trigger(chosen["files"])
    made.set_target_file_size_base(chosen["target"])
    table = r.BlockBasedOptions()
    table.set_block_size(chosen["block"])
    table.set_format_version(chosen["format"])
    if hasattr(r, "ChecksumType"):
        table.set_checksum_type(getattr(r.ChecksumType, chosen["checksum"])())
    table.set_block_restart_interval(chosen["restarts"])
    made.set_block_based_table_factory(table)
    if chosen["blobs"] and hasattr(made, "set_enable_blob_files"):
        made.set_enable_blob_files(True)
        made.set_min_blob_size(chosen["blobs"])
        made.set_blob_compression_type(getattr(r.DBCompressionType, chosen["blob_codec"])())
    return made


def opened():
    return r.Rdict(path, options=options(), column_families={name: options() for name in families} or None)


def of(name):
    return db if name == "default" else db.get_column_family(name)


def values(text):
    return [bytes.fromhex(one) for one in text]


with open(script) as lines:
    for step in map(json.loads, lines):
        family = step.get("family", "default")
        if step["do"] == "open":
            chosen, families = step["options"], ["default", *step["families"]] if step["families"] else []
            db = opened()
        elif step["do"] == "write":
            batch = r.WriteBatch(raw_mode=True)
            handle = db.get_column_family_handle(family) if families else None
            for name, *texts in step["of"]:
                key, *rest = values(texts)
                if name == "put":
                    batch.put(key, rest[0], handle)
                elif name == "delete":
                    batch.delete(key, handle)
                else:
                    batch.delete_range(key, rest[0], handle)
            write = r.WriteOptions()
            write.sync = step["sync"]
            db.write(batch, write)
        elif step["do"] == "flush":
            of(family).flush()
        elif step["do"] == "compact":
            of(family).compact_range(*values([step["low"], step["high"]]), r.CompactOptions())
        elif step["do"] == "ingest":
            paths = []
            for number, table in enumerate(step["tables"]):
                paths.append(f"{path}-{number}.sst")
                writer = r.SstFileWriter(options=options())
                writer.open(paths[-1])
                for _, key, value in table["of"]:
                    writer[bytes.fromhex(key)] = bytes.fromhex(value)
                writer.finish()
            of(family).ingest_external_file(paths)
        elif step["do"] == "snapshot":
            snapshots.append(of(family).snapshot())
        elif step["do"] in ("release", "reopen"):
            snapshots.clear()
            handle = batch = None
            gc.collect()
            if step["do"] == "reopen":
                db.close()
                db = opened()
        else:
            raise ValueError(step["do"])
for name in families or ["default"]:
    for key, value in of(name).items():
        print(json.dumps([name, key.hex(), value.hex()]))
print("open", flush=True)
sys.stdin.read()
snapshots.clear()
db.close()
os._exit(0)
