package org.apache.spark.sql.execution.python.sawlog

import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, BatchedPythonArrowInput}
import org.apache.spark.sql.types.StructType

object Runner {
  def apply(
      functions: Seq[(ChainedPythonFunctions, Long)], kind: Int, input: StructType, zone: String,
      settings: Map[String, String], artifacts: Option[String]): ArrowPythonRunner =
    new ArrowPythonRunner(functions, kind, Array(Array(0)), input, zone, false, settings,
      PythonCustomMetric.pythonMetrics, artifacts, None, None) with BatchedPythonArrowInput
}
