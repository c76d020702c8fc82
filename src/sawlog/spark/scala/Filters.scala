package org.apache.spark.sql.execution.python.sawlog

import java.time.{Instant, LocalDate, LocalDateTime}
import java.util.Base64

import org.apache.spark.sql.catalyst.util.{DateTimeUtils, QuotingUtils}
import org.apache.spark.sql.sources._
import org.json4s.{JArray, JBool, JNull, JObject, JString, JValue}

/** Spark's filters as JSON, those that a source may leave rows out by: comparisons of a whole column with values. */
object Filters {
  def quoted(name: String): String = QuotingUtils.quoteIfNeeded(name)

  /** The filter as `{name, negated, column, values}`; `columns` are the known ones, by their quoted names. */
  def toJson(filter: Filter, columns: Map[String, String]): Option[JValue] = filter match {
    case Not(child @ (_: EqualTo | _: In)) => comparison(child, negated = true, columns)
    case other => comparison(other, negated = false, columns)
  }

  private def comparison(filter: Filter, negated: Boolean, columns: Map[String, String]): Option[JValue] = {
    val (attribute, given) = filter match {
      case EqualTo(one, value) => (one, Seq(value))
      case EqualNullSafe(one, value) => (one, Seq(value))
      case GreaterThan(one, value) => (one, Seq(value))
      case GreaterThanOrEqual(one, value) => (one, Seq(value))
      case LessThan(one, value) => (one, Seq(value))
      case LessThanOrEqual(one, value) => (one, Seq(value))
      case In(one, several) => (one, several.toSeq)
      case _ => return None
    }
    val values = given.map(toJson)
    for (column <- columns.get(attribute) if values.forall(_.isDefined)) yield JObject(
      "name" -> JString(filter.getClass.getSimpleName),
      "negated" -> JBool(negated),
      "column" -> JString(column),
      "values" -> JArray(values.flatten.toList))
  }

  /** A value and what kind it is of; nothing for one that Python would have to guess at. */
  private def toJson(value: Any): Option[JValue] = Option(value match {
    case null => JNull
    case one: Boolean => JObject("bool" -> JBool(one))
    case one @ (_: Byte | _: Short | _: Int | _: Long) => tagged("int", one)
    case one @ (_: Float | _: Double) => tagged("float", one)
    case one: java.math.BigDecimal => tagged("decimal", one.toPlainString)
    case one: String => tagged("str", one)
    case one: Array[Byte] => tagged("bytes", Base64.getEncoder.encodeToString(one))
    case one: LocalDate => tagged("date", one.toEpochDay)
    case one: java.sql.Date => tagged("date", DateTimeUtils.fromJavaDate(one))
    case one: Instant => tagged("instant", DateTimeUtils.instantToMicros(one))
    case one: java.sql.Timestamp => tagged("instant", DateTimeUtils.fromJavaTimestamp(one))
    case one: LocalDateTime => tagged("local", DateTimeUtils.localDateTimeToMicros(one))
    case _ => null
  })

  private def tagged(kind: String, value: Any): JValue = JObject(kind -> JString(value.toString))
}
