package org.apache.spark.sql.execution.python.sawlog

import java.io.{DataInputStream, DataOutputStream}

import net.razorvine.pickle.Pickler
import org.apache.spark.api.python.{PythonFunction, PythonUtils, PythonWorkerUtils, SimplePythonFunction, SpecialLengths}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.execution.python.PythonPlannerRunner
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.json4s.{DefaultFormats, Formats, JArray, JInt, JObject, JString}
import org.json4s.jackson.JsonMethods.{compact, parse}

/** What a path holds, by its headers. */
case class Description(schema: StructType, bytes: Long)

/** A table below a path, and the options that name it. */
case class Listed(namespace: String, name: String, options: Map[String, String])

/** The tables below a path, and the option that names a time, if they have earlier ones. */
case class Listing(tables: Seq[Listed], time: Option[String])

/** How columns are read: a pickled Python function, and one pickled partition per task. */
class Plan(val function: Array[Byte], val partitions: Array[Array[Byte]])

/** Asks a Python process, which is Spark's own to start and to reuse; see `sawlog/spark/planner.py`. */
object Planner {
  private implicit val formats: Formats = DefaultFormats

  def describe(options: CaseInsensitiveStringMap): Description = {
    val reply = parse(new Question("describe", question(options))(readText).runInPython())
    Description(
      DataType.fromJson((reply \ "schema").extract[String]).asInstanceOf[StructType],
      (reply \ "bytes").extract[Long])
  }

  def tables(options: CaseInsensitiveStringMap): Listing =
    parse(new Question("tables", question(options))(readText).runInPython()).extract[Listing]

  def plan(
      options: CaseInsensitiveStringMap, full: StructType, wanted: StructType, pushed: Seq[Filter]): Plan = {
    val columns = full.fieldNames.map(name => Filters.quoted(name) -> name).toMap
    val asked = question(options) ~~
      ("full" -> JString(full.json)) ~~
      ("wanted" -> JString(wanted.json)) ~~
      ("parallelism" -> JInt(SparkSession.active.sparkContext.defaultParallelism)) ~~
      ("filters" -> JArray(pushed.flatMap(Filters.toJson(_, columns)).toList))
    new Question("plan", asked)(in => new Plan(readBytes(in), Array.fill(in.readInt())(readBytes(in)))).runInPython()
  }

  /** A Python function. To make one, Spark starts a process that only tells Python's version: here, once for all. */
  def function(pickled: Array[Byte]): PythonFunction = new SimplePythonFunction(
    pickled, new java.util.HashMap(known.envVars), known.pythonIncludes, known.pythonExec, known.pythonVer,
    known.broadcastVars, known.accumulator)

  private lazy val known = PythonUtils.createPythonFunction(Array.emptyByteArray)

  private implicit class Fields(one: JObject) {
    def ~~(field: (String, org.json4s.JValue)): JObject = JObject(one.obj :+ field)
  }

  private def question(options: CaseInsensitiveStringMap): JObject = {
    var fields = List.empty[(String, org.json4s.JValue)]
    options.forEach((key, value) => fields ::= key -> JString(value))
    JObject("options" -> JObject(fields.sortBy(_._1)))
  }

  private def readText(in: DataInputStream): String = new String(readBytes(in), "UTF-8")

  /** What Python has written with its length in front of it, or the error it has met instead. */
  private def readBytes(in: DataInputStream): Array[Byte] = {
    val length = in.readInt()
    if (length == SpecialLengths.PYTHON_EXCEPTION_THROWN) {
      throw QueryCompilationErrors.pythonDataSourceError("plan", "read", PythonWorkerUtils.readUTF(in))
    }
    PythonWorkerUtils.readBytes(length, in)
  }

  private class Question[T](verb: String, asked: JObject)(reply: DataInputStream => T)
      extends PythonPlannerRunner[T](function(Array.emptyByteArray)) {
    override val workerModule = "pyspark_sawlog" // Spark starts none whose name begins otherwise

    override protected def writeToPython(out: DataOutputStream, pickler: Pickler): Unit = {
      PythonWorkerUtils.writeUTF(verb, out)
      PythonWorkerUtils.writeUTF(compact(asked), out)
    }

    override protected def receiveFromPython(in: DataInputStream): T = reply(in)
  }
}
