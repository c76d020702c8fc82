"""The package of examples/tfrecord, as if it were installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins import installed_package

FOLDER = Path(__file__).parent
EXAMPLE = FOLDER.parents[1] / "examples" / "tfrecord"
PACKAGE = "sawlog_tfrecord"


@pytest.fixture(scope="package", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which other processes find the package, too, which has a library of its own kernels."""
    place = tmp_path_factory.mktemp("tfrecord")
    shutil.copytree(
        EXAMPLE / PACKAGE, place / PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "_native", "_objects")
    )
    paths = [str(FOLDER / "installed"), str(place)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-m", "sawlog.kernels.build", PACKAGE], env=environment, check=True)
    with installed_package(PACKAGE, paths):
        yield environment
