"""The importing process, until it is killed or told to finish: `python -m tests.exactly_once.import_trades ROOT MODE`.

`follow` follows the logs, `nightly` imports and merges again and again, both without Spark; `spark` does so with it.
What they have done is appended to `ROOT/done`. When the file `ROOT/finish` is there, all that the logs hold is
imported, merged as well by those that merge, and the process ends.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from sawlog.deephaven.ingest.spark import follow_logs, import_logs, nightly
from sawlog.errors import SawlogError

LATER = "2999-01-01"


def main(root: str, mode: str) -> None:
    logs, db, spark = os.path.join(root, "logs"), os.path.join(root, "db"), None
    finishes = os.path.join(root, "finish")
    if mode == "spark":
        from tests.exactly_once.run_queries import session

        spark = session()
    if mode == "follow":
        for look in follow_logs(None, logs, db, seconds=0.1, max_bytes=200_000):
            tell(root, look.done.rows, *look.errors)
            if os.path.exists(finishes):
                break
    while mode != "follow" and not os.path.exists(finishes):
        once(root, spark, logs, db, merges=True)
    assert once(root, spark, logs, db, merges=mode != "follow")


def once(root: str, spark: Any, logs: str, db: str, *, merges: bool) -> bool:
    """Import, and merge if wanted; whether nothing went wrong."""
    try:
        errors = []
        tell(root, import_logs(spark, logs, db, location_bytes=100_000).rows)
        if merges:
            errors = [failure.error for failure in nightly(spark, db, before=LATER, group=["Sym"]).failed]
    except (SawlogError, OSError) as error:
        errors = [str(error)]
    tell(root, 0, *errors)
    return not errors


def tell(root: str, rows: int, *errors: str) -> None:
    """Say what was done; a disk that is full takes no such line either."""
    with suppress(OSError), open(os.path.join(root, "done"), "a", encoding="utf-8") as file:
        file.write(f"{rows}\n")
    for error in errors:
        with suppress(OSError):
            print(error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
