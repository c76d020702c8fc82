"""Faster start and writes of a local session's JVM: an archive of Spark's classes, the jar's file system.

The archive is Java's class data sharing. A JVM maps it instead of reading, verifying and linking Spark's classes again,
which is half of a session's start and much of its first query. It is made once for a Java and a Spark; where it does
not fit, the JVM leaves it out. Of signed jars, Java archives no class. Copies without signatures of Janino's, which
compiles what Spark generates, are first on the class path; none of others, for a Java may refuse unsigned providers.

    python -m sawlog.spark.jvm FOLDER    a session that does there what sessions do, for an archive of what it loads
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import sawlog
from sawlog.errors import SawlogError
from sawlog.spark.jar import PACKAGE, find_cache, find_java, find_spark, locate_jar, run_program
from sawlog.storage.staging import make_staged_name, sweep, sync_directory, sync_file

_QUIET_FLAGS = "-Xlog:disable -Xlog:all=error:stderr"
"""Else the JVM warns of every class that an archive cannot hold, and of an archive that does not fit."""
_LOCAL_FILES = (
    f"-Dspark.hadoop.fs.file.impl={PACKAGE}.LocalFiles"
    f" -Dspark.hadoop.fs.AbstractFileSystem.file.impl={PACKAGE}.LocalFilesOfContext"
)
"""As properties of a JVM, for all of its sessions and no other JVM's, which may lack the jar."""
_SUFFIX = ".jsa"
_SIGNATURE = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)", re.IGNORECASE)
CLASS_PATH = "spark.driver.extraClassPath"
"""Spark's setting for what is first on the class path of the JVM."""
ARCHIVE_SECONDS = 600
"""Seconds that making an archive may take, which needs about forty."""
_FAILURE = "an archive of Spark's classes could not be made"


def launch_settings(jar: str | None) -> tuple[dict[str, str], str]:
    """Return variables for a local session's JVM, and the head of its class path, if Spark's settings have none."""
    if os.name != "posix" or _is_configured() or os.pathsep in str(jar):
        return {}, ""
    first = ""
    options, classes = [os.environ.get("SPARK_SUBMIT_OPTS", "")], [os.environ.get("SPARK_DIST_CLASSPATH", "")]
    if jar is not None:
        options.append(_LOCAL_FILES)
        classes.append(jar)  # Spark needs files before it looks at `spark.jars`
    with contextlib.suppress(SawlogError):  # no Java, which Spark says, or no place for what is kept
        place = _choose_place()
        if archive := _find_archive(place):
            options += [
                _QUIET_FLAGS,
                "-Xshare:auto",
                "-XX:+VerifySharedSpaces",
                _quote(f"-XX:SharedArchiveFile={archive}"),
            ]
            first = _join_copies(place)
    variables = {
        "SPARK_SUBMIT_OPTS": " ".join(filter(None, options)),
        "SPARK_DIST_CLASSPATH": os.pathsep.join(filter(None, classes)),
    }
    return variables, first


def make_archive() -> Path:
    """Return the archive for the Java and the Spark that are installed, made if there is none: some 180 MB.

    Raises:
        OptionError: When PySpark is missing.
        SawlogError: When Spark's own configuration is on the class path, which an archive cannot hold; when there is no
            Java, or it does not make the archive.
    """
    place = _choose_place()
    archive = _find_archive(place)
    if archive is not None:
        return archive
    if _is_configured():
        raise SawlogError("Java makes no archive of Spark's classes where a folder of settings is on the class path")
    sys.stderr.write("sawlog: making an archive of the classes that Spark loads, once, some 40 seconds\n")
    sweep(str(place))
    _copy_signed(place)
    staged = make_staged_name(str(place), "")
    options = f"{_QUIET_FLAGS} {_quote(f'-XX:ArchiveClassesAtExit={staged}')}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__, folder]
        variables = {**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable}
        run_program(command, ARCHIVE_SECONDS, _FAILURE, variables)
    if not os.path.exists(staged):
        raise SawlogError(f"{_FAILURE}: Java has written none")
    archive_path = Path(f"{place}_{os.path.getsize(staged)}{_SUFFIX}")
    sync_file(staged)
    os.replace(staged, archive_path)
    sync_directory(str(archive_path.parent))
    return archive_path


def _copy_signed(place: Path) -> None:
    """Copy Janino's jars without their signatures, if they have any and that is not done."""
    jars = Path(find_spark()[1])
    for path in (*jars.glob("commons-compiler-*.jar"), *jars.glob("janino-*.jar")):
        copy = Path(f"{place}_{path.name}")
        with zipfile.ZipFile(path) as jar:
            if copy.exists() or not any(map(_SIGNATURE.fullmatch, jar.namelist())):
                continue
            staged = make_staged_name(str(place), "")
            with zipfile.ZipFile(staged, "w") as unsigned:
                for entry in jar.infolist():
                    if not _SIGNATURE.fullmatch(entry.filename):
                        unsigned.writestr(entry, jar.read(entry))
        sync_file(staged)
        os.replace(staged, copy)


def _join_copies(place: Path) -> str:
    """Return the copies, as a class path."""
    return os.pathsep.join(sorted(map(str, place.parent.glob(f"{place.name}_*.jar"))))


def _quote(option: str) -> str:
    """Return an option as Spark's launcher reads one, in which there may be spaces."""
    return '"' + option.replace("\\", r"\\").replace('"', r"\"") + '"'


def _find_archive(place: Path) -> Path | None:
    """Return the archive, unless it is shorter or longer than it was made: of a short one, the JVM would crash."""
    for path in place.parent.glob(f"{place.name}_*{_SUFFIX}"):
        if path.name == f"{place.name}_{path.stat().st_size}{_SUFFIX}":
            return path
    return None


def _choose_place() -> Path:
    """Return the path of the archive for the Java and the Spark that are installed, but for its size and suffix."""
    version, jars = find_spark()
    files = [Path(os.path.realpath(find_java())), *sorted(Path(jars).iterdir())]
    states = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return find_cache() / f"spark-classes_{version}_{hashlib.sha256(repr(states).encode()).hexdigest()[:12]}"


def _is_configured() -> bool:
    """Return whether Spark's or Hadoop's own settings are on the class path."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.path.dirname(find_spark()[1]), "conf")
    named = any(os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))
    return named or (os.path.isdir(folder) and bool(os.listdir(folder)))


def _run_session(folder: Path) -> None:
    """Read a log, as a batch and as a stream, count, group, write Parquet and read it, and see the JVM end."""
    from pyspark.sql import SparkSession

    log = str(folder / "000003.log")
    sawlog.write(pa.table({"record": pa.array([b"%d" % (n % 10) for n in range(1000)])}), log, format="leveldb_log")
    settings = {
        "spark.jars": locate_jar(),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        CLASS_PATH: _join_copies(_choose_place()),
    }
    builder: Any = SparkSession.builder
    spark = builder.master("local[2]").config(map=settings).getOrCreate()
    frame = spark.read.format("sawlog").load(log)
    frame.groupBy("record").count().orderBy("count").collect()
    frame.write.parquet(str(folder / "batch"))
    spark.read.parquet(str(folder / "batch")).filter("record > '3'").count()
    stream = spark.readStream.format("sawlog").schema(frame.schema).load(log).writeStream.trigger(availableNow=True)
    stream = stream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    stream.start(str(folder / "stream")).awaitTermination()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    _run_session(Path(sys.argv[1]))
