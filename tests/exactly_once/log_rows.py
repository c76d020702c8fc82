"""The writer process: logs rows until it is killed. `python -m tests.exactly_once.log_rows DIRECTORY NUMBER`."""

from __future__ import annotations

import random
import sys
import time

import pyarrow as pa

from sawlog.deephaven_log import Logger

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
SPAN = 10**8
"""Keys of one incarnation of the writer."""


def main(directory: str, number: int) -> None:
    chance = random.Random(number)
    key = number * SPAN
    with Logger(
        directory, SCHEMA, namespace="Proof", table="Rows", internal_partition=f"w{number}", roll_bytes=30_000
    ) as logger:
        while True:
            size = chance.randrange(1, 50)
            keys = list(range(key, key + size))
            batch = pa.record_batch([pa.array(keys), pa.array([f"row {k}" for k in keys])], schema=SCHEMA)
            if chance.random() < 0.5:
                logger.transaction(batch)
            else:
                logger.write(batch)
            key += size
            time.sleep(0.04)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
