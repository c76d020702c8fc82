"""The writer process: logs rows of two tables until it is killed. `python -m tests.exactly_once.log_trades DIR NUMBER`.

Every incarnation goes on with the same partitions, in logs of its own, as a process does after a reboot.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import ExitStack

import pyarrow as pa

from sawlog.deephaven.log import Logger
from tests.exactly_once.log_rows import SPAN

SCHEMA = pa.schema([("k", pa.int64()), ("Sym", pa.string()), ("px", pa.float64())])
NAMESPACE, TABLES, PARTITIONS, DATE = "Proof", ("Quotes", "Trades"), ("vm1", "vm2"), "2024-03-01"


def main(directory: str, number: int) -> None:
    chance = random.Random(number)
    key = number * SPAN
    with ExitStack() as stack:
        loggers = [
            stack.enter_context(
                Logger(
                    directory,
                    SCHEMA,
                    namespace=NAMESPACE,
                    table=table,
                    internal_partition=internal,
                    column_partition=DATE,
                    roll_bytes=60_000,
                )
            )
            for table in TABLES
            for internal in PARTITIONS
        ]
        while True:
            size = chance.randrange(1, 200)
            keys = list(range(key, key + size))
            columns = {"k": keys, "Sym": [f"S{k % 7}" for k in keys], "px": [k / 8 for k in keys]}
            logger, batch = chance.choice(loggers), pa.record_batch(columns, schema=SCHEMA)
            (logger.transaction if chance.random() < 0.5 else logger.write)(batch)
            key += size
            time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
