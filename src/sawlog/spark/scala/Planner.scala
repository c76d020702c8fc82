package org.apache.spark.sql.execution.python.sawlog

import java.util.Base64

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.{BinaryType, DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.json4s.{DefaultFormats, Formats, JArray, JInt, JNull, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.parse

/** What a path holds, by its headers. */
case class Description(schema: StructType, bytes: Long, rows: Option[Long], format: Option[String])

/** A table below a path, and the options that name it. */
case class Listed(namespace: String, name: String, options: Map[String, String])

/** The tables below a path, and the option that names a time, if they have earlier ones. */
case class Listing(tables: Seq[Listed], time: Option[String])

/** How columns are read: a pickled Python function, and one pickled partition per task, with the bytes that it reads. */
class Plan(val function: Array[Byte], val partitions: Array[Array[Byte]], val sizes: Seq[Long])

/** Asks a Python process what a path holds; see `sawlog/spark/planner.py`. */
object Planner {
  private val Found = new StructType().add("found", BinaryType)
  private implicit val formats: Formats = DefaultFormats

  def describe(options: CaseInsensitiveStringMap): Description = {
    val reply = json("describe", question(options))
    Description(
      DataType.fromJson((reply \ "schema").extract[String]).asInstanceOf[StructType],
      (reply \ "bytes").extract[Long],
      (reply \ "rows").extractOpt[Long],
      (reply \ "format").extractOpt[String])
  }

  /** Refuses a table whose columns are not those of its files or, where there are none, not those of a format. */
  def check(options: CaseInsensitiveStringMap, schema: StructType): Unit =
    ask("check", question(options, "schema" -> JString(schema.json)))

  def tables(options: CaseInsensitiveStringMap): Listing = json("tables", question(options)).extract[Listing]

  /** How the sides of a query are read that have the same options: of the same files, for they are listed once. */
  def plans(options: CaseInsensitiveStringMap, full: StructType, sides: Seq[Side]): Seq[Plan] = {
    val columns = full.fieldNames.map(name => Filters.quoted(name) -> name).toMap
    val asked = sides.map(side =>
      JObject(
        "wanted" -> JString(side.wanted.json),
        "filters" -> JArray(side.pushed.flatMap(Filters.toJson(_, columns)).toList),
        "limit" -> side.limit.map(JInt(_)).getOrElse(JNull)))
    val fields = Seq(
      "full" -> JString(full.json),
      "sides" -> JArray(asked.toList),
      "parallelism" -> JInt(SparkSession.active.sparkContext.defaultParallelism))
    val (again, found) = plans(question(options, fields: _*))
    if (!again) return found
    val looked = found.flatMap(look).map(bytes => JString(Base64.getEncoder.encodeToString(bytes)))
    plans(question(options, fields :+ ("looked" -> JArray(looked.toList)): _*))._2
  }

  /** Plans, and whether they are of a look into files, after which the same is to be asked with what it has found. */
  private def plans(asked: JObject): (Boolean, Seq[Plan]) = {
    val blocks = ask("plan", asked)
    val head = parse(new String(blocks.head, "UTF-8"))
    val sizes = (head \ "sizes").extract[List[List[Long]]]
    val starts = sizes.scanLeft(1)((start, tasks) => start + 1 + tasks.size)
    val found = sizes.zip(starts).map { case (tasks, start) =>
      new Plan(blocks(start), blocks.slice(start + 1, start + 1 + tasks.size), tasks)
    }
    ((head \ "look").extract[Boolean], found)
  }

  /** What tasks find in parts of files. */
  private def look(plan: Plan): Seq[Array[Byte]] = {
    val factory = ColumnarReaderFactory(plan.function, Found)
    SparkSession.active.sparkContext.parallelize(plan.partitions.toSeq, plan.partitions.length).flatMap { part =>
      val reader = factory.createColumnarReader(new PythonInputPartition(0, part))
      Iterator.continually(reader).takeWhile(_.next()).map(_.get().column(0).getBinary(0))
    }.collect().toSeq
  }

  /** Options of a read, and what else is asked of it. */
  def question(options: CaseInsensitiveStringMap, more: (String, JValue)*): JObject = {
    var fields = List.empty[(String, JValue)]
    options.forEach((key, value) => fields ::= key -> JString(value))
    JObject(("options" -> JObject(fields.sortBy(_._1))) :: more.toList)
  }

  private def json(verb: String, asked: JObject): JValue = parse(new String(ask(verb, asked).head, "UTF-8"))

  private def ask(verb: String, asked: JObject): Array[Array[Byte]] =
    try Conversation.ask(verb, asked)
    catch {
      case refusal: Refusal => throw QueryCompilationErrors.pythonDataSourceError("plan", "read", refusal.getMessage)
    }
}
