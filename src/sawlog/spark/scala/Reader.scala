package org.apache.spark.sql.execution.python.sawlog

import java.lang.reflect.{InvocationTargetException, Method, Proxy}

import org.apache.arrow.vector.complex.StructVector
import org.apache.spark.{JobArtifactSet, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonFunction}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.{SparkSession => ClassicSession}
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.execution.datasources.v2.python.{PythonInputPartition, PythonStreamingInputPartition}
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{BinaryType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

/** Runs the Python function that reads a partition, in a worker of Spark's own. */
class ColumnarReaderFactory(
    function: PythonFunction, schema: StructType, zone: String, settings: Map[String, String], artifacts: Option[String])
    extends PartitionReaderFactory {
  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("rows are not read one by one")

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] = {
    val pickled = partition match {
      case one: PythonInputPartition => one.pickedPartition
      case one: PythonStreamingInputPartition => one.pickedPartition
    }
    val context = TaskContext.get()
    val runner = Runner(Seq((ChainedPythonFunctions(Seq(function)), 0L)), PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      ColumnarReaderFactory.Input, zone, settings, artifacts)
    val input = Iterator.single(Iterator.single(InternalRow(InternalRow(pickled))))
    val batches = runner.compute(input, context.partitionId(), context)
    if (schema.isEmpty) new CountReader(batches) else new ColumnReader(batches, schema.length)
  }
}

object ColumnarReaderFactory {
  private val Input = new StructType().add("struct", new StructType().add("partition", BinaryType))

  def apply(pickled: Array[Byte], schema: StructType): ColumnarReaderFactory = {
    val conf = SQLConf.get
    new ColumnarReaderFactory(Planner.function(pickled), schema, conf.sessionLocalTimeZone,
      ArrowPythonRunner.getPythonRunnerConfMap(conf), JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))
  }
}

/** The columns of the struct that a Python worker puts its batches into. They are valid until the next batch. */
class ColumnReader(batches: Iterator[ColumnarBatch], width: Int) extends PartitionReader[ColumnarBatch] {
  private val words = Array.fill(width)(new Words)

  override def next(): Boolean = batches.hasNext

  override def get(): ColumnarBatch = {
    val batch = batches.next()
    val struct = batch.column(0).asInstanceOf[ArrowColumnVector].getValueVector.asInstanceOf[StructVector]
    val rows = batch.numRows()
    val columns = Array.tabulate[ColumnVector](width)(index =>
      new LentColumn(struct.getChildByOrdinal(index), rows, words(index)))
    new ColumnarBatch(columns, rows)
  }

  override def close(): Unit = ()
}

/** Rows without columns, of which Python only says how many there are. */
class CountReader(batches: Iterator[ColumnarBatch]) extends PartitionReader[ColumnarBatch] {
  private var left = 0L

  override def next(): Boolean = {
    while (left == 0 && batches.hasNext) {
      val batch = batches.next()
      val counts = batch.column(0).asInstanceOf[ArrowColumnVector].getChild(0)
      left += (0 until batch.numRows()).map(counts.getLong).sum
    }
    left > 0
  }

  override def get(): ColumnarBatch = {
    val size = math.min(left, Int.MaxValue).toInt
    left -= size
    new ColumnarBatch(Array.empty[ColumnVector], size)
  }

  override def close(): Unit = ()
}

/** The Python source's own stream, of whichever Spark, but for the readers of its partitions. */
object ColumnarStream {
  def apply(
      rows: MicroBatchStream, schema: StructType, options: CaseInsensitiveStringMap): MicroBatchStream = {
    lazy val source = SparkSession.active.asInstanceOf[ClassicSession].sessionState.dataSourceManager
      .lookupDataSource(SawlogSource.Name)
    lazy val function = source.createReadInfoInPython(
      source.createDataSourceInPython(SawlogSource.Name, options, Some(schema)), schema, isStreaming = true).func
    val interfaces = Iterator.iterate[Class[_]](rows.getClass)(_.getSuperclass).takeWhile(_ != null)
      .flatMap(_.getInterfaces).filter(_.getName.startsWith("org.apache.spark.sql.connector.")).distinct.toArray
    Proxy.newProxyInstance(getClass.getClassLoader, interfaces, (_: Any, method: Method, arguments: Array[AnyRef]) =>
      if (method.getName == "createReaderFactory") ColumnarReaderFactory(function, schema)
      else try method.invoke(rows, arguments: _*)
      catch { case error: InvocationTargetException => throw error.getCause }).asInstanceOf[MicroBatchStream]
  }
}
