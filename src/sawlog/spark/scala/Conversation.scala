package org.apache.spark.sql.execution.python.sawlog

import java.io.{BufferedInputStream, BufferedOutputStream, DataInputStream, DataOutputStream, IOException}
import java.nio.channels.{Channels, ClosedByInterruptException}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.{JobArtifactSet, SparkEnv}
import org.apache.spark.api.python.{PythonUtils, PythonWorker, PythonWorkerUtils, SimplePythonFunction, SpecialLengths}
import org.apache.spark.api.python.PythonFunction
import org.apache.spark.internal.config.BUFFER_SIZE
import org.apache.spark.internal.config.Python.PYTHON_AUTH_SOCKET_TIMEOUT
import org.apache.spark.sql.internal.SQLConf
import org.json4s.JObject
import org.json4s.jackson.JsonMethods.compact

/** What a Python process has answered in place of an answer. */
class Refusal(message: String) extends RuntimeException(message)

/** A Python process that is asked one question after the other; see `sawlog/spark/planner.py`. */
class Conversation private (private val env: SparkEnv, private val settings: Map[String, String]) {
  import Conversation._

  private val worker: PythonWorker = env.createPythonWorker(python.pythonExec, Module, Daemon, settings, true)._1
  worker.selector.close() // questions and answers take turns: nothing is gained by channels that do not block
  worker.channel.configureBlocking(true)
  private val in = new DataInputStream(new BufferedInputStream(Channels.newInputStream(worker.channel)))
  private val out = new DataOutputStream(new BufferedOutputStream(Channels.newOutputStream(worker.channel)))
  PythonWorkerUtils.writePythonVersion(python.pythonVer, out)
  PythonWorkerUtils.writeSparkFiles(artifacts, python.pythonIncludes.asScala.toSet, out)
  private var open = true

  /** The blocks of the answer. After anything else the process is gone. */
  def ask(verb: String, asked: JObject): Array[Array[Byte]] = synchronized {
    try {
      PythonWorkerUtils.writeUTF(verb, out)
      PythonWorkerUtils.writeUTF(compact(asked), out)
      out.flush()
      val blocks = in.readInt()
      if (blocks == SpecialLengths.PYTHON_EXCEPTION_THROWN) throw new Refusal(PythonWorkerUtils.readUTF(in))
      Array.fill(blocks)(PythonWorkerUtils.readBytes(in))
    } catch {
      case error: Throwable =>
        end()
        error match {
          case stopped: ClosedByInterruptException => throw stopped
          case lost: IOException => throw new IOException("Python worker exited unexpectedly (crashed)", lost)
          case other => throw other
        }
    }
  }

  /** Leave the process to the next who asks. */
  def release(): Unit = synchronized {
    if (open && !kept.compareAndSet(null, this)) end()
  }

  private def end(): Unit = if (open) {
    open = false
    try env.destroyPythonWorker(python.pythonExec, Module, Daemon, settings, worker)
    catch { case NonFatal(_) => } // it has ended by itself, or its daemon has
  }
}

object Conversation {
  private val Module = "pyspark_sawlog" // Spark starts none whose name begins otherwise
  val Daemon = "sawlog.spark.daemon"
  private val kept = new java.util.concurrent.atomic.AtomicReference[Conversation]

  /** A process that is there already, or a new one. */
  def begin(): Conversation = {
    val (env, settings) = (SparkEnv.get, environment())
    Option(kept.getAndSet(null)) match {
      case Some(one) if (one.env eq env) && one.settings == settings => one
      case other =>
        other.foreach(_.end())
        new Conversation(env, settings)
    }
  }

  /** One question that depends on none before it. A process that was kept may have been ended from outside. */
  def ask(verb: String, asked: JObject): Array[Array[Byte]] = {
    val known = begin()
    val (answer, answering) =
      try (known.ask(verb, asked), known)
      catch {
        case lost: IOException if !lost.isInstanceOf[ClosedByInterruptException] =>
          val other = begin()
          (other.ask(verb, asked), other)
      }
    answering.release()
    answer
  }

  /** A Python function. To make one, Spark starts a process that only tells Python's version: here, once for all. */
  def function(pickled: Array[Byte]): PythonFunction = new SimplePythonFunction(
    pickled, new java.util.HashMap(python.envVars), python.pythonIncludes, python.pythonExec, python.pythonVer,
    python.broadcastVars, python.accumulator)

  private lazy val python = PythonUtils.createPythonFunction(Array.emptyByteArray)

  private def artifacts = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)

  private def environment(): Map[String, String] = {
    val (conf, sql) = (SparkEnv.get.conf, SQLConf.get)
    val folders = SparkEnv.get.blockManager.diskBlockManager.localDirs.map(_.getPath).mkString(",")
    python.envVars.asScala.toMap ++ Map(
      "SPARK_LOCAL_DIRS" -> folders,
      "SPARK_AUTH_SOCKET_TIMEOUT" -> conf.get(PYTHON_AUTH_SOCKET_TIMEOUT).toString,
      "SPARK_BUFFER_SIZE" -> conf.get(BUFFER_SIZE).toString,
      "SPARK_JOB_ARTIFACT_UUID" -> artifacts.getOrElse("default")) ++
      (if (sql.pysparkHideTraceback) Some("SPARK_HIDE_TRACEBACK" -> "1") else None) ++
      (if (sql.pysparkSimplifiedTraceback) Some("SPARK_SIMPLIFIED_TRACEBACK" -> "1") else None) ++
      sql.pythonPlannerExecMemory.map(megabytes => "PYSPARK_PLANNER_MEMORY_MB" -> megabytes.toString)
  }
}
