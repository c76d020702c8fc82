package org.apache.spark.sql.execution.python.sawlog

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, BatchedPythonArrowInput}
import org.apache.spark.sql.types.StructType

class Runner(
    functions: Seq[(ChainedPythonFunctions, Long)], kind: Int, input: StructType, zone: String,
    settings: Map[String, String], artifacts: Option[String])
    extends ArrowPythonRunner(functions, kind, Array(Array(0)), input, zone, false, settings,
      PythonCustomMetric.pythonMetrics, artifacts, None) with BatchedPythonArrowInput {
  /** What workers are forked from; private in Spark's class, where it has this name once compiled. */
  def org$apache$spark$api$python$BasePythonRunner$$daemonModule: String =
    SparkEnv.get.conf.get("spark.python.daemon.module", Conversation.Daemon)
}
