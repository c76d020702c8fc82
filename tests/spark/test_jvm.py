"""The JVM of a local session: files without processes, as Hadoop's own, and an archive of Spark's classes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sawlog.errors import SawlogError
from sawlog.spark import jar, jvm
from sawlog.spark.jar import find_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = (0o600, 0o644, 0o755, 0o1777, 0o2750)


def test_files_are_those_of_hadoops_own_file_system(spark: SparkSession, tmp_path: Path) -> None:
    java: Any = spark._jvm
    hadoop, ours = java.org.apache.hadoop.fs, java.org.apache.spark.sql.execution.python.sawlog
    configuration = java.org.apache.hadoop.conf.Configuration()
    uri = java.java.net.URI("file:///")
    listings = []
    for name, files in (("hadoop", hadoop.LocalFileSystem()), ("ours", ours.LocalFiles())):
        files.initialize(uri, configuration)
        listings.append(looked_at(hadoop, files, tmp_path / name))
    assert listings[0] == listings[1]

    for name in ("file", "link", "dangling", "a:b"):
        looks = {
            hadoop.FileContext.getFileContext(make_item, configuration)
            .getFileLinkStatus(hadoop.Path(str(tmp_path / "ours" / name)))
            .toString()
            for make_item in (
                hadoop.AbstractFileSystem.get(uri, configuration),
                ours.LocalFilesOfContext(uri, configuration),
            )
        }
        assert len(looks) == 1, looks


def looked_at(hadoop: Any, files: Any, folder: Path) -> list[str]:
    """What a file system makes, and what it says of it."""
    from py4j.protocol import Py4JJavaError

    permission = hadoop.permission.FsPermission
    folder.mkdir()
    entries = []
    for mode in MODES:
        made_file, directory = (hadoop.Path(str(folder / f"{kind}{mode:o}")) for kind in ("file", "directory"))
        files.create(made_file).close()
        files.mkdirs(directory)
        for path in (made_file, directory):
            files.setPermission(path, permission(mode))
    files.mkdirs(hadoop.Path(str(folder / "mkdirs")), permission(0o700))
    files.create(hadoop.Path(str(folder / "file")), permission(0o640), False, 4096, 1, 1 << 20, None).close()
    (folder / "link").symlink_to("file")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "a:b").touch()
    for path in sorted(folder.iterdir()):
        entries.append(f"{path.name} {path.lstat().st_mode:o}")
    for name in ("file", "link", "dangling", "mkdirs", "gone"):
        try:
            status = files.getFileLinkStatus(hadoop.Path(str(folder / name)))
            entries.append(
                f"{name} {status.isSymlink()} {status.isDirectory()} {status.getLen()} {status.getPermission()}"
            )
        except Py4JJavaError as error:
            entries.append(f"{name} {error.java_exception.getClass().getName()}")
    return entries


SESSION = """
import sys
import sawlog.spark
spark = sawlog.spark.session("tests", {"spark.master": "local[1]", "spark.ui.enabled": "false"})
frame = spark.read.format("sawlog").load(sys.argv[1])
stream = spark.readStream.format("sawlog").schema(frame.schema).load(sys.argv[1]).writeStream
stream = stream.trigger(availableNow=True).option("checkpointLocation", sys.argv[2] + "/checkpoint")
stream.format("parquet").start(sys.argv[2] + "/rows").awaitTermination()
print(spark.read.parquet(sys.argv[2] + "/rows").count())
print(spark._jvm.System.getProperty("java.class.path"))
print(spark._jvm.org.codehaus.janino.ClassBodyEvaluator().getClass().getProtectionDomain().getCodeSource())
print(open(f"/proc/{spark._jvm.ProcessHandle.current().pid()}/maps").read())
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="looks at what a process maps")
def test_a_session_maps_the_archive_and_writes_without_processes(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM, by what it maps; Hadoop's `chmod` and `readlink`, by what is found under these names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / 'a "cache"'))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    archive = jvm.make_archive()
    assert archive.parent == tmp_path / 'a "cache"' / "sawlog"
    assert jvm.make_archive() == archive
    for name in ("chmod", "readlink"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/started\nexec {shutil.which(name)} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    log = str(database / "000003.log")
    result = run(SESSION, log, str(tmp_path / "without"))
    assert result.splitlines()[0] == "3000"
    assert str(archive) in result
    assert "_janino-" in result.splitlines()[2]
    assert "<no signer certificates>" in result.splitlines()[2]
    assert str(tmp_path / "without") not in (tmp_path / "started").read_text(), "Spark itself starts one for the jar"

    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "bin"))
    (tmp_path / "bin" / "spark-defaults.conf").write_text(f"spark.driver.extraClassPath {tmp_path}/own.jar\n")
    result = run(SESSION, log, str(tmp_path / "configured"))
    assert result.splitlines()[0] == "3000"
    assert f"{tmp_path}/own.jar" in result.splitlines()[1].split(os.pathsep)
    assert str(archive) not in result
    assert str(tmp_path / "configured") in (tmp_path / "started").read_text()


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


