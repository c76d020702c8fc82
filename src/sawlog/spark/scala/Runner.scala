package org.apache.spark.sql.execution.python.sawlog

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.internal.config.Python.{PYTHON_DAEMON_MODULE, PYTHON_USE_DAEMON, PYTHON_WORKER_MODULE}
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, BatchedPythonArrowInput}
import org.apache.spark.sql.types.StructType

class Runner(
    functions: Seq[(ChainedPythonFunctions, Long)], kind: Int, input: StructType, zone: String,
    settings: Map[String, String], artifacts: Option[String])
    extends ArrowPythonRunner(functions, kind, Array(Array(0)), input, zone, false, settings,
      PythonCustomMetric.pythonMetrics, artifacts, None) with BatchedPythonArrowInput {
  // Private in Spark's class, where they have these names once compiled. Without a daemon, workers are Spark's own.
  def org$apache$spark$api$python$BasePythonRunner$$daemonModule: String =
    conf.get(PYTHON_DAEMON_MODULE).getOrElse(Conversation.Daemon)

  def org$apache$spark$api$python$BasePythonRunner$$workerModule: String =
    conf.get(PYTHON_WORKER_MODULE).getOrElse(if (conf.get(PYTHON_USE_DAEMON)) Conversation.Module else "pyspark.worker")

  private def conf = SparkEnv.get.conf
}
