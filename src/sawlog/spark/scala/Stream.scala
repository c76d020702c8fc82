package org.apache.spark.sql.execution.python.sawlog

import java.util
import java.util.Optional

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset, ReadAllAvailable, ReadLimit}
import org.apache.spark.sql.connector.read.streaming.{ReportsSourceMetrics, SupportsTriggerAvailableNow}
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.json4s.{JBool, JInt, JNothing, JNull, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.parse

/** A position in the files of a stream, as Python writes it: that of the Python source, whose checkpoints these are. */
class Position(text: String) extends Offset {
  override def json(): String = text
}

/** Micro-batches that a Python process plans, as that of the Python source does, and that are read as columns. */
class SawlogStream(options: CaseInsensitiveStringMap, schema: StructType, name: String)
    extends MicroBatchStream with SupportsTriggerAvailableNow with ReportsSourceMetrics {
  private val python = Conversation.begin()
  private val function = ask("stream", Planner.question(options, "schema" -> JString(schema.json))).head

  /** In the progress of a query, the same at each start. */
  override def toString: String = name

  override def initialOffset(): Offset = position("initial")

  override def getDefaultReadLimit(): ReadLimit = SawlogStream.Limits

  override def prepareForTriggerAvailableNow(): Unit = ask("available_now", JObject())

  override def latestOffset(): Offset = throw new UnsupportedOperationException("without a limit")

  override def latestOffset(start: Offset, limit: ReadLimit): Offset =
    position("latest", "start" -> parse(start.json), "limited" -> JBool(!limit.isInstanceOf[ReadAllAvailable]))

  override def reportLatestOffset(): Offset = Option(text("behind")).filter(_ != "null").map(new Position(_)).orNull

  /** What was not read yet when the files were last looked at. */
  override def metrics(latestConsumed: Optional[Offset]): util.Map[String, String] = {
    val behind = parse(text("behind")) \ "behind"
    val found = Seq("bytesBehind" -> behind \ "bytes", "filesBehind" -> behind \ "files")
    found.collect { case (name, JInt(value)) => name -> value.toString }.toMap.asJava
  }

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    ask("partitions", JObject("start" -> parse(start.json), "end" -> parse(end.json))).zipWithIndex
      .map { case (bytes, index) => new PythonInputPartition(index, bytes): InputPartition }

  override def createReaderFactory(): PartitionReaderFactory = ColumnarReaderFactory(function, schema)

  override def deserializeOffset(json: String): Offset = new Position(json)

  override def commit(end: Offset): Unit = ()

  override def stop(): Unit = python.release()

  private def position(verb: String, asked: (String, JValue)*): Offset = new Position(text(verb, asked: _*))

  private def text(verb: String, asked: (String, JValue)*): String =
    new String(ask(verb, JObject(asked: _*)).head, "UTF-8")

  private def ask(verb: String, asked: JObject): Array[Array[Byte]] =
    try python.ask(verb, asked)
    catch {
      case refusal: Refusal => throw QueryExecutionErrors.pythonStreamingDataSourceRuntimeError(verb, refusal.getMessage)
    }
}

object SawlogStream {
  /** Those that the options of the source set: Python keeps to them. */
  private object Limits extends ReadLimit
}