PREPARED = """
import sys, time
import sawlog.spark
spark = sawlog.spark.session("tests", {"spark.master": "local[1]", "spark.ui.enabled": "false"})

jvm = spark._jvm.ProcessHandle.current()

def forked():
    return {one.pid() for one in jvm.descendants().toArray() if one.parent().get().pid() != jvm.pid()}

until = time.monotonic() + 60
while not forked() and time.monotonic() < until:
    time.sleep(0.1)
prepared = forked()
print(spark.read.format("sawlog").load(sys.argv[1]).count())
print(len(prepared), len(forked() - prepared), prepared <= forked())
"""


@pytest.mark.nightly
def test_the_process_that_plans_is_there_before_it_is_asked(database: Path) -> None:
    """And the only one, next to the one that reads."""
    assert run(PREPARED, str(database / "000003.log")) == "3000\n1 1 True\n"


WITHOUT_PROCESS = """
import sys
import sawlog.spark
from sawlog.spark.errors import explain
spark = sawlog.spark.session("tests", {"spark.master": "local[1]", "spark.ui.enabled": "false"})
try:
    spark.read.format("sawlog").load(sys.argv[1])
except Exception as error:
    print(explain(error))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("exit 3", "Nonzero exit value: 3"),
        ('case "$*" in *sawlog.spark.daemon*) exit 3;; esac', "port number from sawlog.spark.daemon"),
    ],
    ids=["always", "forking"],
)
def test_a_session_starts_though_python_does_not(
    fails: str, message: str, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader says why."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n{fails}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    assert message in run(WITHOUT_PROCESS, str(database / "000003.log"))


AFTER_ANOTHER = """
import sys
from pyspark.sql import SparkSession
import sawlog.spark
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate().stop()
spark = sawlog.spark.session("tests", {"spark.master": "local[1]", "spark.ui.enabled": "false"})
print(spark.read.format("sawlog").load(sys.argv[1]).count())
"""


@pytest.mark.nightly
def test_a_session_works_in_a_jvm_that_lacks_the_jar(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark leaves it running when the session before ends."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert run(AFTER_ANOTHER, str(database / "000003.log")) == "3000\n"


def test_spark_s_own_settings_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java makes no archive where a folder is on the class path, and settings may name other classes for files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "core-site.xml").touch()
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        with monkeypatch.context() as patch:
            patch.setenv(name, str(tmp_path))
            assert jvm.launch_settings(None) == ({}, "")
            with pytest.raises(SawlogError, match="settings is on the class path"):
                jvm.make_archive()


def test_an_archive_of_another_size_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM would crash on one that ends early."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "make_staged_name", lambda final, marker: str(tmp_path / "staged"))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: make_archive(tmp_path / "staged"))
    archive = jvm.make_archive()
    assert f'"-XX:SharedArchiveFile={archive}"' in jvm.launch_settings(None)[0]["SPARK_SUBMIT_OPTS"]
    copies = [Path(path) for path in jvm.launch_settings(None)[1].split(os.pathsep)]
    assert [path.name.rpartition("_")[2].rpartition("-")[0] for path in copies] == ["commons-compiler", "janino"]
    for copy in copies:
        signed = Path(find_spark()[1], copy.name.rpartition("_")[2])
        with zipfile.ZipFile(signed) as signed_zip, zipfile.ZipFile(copy) as copy_zip:
            names = [name for name in signed_zip.namelist() if not name.startswith("META-INF/DUMMY.")]
            assert len(names) < len(signed_zip.namelist())
            assert [(name, signed_zip.read(name)) for name in names] == [
                (name, copy_zip.read(name)) for name in copy_zip.namelist()
            ]
    archive.write_bytes(b"short")
    assert jvm.launch_settings(None)[1] == ""
    assert "SharedArchiveFile" not in jvm.launch_settings(None)[0]["SPARK_SUBMIT_OPTS"]
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 1, "", "no memory"))
    with pytest.raises(SawlogError, match="could not be made: no memory"):
        jvm.make_archive()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 0, "", ""))
    (tmp_path / "staged").unlink(missing_ok=True)
    with pytest.raises(SawlogError, match="could not be made: Java has written none"):
        jvm.make_archive()


def test_what_takes_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session without the jar, or the archive, is slower; it begins all the same."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "ARCHIVE_SECONDS", 0)
    with pytest.raises(SawlogError, match="could not be made: it takes longer than 0 s"):
        jvm.make_archive()
    monkeypatch.setattr(jar, "COMPILER_SECONDS", 0)
    with pytest.raises(SawlogError, match="the jar could not be compiled: it takes longer than 0 s"):
        jar.make(tmp_path)


def make_archive(path: Path) -> subprocess.CompletedProcess[str]:
    path.write_bytes(b"an archive")
    return subprocess.CompletedProcess((), 0, "", "")
