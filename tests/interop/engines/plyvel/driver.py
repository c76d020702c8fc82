"""Replays a workload in LevelDB and prints what it answers; see ../workload.py for the language."""

import json
import sys

import plyvel

path, script = sys.argv[1:]
options: dict = {}
db = None
snapshots = []
with open(script) as lines:
    for step in map(json.loads, lines):
        if step["do"] == "open":
            options = step["options"]
            db = plyvel.DB(path, create_if_missing=True, **options)
        elif step["do"] == "write":
            with db.write_batch(sync=step["sync"]) as batch:
                for name, key, *value in step["of"]:
                    if name == "put":
                        batch.put(bytes.fromhex(key), bytes.fromhex(value[0]))
                    else:
                        batch.delete(bytes.fromhex(key))
        elif step["do"] == "compact":
            db.compact_range(start=bytes.fromhex(step["low"]), stop=bytes.fromhex(step["high"]))
        elif step["do"] == "snapshot":
            snapshots.append(db.snapshot())
        elif step["do"] in ("release", "reopen"):
            while snapshots:
                snapshots.pop().close()
            if step["do"] == "reopen":
                db.close()
                db = plyvel.DB(path, **options)
        else:
            raise ValueError(step["do"])
for key, value in db:
    print(json.dumps(["default", key.hex(), value.hex()]))
print("open", flush=True)
sys.stdin.read()
while snapshots:
    snapshots.pop().close()
db.close()
