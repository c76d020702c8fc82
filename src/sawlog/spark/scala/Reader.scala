package org.apache.spark.sql.execution.python.sawlog

import java.io.File
import java.util.UUID

import scala.util.control.NonFatal

import org.apache.arrow.vector.complex.StructVector
import org.apache.hadoop.fs.FileSystem
import org.apache.spark.{JobArtifactSet, SparkEnv, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonFunction}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{BinaryType, StringType, StructType}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.util.Utils

/** Runs the Python function that reads a partition, in a worker of Spark's own. */
class ColumnarReaderFactory(
    function: PythonFunction, schema: StructType, zone: String, settings: Map[String, String], artifacts: Option[String])
    extends PartitionReaderFactory {
  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("rows are not read one by one")

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] = {
    val pickled = partition.asInstanceOf[PythonInputPartition].pickedPartition
    val context = TaskContext.get()
    val bytes = partition match {
      case sized: SizedPartition => sized.bytes
      case _ => 0L
    }
    val runner = new Runner(Seq((ChainedPythonFunctions(Seq(function)), 0L)), PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      ColumnarReaderFactory.Input, zone, settings, artifacts)
    val stop = new File(Utils.getLocalDir(SparkEnv.get.conf), s"sawlog-stop-${UUID.randomUUID()}")
    val row = InternalRow(InternalRow(pickled, UTF8String.fromString(stop.getPath)))
    val input = Iterator.single(Iterator.single(row))
    val metrics = new File(stop.getPath + Metrics.Suffix)
    val batches = new Batches(runner.compute(input, context.partitionId(), context), bytes, metrics)
    context.addTaskCompletionListener[Unit](_ => metrics.delete())
    // Before what the runner does then: it ends a worker whose answer was not read to its end.
    context.addTaskCompletionListener[Unit](ended => if (!ended.isFailed() && !ended.isInterrupted()) batches.end(stop))
    if (schema.isEmpty) new CountReader(batches) else new ColumnReader(batches, schema.length)
  }
}

object ColumnarReaderFactory {
  private val Input = new StructType().add("struct", new StructType().add("partition", BinaryType).add("stop", StringType))

  def apply(pickled: Array[Byte], schema: StructType): ColumnarReaderFactory = {
    val conf = SQLConf.get
    new ColumnarReaderFactory(Conversation.function(pickled), schema, conf.sessionLocalTimeZone,
      ArrowPythonRunner.getPythonRunnerConfMap(conf), JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))
  }
}

/** What a worker delivers, of so many bytes. */
class Batches(worker: Iterator[ColumnarBatch], bytes: Long, file: File) extends Iterator[ColumnarBatch] {
  private var more = true
  private lazy val atEnd = Metrics.read(file)
  private var unsaid = bytes

  override def hasNext: Boolean = {
    if (unsaid > 0) { // as the input of a task Spark shows what its thread has read of Hadoop's file systems
      FileSystem.getStatistics(SawlogSource.Name, classOf[LocalFiles]).incrementBytesRead(unsaid)
      unsaid = 0
    }
    more = more && worker.hasNext
    more
  }

  override def next(): ColumnarBatch = worker.next()

  /** What the worker says of the task, once it has ended. */
  def metrics: Array[CustomTaskMetric] = if (more) Array.empty else atEnd

  /** Has a worker stop that has more to deliver, by a file that it looks for, and reads what is under way. */
  def end(stop: File): Unit = if (more) {
    try {
      stop.createNewFile()
      while (hasNext) next()
    } catch { case NonFatal(_) => } // of what nobody wants any more, errors neither; the worker is ended then
    finally stop.delete()
  }
}

/** The columns of the struct that a Python worker puts its batches into. They are valid until the next batch. */
class ColumnReader(batches: Batches, width: Int) extends PartitionReader[ColumnarBatch] {
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

  override def currentMetricsValues(): Array[CustomTaskMetric] = batches.metrics

  override def close(): Unit = ()
}

/** Rows without columns, of which Python only says how many there are. */
class CountReader(batches: Batches) extends PartitionReader[ColumnarBatch] {
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

  override def currentMetricsValues(): Array[CustomTaskMetric] = batches.metrics

  override def close(): Unit = ()
}
