"""Make the jars that wheels carry, one for each supported Spark, twice: the bytes have to be equal.

    python tools/jars.py          all of them
    python tools/jars.py 4.2.0    that of one version

Each Spark is fetched from PyPI once, into `.cache/`; the compiler and its class path are among its own jars.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CARRIED = ROOT / "src" / "sawlog" / "_jars"
SPARKS = ("4.0.1", "4.1.1", "4.2.0", "4.3.0")
"""Of each supported minor version, the one whose class path a jar is compiled with."""


def main() -> None:
    for version in sys.argv[1:] or SPARKS:
        home = spark(version)
        with tempfile.TemporaryDirectory() as first_folder, tempfile.TemporaryDirectory() as second_folder:
            first, second = (make(home, Path(folder)) for folder in (first_folder, second_folder))
            assert first.read_bytes() == second.read_bytes(), f"{version}: the same sources made different jars"
            CARRIED.mkdir(exist_ok=True)
            for path in (first, first.with_suffix(".json")):
                shutil.copyfile(path, CARRIED / path.name)
            print(f"{CARRIED / first.name}: {first.stat().st_size:,} bytes, twice the same, made with Spark {version}")


def spark(version: str) -> Path:
    """The home of a Spark."""
    place = ROOT / ".cache" / f"pyspark-{version}"
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=place.parent) as work:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*command, "--target", work + "/whole", f"pyspark=={version}"], check=True)
            os.rename(work + "/whole", place)
    return place / "pyspark"


def make(home: Path, folder: Path) -> Path:
    """The jar in a folder."""
    environment = {**os.environ, "SPARK_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "sawlog.spark.jar", str(folder)]
    return Path(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip())


if __name__ == "__main__":
    main()
