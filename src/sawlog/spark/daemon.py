"""Spark's daemon, which forks Python workers, with the PySpark that is installed in place of `pyspark.zip`.

    python -m sawlog.spark.daemon [MODULE OF THE WORKERS]

Spark puts the zip first on the path of its Python processes. It holds no bytecode: whatever starts from it compiles
PySpark first, which takes 0.4 seconds of a processor. What every worker needs of sawlog is loaded here, once, and not
by each worker.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PACKAGES = ("pyspark", "py4j")


def main() -> None:
    """Serve until Spark ends the process."""
    sys.path[:] = strip_zips(sys.path)
    from pyspark import daemon

    preload(sys.argv[1:2])
    daemon.worker = silence_worker(daemon.worker)
    daemon.manager()


def preload(workers: Iterable[str]) -> None:
    """Load what workers need. No thread may have been started when they are forked: of Arrow's allocators, one would.

    Args:
        workers: The modules of workers other than Spark's own.
    """
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in ("sawlog.spark.reader", "pyspark.worker", *workers):
        with contextlib.suppress(ImportError):  # the worker's error is reported
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def silence_worker(worker: Callable[..., int]) -> Callable[..., int]:
    """Return a worker that ends without a traceback when Spark closes the connection, as at the end of a session."""

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except (BrokenPipeError, ConnectionResetError, EOFError):
            return 1

    return run


def strip_zips(path: Iterable[str]) -> list[str]:
    """Return a module path without the zips of packages that are installed in the same version."""
    entries = list(path)
    folders = [entry for entry in entries if os.path.isdir(entry)]
    return [entry for entry in entries if not (zipfile.is_zipfile(entry) and _is_installed(entry, folders))]


def _is_installed(archive: str, folders: Iterable[str]) -> bool:
    """Return whether folders have the package of an archive, as far as its version says."""
    with zipfile.ZipFile(archive) as opened:
        for name in PACKAGES:
            version = f"{name}/version.py"
            if version in opened.NameToInfo:
                installed_files = [file for file in (Path(folder, version) for folder in folders) if file.exists()]
                return bool(installed_files) and installed_files[0].read_bytes() == opened.read(version)
    return False


if __name__ == "__main__":
    main()
