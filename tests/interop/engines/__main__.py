"""Databases that engines write now, drawn from seeds: does sawlog answer as the engine does?

python -m tests.interop.engines [ENGINE ...] [--newest] [--seeds FIRST:LAST] [--keep DIRECTORY] [--cache DIRECTORY]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.interop.engines.engines import ENGINES, NEWEST, difference


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", help="all that begin with one of these names")
    parser.add_argument("--seeds", default="0:30", help="which seeds, as first:last")
    parser.add_argument("--cache", type=Path, default=Path(".cache/engines"))
    parser.add_argument(
        "--newest", action="store_true", help="the newest release of each engine, as it is served today"
    )
    parser.add_argument("--keep", type=Path, help="where databases stay that are not answered for rightly")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split(":"))
    wrong = 0
    for engine in NEWEST if arguments.newest else ENGINES:
        if arguments.engines and not engine.name.startswith(tuple(arguments.engines)):
            continue
        command = engine.ready(arguments.cache)
        right = 0
        for seed in range(first, last):
            with tempfile.TemporaryDirectory() as directory:
                text = difference(engine, command, seed, Path(directory))
                right += not text
                if text:
                    print(f"{engine.name} --seeds {seed}:{seed + 1}: {text}", flush=True)
                    if arguments.keep:
                        shutil.copytree(directory, arguments.keep / f"{engine.name}-{seed}", dirs_exist_ok=True)
        print(f"{engine.name}: {right} of {last - first} databases right", flush=True)
        wrong += last - first - right
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
