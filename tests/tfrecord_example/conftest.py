"""The package of examples/tfrecord, as if it were installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sawlog import format

HERE = Path(__file__).parent
PATHS = [str(HERE / "installed"), str(HERE.parents[1] / "examples" / "tfrecord")]


@pytest.fixture(scope="package", autouse=True)
def installed() -> Iterator[dict[str, str]]:
    """The environment in which other processes find the package, too."""
    sys.path[:0] = PATHS
    _forget()
    yield {**os.environ, "PYTHONPATH": os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])}
    for path in PATHS:
        sys.path.remove(path)
    _forget()


def _forget() -> None:
    for known in (format.formats, format.get_format):
        known.cache_clear()
