"""The heavy run: `python -m tests.exactly_once --kills 200`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.exactly_once.harness import Harness
from tests.exactly_once.run_queries import SINKS
from tests.exactly_once.trees import Trees


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between kills, on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sinks", nargs="*", default=list(SINKS), choices=list(SINKS))
    parser.add_argument("--trees", action="store_true", help="import and merge trees of column files, not streams")
    parser.add_argument("--spark", type=float, default=0.2, help="of the importers of trees, those on Spark")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="exactly-once-"))
    print(f"everything is kept in {directory} until it is proven", file=sys.stderr)
    harness = (
        Trees(directory, arguments.spark, arguments.seed)
        if arguments.trees
        else Harness(directory, arguments.sinks, arguments.seed)
    )
    tally = harness.run(arguments.kills, arguments.pause)
    print(tally)
    if tally.exact:
        shutil.rmtree(directory)
    return 0 if tally.exact else 1


if __name__ == "__main__":
    sys.exit(main())
