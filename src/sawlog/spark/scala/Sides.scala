package org.apache.spark.sql.execution.python.sawlog

import java.util.WeakHashMap

import scala.collection.mutable

import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** What a scan needs: columns, rows that filters leave, and how many of them are enough. */
case class Side(wanted: StructType, pushed: Seq[Filter], limit: Option[Int])

/** The scans of one query that have the same options: the first that is executed plans all of them, of one listing. */
class Sides private (options: CaseInsensitiveStringMap, full: StructType) {
  private val sides = mutable.ArrayBuffer.empty[Side]
  private var planned = false
  private lazy val plans = Planner.plans(options, full, sides.toSeq)

  private def add(side: Side): Option[() => Plan] = synchronized {
    if (planned) return None
    sides += side
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
  def plan(options: CaseInsensitiveStringMap, full: StructType, side: Side): () => Plan =
    synchronized {
      val others = QueryPlanningTracker.get.map(known.computeIfAbsent(_, _ => mutable.Map.empty))
      val group = others.flatMap(_.get((options, full))).flatMap(_.add(side))
      group.getOrElse {
        val first = new Sides(options, full)
        others.foreach(_.put((options, full), first))
        first.add(side).get
      }
    }
}
