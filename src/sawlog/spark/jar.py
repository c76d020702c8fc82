"""`sawlog-spark`, the jar by which Spark takes Arrow batches as columns: carried by wheels, or compiled on first use.

    python -m sawlog.spark.jar FOLDER    compile it for the Spark that is installed into a folder, as wheels carry it

One is made for each version of Spark, whose internal classes it calls. PySpark's own jars hold the Scala compiler, so
that nothing but the Java that Spark needs anyway is needed.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from sawlog.errors import OptionError, SawlogError
from sawlog.guard import install

CARRIED = Path(__file__).parent.parent / "_jars"
"""Where wheels carry jars, each next to a JSON object with its SHA-256, `jar`, and that of its `sources`."""

_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
PACKAGE = "org.apache.spark.sql.execution.python.sawlog"
"""Of the jar's classes."""
MANIFEST = "META-INF/MANIFEST.MF"
"""Says for which Spark the jar was made."""
_COMPILER = "scala.tools.nsc.Main"
COMPILER_SECONDS = 600
"""Seconds that the compiler may take, which needs about fifteen."""
_STAMP = (1980, 1, 1, 0, 0, 0)
"""Of every entry, so that the same classes make the same jar."""


def locate_jar() -> str:
    """Return the path of the jar for the Spark that is installed: carried by sawlog, or compiled by the first call.

    The compiled one is kept in `$XDG_CACHE_HOME/sawlog`, `~/.cache/sawlog` if that is not set, or where neither can be
    written, in the directory for temporary files.

    Raises:
        OptionError: When PySpark is missing, or has no jars, as with the client of Spark Connect only.
        SawlogError: When there is no Java, or the compiler fails; when the carried jar is not the one that was made.
    """
    version, jars = find_spark()
    sources = _read_sources(version)
    carried = _find_carried_jar(version, sources)
    if carried is not None:
        return carried
    path = find_cache() / f"sawlog-spark_{version}_{_compute_digest(sources)[:12]}.jar"
    if not path.exists():
        sys.stderr.write("sawlog: compiling sawlog-spark for this Spark, once, some 15 seconds\n")
        compile_jar(sources, version, jars, path)
    return str(path)


def make(folder: Path) -> Path:
    """Compile the jar for the Spark that is installed into a folder, as wheels carry it.

    The same sources and the same Spark make the same bytes.

    Raises:
        OptionError: When there is no Spark with a Scala compiler.
        SawlogError: When there is no Java, or the compiler fails.
    """
    version, jars = find_spark()
    sources = _read_sources(version)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"sawlog-spark_{version}.jar"
    compile_jar(sources, version, jars, path)
    digests = {"jar": hashlib.sha256(path.read_bytes()).hexdigest(), "sources": _compute_digest(sources)}
    path.with_suffix(".json").write_text(json.dumps(digests, indent=2) + "\n")
    return path


def _find_carried_jar(version: str, sources: dict[str, str]) -> str | None:
    """Return the jar that sawlog carries for a version of Spark, if it was made from these sources."""
    path = CARRIED / f"sawlog-spark_{version}.jar"
    try:
        digests = json.loads(path.with_suffix(".json").read_text())
    except FileNotFoundError:
        return None
    if digests["sources"] != _compute_digest(sources):
        return None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != digests["jar"]:
        raise SawlogError(f"{path}: expected a jar with SHA-256 {digests['jar']}, found {digest}; install again")
    return str(path)


def find_spark() -> tuple[str, str]:
    """Return the version of the Spark that is installed, and the directory of its jars."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise OptionError("the jar is for PySpark, which is missing: " + install("spark"))
        home = os.path.dirname(spec.origin)
    jars = os.path.join(home, "jars")
    core = glob.glob(os.path.join(jars, "spark-core_*.jar"))
    if not core or not glob.glob(os.path.join(jars, "scala-compiler*.jar")):
        raise OptionError(f"{jars}: no jars of Spark with the Scala compiler; the jar has to be made where Spark is")
    return os.path.basename(core[0]).removesuffix(".jar").partition("-core_")[2].partition("-")[2], jars


def _compute_digest(sources: dict[str, str]) -> str:
    return hashlib.sha256("".join(f"{name}\0{text}\0" for name, text in sorted(sources.items())).encode()).hexdigest()


def _read_sources(version: str) -> dict[str, str]:
    """Return the module's files, those for one minor version of Spark in place of those for all."""
    place = files("sawlog.spark").joinpath("scala")
    minor = ".".join(version.split(".")[:2])
    source_files = {entry.name: entry for entry in place.iterdir() if entry.name.endswith(".scala")}
    version_folder = place.joinpath(minor)
    if version_folder.is_dir():
        source_files |= {entry.name: entry for entry in version_folder.iterdir()}
    return {name: file.read_text() for name, file in source_files.items()}


def find_java() -> str:
    """Return the Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if not java:
        raise SawlogError(f"there is no Java{f' in JAVA_HOME, {home}' if home else ''}; Spark needs Java 17 or newer")
    return java


def find_cache() -> Path:
    """Return a directory of ours that can be written, for what is made once."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for place in (Path(home, "sawlog"), Path(tempfile.gettempdir(), f"sawlog-{os.getuid()}")):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        # What others may write would run in Spark's JVM with our rights.
        if os.access(place, os.W_OK) and place.stat().st_uid == os.getuid():
            return place
    raise SawlogError(f"no place to keep files: neither {home} nor {tempfile.gettempdir()} can be written")


def run_program(command: list[str], seconds: int, failure: str, variables: Mapping[str, str] | None = None) -> None:
    """Run a program to its end.

    Raises:
        SawlogError: When it fails, or takes more seconds; begins with `failure`.
    """
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=seconds, check=False, env=variables
        )
    except subprocess.TimeoutExpired:
        raise SawlogError(f"{failure}: it takes longer than {seconds} s") from None
    if done.returncode:
        raise SawlogError(f"{failure}: {(done.stderr or done.stdout).strip()[-2000:]}")


def compile_jar(sources: dict[str, str], version: str, jars: str, path: Path) -> None:
    """Compile the module for a version of Spark, and publish the jar as a whole."""
    java = find_java()
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as work:
        classes = Path(work, "classes")
        classes.mkdir()
        for name, text in sources.items():
            Path(work, name).write_text(text)
        command = [java, "-cp", f"{jars}/*", _COMPILER, "-usejavacp", "-d", str(classes)]
        command += [str(Path(work, name)) for name in sorted(sources)]
        run_program(command, COMPILER_SECONDS, "the jar could not be compiled")
        unpublished_jar = Path(work, path.name)
        # Stored, for what compresses differs from one build of Python to the next; wheels compress it.
        with zipfile.ZipFile(unpublished_jar, "w") as jar:
            manifest = f"Manifest-Version: 1.0\r\nImplementation-Version: {version}\r\n\r\n"
            jar.writestr(zipfile.ZipInfo(MANIFEST, _STAMP), manifest)
            for class_file in sorted(classes.rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(str(class_file.relative_to(classes)), _STAMP), class_file.read_bytes())
            jar.writestr(zipfile.ZipInfo(_SERVICE, _STAMP), f"{PACKAGE}.SawlogSource\n")
        unpublished_jar.replace(path)


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))  # noqa: T201
