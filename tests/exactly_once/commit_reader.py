"""Reads a directory without end, and prints what it sees whenever that changes: a line of JSON.

`python -m tests.exactly_once.commit_reader ROOT STORAGE_OPTIONS`
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import sawlog

SIDE = "side=left"
"""A directory that jobs write whose rows are partitioned."""


def generations(root: str, options: dict[str, Any]) -> dict[str, int]:
    """Rows by generation, as sawlog reads them."""
    table = sawlog.read(root, format="deephaven_log", storage_options=options, use_threads=False)
    return {str(generation): count for generation, count in sorted(Counter(table["generation"].to_pylist()).items())}


def count_files(root: str) -> dict[str, int]:
    """Visible files by job, as anybody sees them who lists a local directory; of a stream's, its directories.

    Of directories by side, one is looked at: two that are listed one after the other need not be of one moment.
    """
    side = f"{root}/{SIDE}"
    root = side if os.path.isdir(side) else root
    try:
        before = os.stat(root)
        entry_names = os.listdir(root)
        if not os.path.samestat(before, os.stat(root)):  # what was listed is the old directory, which is being deleted
            return {}
    except FileNotFoundError:  # between two looks
        return {}
    names = [name for name in entry_names if not name.startswith((".", "_"))]
    if not any(name.startswith("batch-") for name in names):
        return dict(sorted(Counter(name.split("-")[2].partition(".")[0] for name in names).items()))
    counts = {}
    for name in sorted(names):
        try:
            inside = os.listdir(f"{root}/{name}")
            counts[name] = len(os.listdir(f"{root}/{name}/{SIDE}") if SIDE in inside else inside)
        except FileNotFoundError:  # between two looks
            return {}
    return counts


def looks(root: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    while True:
        try:
            yield {"rows": generations(root, options)}
        except Exception as error:  # noqa: BLE001, it is what the reader saw
            yield {"error": f"{type(error).__name__}: {error}"}
        if "://" not in root:
            yield {"files": count_files(root)}


def main() -> None:
    root, options = sys.argv[1], json.loads(sys.argv[2])
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    last: dict[str, Any] = {}
    for number, look in enumerate(looks(root, options), 1):
        (kind, state), *_ = look.items()
        if last.get(kind) != state:
            print(json.dumps(look), flush=True)
        last[kind] = state
        if ended.is_set():
            print(json.dumps({"looks": number}), flush=True)
            return


if __name__ == "__main__":
    main()
