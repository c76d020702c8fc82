package org.apache.spark.sql.execution.python.sawlog

import java.io.{File, FileInputStream}
import java.util.Properties

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomSumMetric, CustomTaskMetric}

/** What Spark's UI shows of a scan besides rows, summed over its tasks. */
abstract class ScanMetric(override val name: String, override val description: String) extends CustomSumMetric

class DamagedRanges extends ScanMetric("damagedRanges", "damaged ranges")
class DamagedBytes extends ScanMetric("damagedBytes", "damaged bytes")
class SkippedRows extends ScanMetric("skippedRows", "rows left out besides")
class StoreRequests extends ScanMetric("storeRequests", "requests to the store")

object Metrics {
  val All: Array[CustomMetric] = Array(new DamagedRanges, new DamagedBytes, new SkippedRows, new StoreRequests)
  val Suffix = ".metrics"

  /** What the worker of a task has written down at its end: a line per metric; none where it was ended before. */
  def read(file: File): Array[CustomTaskMetric] = {
    val numbers = new Properties
    if (file.exists()) Using.resource(new FileInputStream(file))(numbers.load)
    numbers.asScala.toArray.map { case (metric, number) =>
      new CustomTaskMetric {
        override def name: String = metric
        override def value: Long = number.toLong
      }
    }
  }
}
