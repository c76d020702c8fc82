"""Replays a workload in RocksDB by rocksdict and prints what it answers; see ../workload.py for the language."""

import gc
import json
import os
import sys

import rocksdict as r

path, script = sys.argv[1:]
db = None
settings: dict = {}
families: list = []
snapshots = []


def options():
    opened = r.Options(raw_mode=True)
    opened.create_if_missing(True)
    opened.create_missing_column_families(True)
    opened.set_compression_type(getattr(r.DBCompressionType, settings["codec"])())
    opened.set_write_buffer_size(settings["buffer"])
    opened.set_level_zero_file_num_compaction_trigger(settings["files"])
    opened.set_target_file_size_base(settings["target"])
    table = r.BlockBasedOptions()
    table.set_block_size(settings["block"])
    table.set_format_version(settings["format"])
    if hasattr(r, "ChecksumType"):
        table.set_checksum_type(getattr(r.ChecksumType, settings["checksum"])())
    table.set_block_restart_interval(settings["restarts"])
    opened.set_block_based_table_factory(table)
    if settings["blobs"] and hasattr(opened, "set_enable_blob_files"):
        opened.set_enable_blob_files(True)
        opened.set_min_blob_size(settings["blobs"])
        opened.set_blob_compression_type(getattr(r.DBCompressionType, settings["blob_codec"])())
    return opened


def opened():
    return r.Rdict(path, options=options(), column_families={name: options() for name in families} or None)


def of(name):
    return db if name == "default" else db.get_column_family(name)


def values(text):
    return [bytes.fromhex(digits) for digits in text]


with open(script) as lines:
    for step in map(json.loads, lines):
        family = step.get("family", "default")
        if step["do"] == "open":
            settings, families = step["options"], ["default", *step["families"]] if step["families"] else []
            db = opened()
        elif step["do"] == "write":
            batch = r.WriteBatch(raw_mode=True)
            handle = db.get_column_family_handle(family) if families else None
            for name, *texts in step["of"]:
                key, *arguments = values(texts)
                if name == "put":
                    batch.put(key, arguments[0], handle)
                elif name == "delete":
                    batch.delete(key, handle)
                else:
                    batch.delete_range(key, arguments[0], handle)
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
