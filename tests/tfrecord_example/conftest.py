"""The package of examples/tfrecord, as if it were installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sawlog import lazy, recognition
from sawlog.kernels import native

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "tfrecord"
PACKAGE = "sawlog_tfrecord"


@pytest.fixture(scope="package", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which other processes find the package, too, which has a library of its own kernels."""
    place = tmp_path_factory.mktemp("tfrecord")
    shutil.copytree(
        EXAMPLE / PACKAGE, place / PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "_native", "_objects")
    )
    paths = [str(HERE / "installed"), str(place)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-m", "sawlog.kernels.build", PACKAGE], env=environment, check=True)
    sys.path[:0] = paths
    _forget()
    yield environment
    for path in paths:
        sys.path.remove(path)
    _forget()


def _forget() -> None:
    """What this process knows of the package: tests of Spark find it in the directory of the example."""
    for name in [one for one in sys.modules if one.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    for known in (
        lazy.installed,
        lazy.entry_points,
        recognition.load,
        recognition.formats,
        recognition.get_format,
        native.root,
        native.table_of,
        native.misfit,
        native.library,
    ):
        known.cache_clear()
