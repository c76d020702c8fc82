"""Make the demo's log with a real LevelDB: `python examples/data/make_shop.py NEW_DIRECTORY`. Needs plyvel.

A small web shop keeps its users, carts, stock and orders in LevelDB: keys such as `order:0000042`, values in JSON. An
order is one atomic write batch. The log holds the whole history, overwritten and deleted values included.
"""

from __future__ import annotations

import json
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import plyvel

SEED = 20260301
USERS = 900
ORDERS = 3300
START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
CITIES = ["Uppsala", "Porto", "Gdańsk", "Lyon", "Graz", "Tartu", "Cork", "Bologna"]
PRODUCTS = {
    "oak-board": 24.90,
    "pine-plank": 6.50,
    "handsaw": 31.00,
    "rip-blade": 18.75,
    "chisel-set": 54.20,
    "wood-glue": 4.95,
    "clamp-30cm": 12.40,
    "beeswax": 9.80,
}


def main() -> None:
    place = Path(sys.argv[1])
    shop = random.Random(SEED)
    clock = START
    # A log is turned into tables, and deleted, when the write buffer is full.
    with plyvel.DB(str(place), create_if_missing=True, error_if_exists=True, write_buffer_size=64 << 20) as database:
        stock = dict.fromkeys(PRODUCTS, 20_000)
        users = [{"name": f"user{number:04d}", "city": shop.choice(CITIES), "orders": 0} for number in range(USERS)]
        for number, user in enumerate(users):
            database.put(b"user:%06d" % number, encode(user))
        for number in range(ORDERS):
            clock += timedelta(seconds=shop.expovariate(1 / 90))
            buyer = int(USERS * shop.random() ** 2)
            items = {name: shop.randint(1, 4) for name in shop.sample(list(PRODUCTS), shop.randint(1, 3))}
            database.put(b"cart:%06d" % buyer, encode({"items": items}))
            if shop.random() < 0.1:  # changed their mind
                database.delete(b"cart:%06d" % buyer)
                continue
            users[buyer]["orders"] += 1
            total = round(sum(PRODUCTS[name] * count for name, count in items.items()), 2)
            order = {"user": buyer, "items": items, "total": total, "status": "placed", "at": clock.isoformat()}
            with database.write_batch() as batch:
                batch.put(b"order:%07d" % number, encode(order))
                batch.put(b"user:%06d" % buyer, encode(users[buyer]))
                for name, count in items.items():
                    stock[name] -= count
                    batch.put(b"stock:" + name.encode(), b"%d" % stock[name])
                batch.delete(b"cart:%06d" % buyer)
            order["status"] = "returned" if shop.random() < 0.05 else "shipped"
            database.put(b"order:%07d" % number, encode(order))
    print(f"{place}: written by LevelDB {plyvel.__leveldb_version__} through plyvel {plyvel.__version__}")


def encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


if __name__ == "__main__":
    main()
