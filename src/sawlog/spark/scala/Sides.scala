package org.apache.spark.sql.execution.python.sawlog

import java.util.WeakHashMap

import scala.collection.mutable

import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The scans of one query that have the same options: the first that is executed plans all of them, of one listing. */
class Sides private (options: CaseInsensitiveStringMap, full: StructType) {
  private val sides = mutable.ArrayBuffer.empty[(StructType, Seq[Filter])]
  private var planned = false
  private lazy val plans = Planner.plans(options, full, sides.toSeq)

  private def add(wanted: StructType, pushed: Seq[Filter]): Option[() => Plan] = synchronized {
    if (planned) return None
    sides += ((wanted, pushed))
    val index = sides.size - 1
    Some(() => plan(index))
  }

  private def plan(index: Int): Plan = synchronized {
    planned = true
    plans(index)
  }
}

object Sides {
  private val known = new WeakHashMap[QueryPlanningTracker, mutable.Map[(CaseInsensitiveStringMap, StructType), Sides]]

  /** How a scan is read, to be asked for when the query is executed. */
  def plan(
      options: CaseInsensitiveStringMap, full: StructType, wanted: StructType, pushed: Seq[Filter]): () => Plan =
    synchronized {
      val others = QueryPlanningTracker.get.map(known.computeIfAbsent(_, _ => mutable.Map.empty))
      val group = others.flatMap(_.get((options, full))).flatMap(_.add(wanted, pushed))
      group.getOrElse {
        val first = new Sides(options, full)
        others.foreach(_.put((options, full), first))
        first.add(wanted, pushed).get
      }
    }
}
