"""Drives an embedded Milvus: one JSON command per line in, one JSON answer per line out.

Runs in an environment with the packages `milvus` and `pymilvus`, inside a network namespace of its own whose loopback
is up, because the server listens on all addresses. Usage: milvus_driver.py DATA_DIRECTORY
"""

import base64
import json
import logging
import sys
import time
import urllib.request
from http.client import HTTPException

from milvus import MilvusServer
from pymilvus import Collection, CollectionSchema, MilvusException, connections, utility
from pymilvus.grpc_gen import common_pb2, milvus_pb2

logging.disable(logging.CRITICAL)


def make_jsonable(value):
    """JSON for what a query gives: bytes as base64, NumPy numbers as numbers."""
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: make_jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) or type(value).__name__ == "RepeatedScalarContainer":
        return [make_jsonable(item) for item in value]
    return value.item() if hasattr(value, "item") else value


class Driver:
    def create(self, name, schema, shards=1):
        Collection(name, CollectionSchema.construct_from_dict(schema), num_shards=shards)

    def partition(self, name, partition):
        Collection(name).create_partition(partition)

    def insert(self, name, rows, partition=None):
        for row in rows:
            for key, value in row.items():
                if isinstance(value, dict) and set(value) == {"b64"}:
                    row[key] = base64.b64decode(value["b64"])
        result = Collection(name).insert(rows, partition_name=partition)
        return {"timestamp": result.timestamp, "count": result.insert_count}

    def upsert(self, name, columns):
        return {"timestamp": Collection(name).upsert(columns).timestamp}

    def delete(self, name, expression):
        return {"timestamp": Collection(name).delete(expression).timestamp}

    def flush(self, name):
        Collection(name).flush(timeout=180)

    def index(self, name, field, params):
        Collection(name).create_index(field, params)

    def load(self, name):
        Collection(name).load(timeout=180)

    def query(self, name, fields, expression, limit=16384):
        rows = Collection(name).query(expression, output_fields=fields, consistency_level="Strong", limit=limit)
        return [make_jsonable(row) for row in rows]

    def backup_import(self, name, inserts, deltas):
        """Bulk insert's backup option, which takes two partition directories. The client's helper hides it."""
        handler = connections._fetch_handler("default")
        request = milvus_pb2.ImportRequest(
            collection_name=name,
            partition_name="_default",
            files=[inserts, deltas],
            options=[common_pb2.KeyValuePair(key="backup", value="true")],
        )
        answer = handler._stub.Import(request, timeout=60)
        if not answer.tasks:
            return {"failed": answer.status.reason}
        task = answer.tasks[0]
        for _ in range(240):
            state = utility.get_bulk_insert_state(task)
            if state.state_name == "Failed":
                return {"failed": state.failed_reason}
            if state.state_name == "Completed":
                return {"rows": state.row_count}
            time.sleep(0.5)
        return {"failed": f"no end after two minutes: {state.state_name}"}

    def etcd(self):
        """All keys of the embedded etcd, values in base64, through its JSON gateway."""
        whole_range = {"key": base64.b64encode(b"\0").decode(), "range_end": base64.b64encode(b"\0").decode()}
        for port in ports():
            try:
                request = urllib.request.Request(
                    f"http://127.0.0.1:{port}/v3/kv/range", json.dumps(whole_range).encode()
                )
                answer = json.load(urllib.request.urlopen(request, timeout=5))
            except (OSError, ValueError, HTTPException):  # not etcd's port
                continue
            if "kvs" in answer:
                return answer
        raise RuntimeError("no etcd gateway answers")


def ports():
    port_numbers = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            for line in list(lines)[1:]:
                parts = line.split()
                if parts[3] == "0A":
                    port_numbers.add(int(parts[1].rsplit(":", 1)[1], 16))
    return sorted(port_numbers, key=lambda port: port != 2379)


def main():
    answers, sys.stdout = sys.stdout, sys.stderr
    server = MilvusServer(wait_for_started=True)
    server.set_base_dir(sys.argv[1])
    server.config.set("dataCoord.enableCompaction", "false")
    server.listen_port = 19530
    with server:
        connections.connect("default", host="127.0.0.1", port=server.listen_port)
        driver = Driver()
        print(json.dumps({"ok": {"ports": ports()}}), file=answers, flush=True)
        for line in sys.stdin:
            call = json.loads(line)
            try:
                result = getattr(driver, call.pop("do"))(**call)
                print(json.dumps({"ok": result}), file=answers, flush=True)
            except (MilvusException, RuntimeError) as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)


main()
