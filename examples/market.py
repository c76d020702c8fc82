"""A market-data logger: trades into Deephaven logs that roll, until its stdin ends; the count so far goes to stdout."""

from __future__ import annotations

import random
import select
import sys
import time

import pyarrow as pa

from sawlog.deephaven.log import Logger

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("time", pa.timestamp("ns", "UTC")),
        ("symbol", pa.string()),
        ("price", pa.float64()),
        ("size", pa.int32()),
    ]
)
PRICES = {"AAPL": 189.0, "IBM": 141.0, "NVDA": 118.0, "SAP": 203.0}
ROWS = 50
PAUSE = 0.02
ROLL_BYTES = 200_000


def main(directory: str) -> None:
    chance = random.Random(7)
    prices = dict(PRICES)
    count = 0
    with Logger(directory, SCHEMA, namespace="Market", table="Trades", roll_bytes=ROLL_BYTES) as log:
        while not select.select([sys.stdin], [], [], PAUSE)[0]:
            rows = []
            for number in range(count, count + ROWS):
                symbol = chance.choice(list(prices))
                prices[symbol] = round(prices[symbol] * (1 + chance.gauss(0, 0.00005)), 2)
                rows.append((number, time.time_ns(), symbol, prices[symbol], chance.randrange(1, 500)))
            columns = [
                pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
            ]
            log.write(pa.record_batch(columns, schema=SCHEMA))
            count += ROWS
            sys.stdout.write(f"{count}\n")
            sys.stdout.flush()


main(sys.argv[1])
