"""`sawlog-spark`, the jar by which Spark takes Arrow batches as columns: compiled once for each installed Spark.

PySpark's own jars hold the Scala compiler, so that nothing but the Java that Spark needs anyway is needed.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.resources import files
from pathlib import Path

from sawlog.errors import OptionError, SawlogError
from sawlog.guard import install

_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_SOURCE_CLASS = "org.apache.spark.sql.execution.python.sawlog.SawlogSource"
_COMPILER = "scala.tools.nsc.Main"
_PATIENCE = 600
"""Seconds that the compiler may take, which needs about fifteen."""
_STAMP = (1980, 1, 1, 0, 0, 0)
"""Of every entry, so that the same classes make the same jar."""


def spark_jar() -> str:
    """Path of the jar for the PySpark that is installed; the first call compiles it.

    The jar is kept in `$XDG_CACHE_HOME/sawlog`, `~/.cache/sawlog` if that is not set, or where neither can be written,
    in the directory for temporary files.

    Raises:
        OptionError: When PySpark is missing, or has no jars, as the client of Spark Connect alone.
        SawlogError: When there is no Java, or the compiler fails.
    """
    version, jars = _pyspark()
    sources = _sources(version)
    key = hashlib.blake2b(version.encode(), digest_size=6)
    for name, text in sorted(sources.items()):
        key.update(f"{name}\0{text}\0".encode())
    path = _cache() / f"sawlog-spark_{version}_{key.hexdigest()}.jar"
    if not path.exists():
        _compile(sources, jars, path)
    return str(path)


def _pyspark() -> tuple[str, str]:
    """Version of PySpark, and the directory of its jars."""
    try:
        import pyspark
    except ImportError as error:
        raise OptionError(f"the jar is for PySpark, which is missing: {install('spark')} ({error})") from None
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    jars = os.path.join(home, "jars")
    if not glob.glob(os.path.join(jars, "scala-compiler*.jar")):
        raise OptionError(f"{jars}: no jars of Spark with the Scala compiler; the jar has to be made where Spark is")
    return str(pyspark.__version__), jars


def _sources(version: str) -> dict[str, str]:
    """The module's files, those for one minor version of Spark in place of those for all."""
    place = files("sawlog.spark").joinpath("scala")
    minor = ".".join(version.split(".")[:2])
    chosen = {one.name: one for one in place.iterdir() if one.name.endswith(".scala")}
    own = place.joinpath(minor)
    if own.is_dir():
        chosen |= {one.name: one for one in own.iterdir()}
    return {name: one.read_text() for name, one in chosen.items()}


def _cache() -> Path:
    """A directory of ours that can be written."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for place in (Path(home, "sawlog"), Path(tempfile.gettempdir(), f"sawlog-{os.getuid()}")):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        # What others may write would run in Spark's JVM with our rights.
        if os.access(place, os.W_OK) and place.stat().st_uid == os.getuid():
            return place
    raise SawlogError(f"no place for the jar: neither {home} nor {tempfile.gettempdir()} can be written")


def _compile(sources: dict[str, str], jars: str, path: Path) -> None:
    """Compile the module, and publish the jar as a whole."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java:
        raise SawlogError("no Java to compile the jar with; Spark needs Java 17 or newer itself")
    sys.stderr.write("sawlog: compiling sawlog-spark for this Spark, once, some 15 seconds\n")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as work:
        classes = Path(work, "classes")
        classes.mkdir()
        for name, text in sources.items():
            Path(work, name).write_text(text)
        command = [java, "-cp", f"{jars}/*", _COMPILER, "-usejavacp", "-d", str(classes)]
        command += [str(Path(work, name)) for name in sorted(sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603
        if done.returncode:
            raise SawlogError(f"the jar could not be compiled: {(done.stderr or done.stdout).strip()[-2000:]}")
        made = Path(work, path.name)
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as jar:
            for one in sorted(classes.rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(str(one.relative_to(classes)), _STAMP), one.read_bytes())
            jar.writestr(zipfile.ZipInfo(_SERVICE, _STAMP), f"{_SOURCE_CLASS}\n")
        made.replace(path)
