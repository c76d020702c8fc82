"""The writer process: logs rows until it is killed.

`python -m tests.exactly_once.log_rows DIRECTORY NUMBER NAME SECONDS`: the clock is so many seconds off.
"""

from __future__ import annotations

import random
import sys
import time

import pyarrow as pa

from sawlog.deephaven.log import Logger

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
SPAN = 10**8
"""Keys of one incarnation of the writer."""


def make_rows(key: int, count: int) -> pa.RecordBatch:
    """Rows of consecutive keys."""
    keys = list(range(key, key + count))
    return pa.record_batch([pa.array(keys), pa.array([f"row {k}" for k in keys])], schema=SCHEMA)


def main(directory: str, number: int, name: str, skew: float) -> None:
    chance = random.Random(number)
    key = number * SPAN
    with Logger(
        directory,
        SCHEMA,
        namespace="Proof",
        table="Rows",
        internal_partition=name,
        roll_bytes=30_000,
        clock=lambda: time.time() + skew,
    ) as logger:
        while True:
            batch = make_rows(key, chance.randrange(1, 50))
            if chance.random() < 0.5:
                logger.transaction(batch)
            else:
                logger.write(batch)
            key += batch.num_rows
            time.sleep(0.04)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
