package org.apache.spark.sql.execution.python.sawlog

import java.io.{BufferedInputStream, BufferedOutputStream, DataInputStream, DataOutputStream, IOException}
import java.nio.channels.{Channels, ClosedByInterruptException}
import java.util.concurrent.{CompletableFuture, ExecutionException}
import java.util.concurrent.atomic.AtomicReference

import scala.jdk.CollectionConverters._
import scala.util.control.{ControlThrowable, NonFatal}

import org.apache.spark.{JobArtifactSet, SparkEnv, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonFunction, PythonUtils, PythonWorker}
import org.apache.spark.api.python.{PythonWorkerUtils, SimplePythonFunction, SpecialLengths}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
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
  out.writeInt(Question)
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
    if (open && !kept.compareAndSet(null, CompletableFuture.completedFuture(this))) end()
  }

  private def end(): Unit = if (open) {
    open = false
    try env.destroyPythonWorker(python.pythonExec, Module, Daemon, settings, worker)
    catch { case NonFatal(_) => } // it has ended by itself, or its daemon has
  }
}

object Conversation {
  val Module = "pyspark_sawlog" // Spark starts none whose name begins otherwise
  val Daemon = "sawlog.spark.daemon"
  private val Question = Int.MinValue // tasks begin with the number of their partition, or with one of small marks below 0
  private val kept = new AtomicReference[CompletableFuture[Conversation]]

  /** Have a process start while the session does something else. */
  def prepare(): Unit = {
    val (env, settings) = (SparkEnv.get, environment())
    take().foreach(_.end()) // that of a context before this one
    kept.set(CompletableFuture.supplyAsync(() => new Conversation(env, settings)))
  }

  /** A process that is there already, or a new one. */
  def begin(): Conversation = {
    val (env, settings) = (SparkEnv.get, environment())
    take() match {
      case Some(one) if (one.env eq env) && one.settings == settings => one
      case other =>
        other.foreach(_.end())
        new Conversation(env, settings)
    }
  }

  private def take(): Option[Conversation] = Option(kept.get).flatMap { one =>
    val started = try Some(one.get()) catch { case _: ExecutionException => None } // of which a new one says why
    if (kept.compareAndSet(one, null)) started else None
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

  /** That of the workers that read, unless memory is limited: then planning and reading are forked from one process. */
  private def environment(): Map[String, String] = {
    val functions = Seq((ChainedPythonFunctions(Seq(function(Array.emptyByteArray))), 0L))
    val runner = new Runner(functions, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, new StructType, "UTC", Map.empty, artifacts) {
      override def org$apache$spark$api$python$BasePythonRunner$$workerModule: String =
        throw new Environment(envVars.asScala.toMap)
    }
    val made: Map[String, String] =
      try { runner.compute(Iterator.empty, 0, TaskContext.empty()); Map.empty }
      catch { case environment: Environment => environment.variables }
    made ++ SQLConf.get.pythonPlannerExecMemory.map(megabytes => "PYSPARK_PLANNER_MEMORY_MB" -> megabytes.toString)
  }

  /** What a worker is started with, taken where Spark asks for the module of one: nothing else of Spark's says it. */
  private class Environment(val variables: Map[String, String]) extends ControlThrowable
}
