package org.apache.spark.sql.execution.python.sawlog

import java.util.OptionalLong

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.QuotingUtils.quoteIfNeeded
import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.partitioning.{KeyGroupedPartitioning, Partitioning, UnknownPartitioning}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.VersionUtils

/** Takes from the optimizer which columns and rows are wanted. Spark checks all filters again. */
class SawlogScanBuilder(
    full: StructType,
    options: CaseInsensitiveStringMap,
    described: Option[Description])
    extends ScanBuilder with SupportsPushDownRequiredColumns with SupportsPushDownFilters with SupportsPushDownLimit {
  private var wanted = full
  private var enough: Option[Int] = None
  private var pushed = Array.empty[Filter]

  override def pruneColumns(required: StructType): Unit = {
    val known = full.fieldNames.toSet
    // Columns of the data are read whole, where Spark would do with parts of a struct.
    wanted = StructType(required.map(field => if (known(field.name)) full(field.name) else field))
  }

  override def pushFilters(filters: Array[Filter]): Array[Filter] = {
    val columns = full.fieldNames.map(name => quoteIfNeeded(name) -> name).toMap
    pushed = filters.filter(Filters.toJson(_, columns).isDefined)
    filters
  }

  override def pushedFilters(): Array[Filter] = pushed

  /** Of each task: Spark takes so many of what all of them deliver. */
  override def pushLimit(limit: Int): Boolean = {
    enough = Some(limit)
    true
  }

  override def build(): Scan = new SawlogScan(full, Side(wanted, pushed.toSeq, enough), options, described)
}

/** A read of some columns: as a batch, or micro-batch by micro-batch. */
class SawlogScan(
    full: StructType,
    needed: Side,
    options: CaseInsensitiveStringMap,
    described: Option[Description])
    extends Scan with Batch with SupportsReportStatistics with SupportsReportPartitioning {
  import needed.{pushed, wanted}
  private val side = Sides.plan(options, full, needed)
  private lazy val plan = side()
  private lazy val known = described.getOrElse(Planner.describe(options))

  override def readSchema(): StructType = wanted

  /** Format and path, for people: without what `without_secrets` of Python leaves out of URLs. */
  private def name: String = {
    val format = Option(options.get("format")).orElse(described.flatMap(_.format))
    val paths = Option(options.get("path")).orElse(Option(options.get("paths")))
    val shown = paths.map(_
      .replaceAll("\\b(?!(?:abfss?|wasbs?)://[^:/]*@)([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\\s?#'\"]*@", "$1***@")
      .replaceAll("(://[^\\s?'\"]*\\?)(?=[^\\s'\"]*=)[^\\s'\"]*", "$1***"))
    ("sawlog" +: (format ++ shown).toSeq).mkString(" ")
  }

  override def description(): String = {
    val filters = pushed.mkString("[", ", ", "]")
    val limit = needed.limit.map(rows => s"PushedLimit: $rows, ").getOrElse("")
    s"$name PushedFilters: $filters, ${limit}ReadSchema: ${wanted.simpleString}"
  }

  override def toBatch: Batch = this

  override def supportedCustomMetrics(): Array[CustomMetric] = Metrics.All

  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED

  override def planInputPartitions(): Array[InputPartition] =
    plan.partitions match {
      case Array(only) => Array(new OnlyPartition(only, plan.sizes.head))
      case several =>
        several.zip(plan.sizes).zipWithIndex.map { case ((task, bytes), index) => new SizedPartition(index, task, bytes) }
    }

  /**
   * Few bytes are one task, whose rows have the same key, the empty one: Spark does not shuffle them to count them, and
   * 4.2 not to group them either. Should there be more by now, they are several tasks, without keys.
   */
  override def outputPartitioning(): Partitioning = {
    val few = described.exists(_.bytes <= SawlogScan.WorthAShuffle)
    if (few && SawlogScan.Keyed) new KeyGroupedPartitioning(Array.empty, 1) else new UnknownPartitioning(0)
  }

  override def createReaderFactory(): PartitionReaderFactory = ColumnarReaderFactory(plan.function, wanted)

  override def toMicroBatchStream(checkpoint: String): MicroBatchStream =
    new SawlogStream(options, wanted, name)

  /**
   * The bytes of the files in proportion to the columns, as Spark reckons for its own files, and as many rows as an
   * index counts, or as they hold if values are as long as Spark takes them to be.
   */
  override def estimateStatistics(): Statistics = {
    val share = (8.0 + wanted.defaultSize) / (8.0 + full.defaultSize)
    new Statistics {
      override def sizeInBytes(): OptionalLong = OptionalLong.of((known.bytes * share).toLong)
      override def numRows(): OptionalLong = OptionalLong.of(known.rows.getOrElse(known.bytes / math.max(1, full.defaultSize)))
    }
  }

  private def identity = (options, full, needed)

  override def equals(other: Any): Boolean = other match {
    case that: SawlogScan => identity == that.identity
    case _ => false
  }

  override def hashCode(): Int = identity.hashCode
}

object SawlogScan {
  /** Bytes above which several cores are worth one; of no more, the planner makes one task. */
  private val WorthAShuffle = 4L << 20

  /** 4.0 regards no keys, and to 4.1 a union of columns has no more partitions than each of its sides (SPARK-59141). */
  private val Keyed = VersionUtils.minorVersion(SPARK_VERSION) >= 2
}

/** What a task reads, and of how many bytes; 0 where it ends when it has enough, and nobody knows. */
class SizedPartition(index: Int, task: Array[Byte], val bytes: Long) extends PythonInputPartition(index, task)

/** What the only task reads. */
class OnlyPartition(task: Array[Byte], bytes: Long) extends SizedPartition(0, task, bytes) with HasPartitionKey {
  override def partitionKey(): InternalRow = InternalRow.empty
}
