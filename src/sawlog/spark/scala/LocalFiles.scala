package org.apache.spark.sql.execution.python.sawlog

import java.net.URI
import java.nio.file.Files

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{ChecksumFs, DelegateToFileSystem, FileStatus, FsConstants, LocalFileSystem, Path}
import org.apache.hadoop.fs.RawLocalFileSystem
import org.apache.hadoop.fs.permission.FsPermission

/** Hadoop's local file system for POSIX, without the processes that it starts where its native library is missing, as
 * with PySpark: `chmod` for every new file and folder, `readlink` for every look at one. A micro-batch that Spark
 * writes to a local disk with its checkpoint starts about twenty of them.
 */
class LocalFiles extends LocalFileSystem(new RawLocalFiles)

/** The same for Hadoop's `FileContext`, through which Spark writes checkpoints. */
class LocalFilesOfContext(uri: URI, configuration: Configuration)
  extends ChecksumFs(
    new DelegateToFileSystem(uri, new RawLocalFiles, configuration, FsConstants.LOCAL_FS_URI.getScheme, false) {
      override def getUriDefaultPort(): Int = -1

      override def isValidName(name: String): Boolean = true // the system decides
    })

private class RawLocalFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit =
    Files.setAttribute(pathToFile(path).toPath, "unix:mode", permission.toShort.toInt)

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path) else getFileStatus(path)
}
