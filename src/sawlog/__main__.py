"""`sawlog`, the program; `python -m sawlog` is the same."""

from __future__ import annotations

import gc
import os
import sys

from sawlog.cli import main

_YOUNG_OBJECTS = 100_000
"""Objects between two collections: a verb that imports half a million, and is over then, leaves no garbage behind."""


def program() -> int:
    """Run the command line of this process, and return its exit code.

    NumPy's OpenBLAS starts a thread per core, and each waits busily for a product of matrices, of which there is none.
    At the end, all memory goes back whole, and nobody looks for garbage in it, which takes half as long as to import
    pyarrow; but DuckDB's classes complain where nobody did.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    code = main()
    if "duckdb" not in sys.modules:
        gc.freeze()
    return code


if __name__ == "__main__":
    sys.exit(program())
