package org.apache.spark.sql.execution.python.sawlog

import java.time.Instant
import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.connector.catalog.{Identifier, NamespaceChange, SupportsNamespaces, Table}
import org.apache.spark.sql.connector.catalog.{TableCapability, TableCatalog, TableChange}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The tables below a path, to read: `spark.sql.catalog.NAME` is this class, and options of the read stand behind it. */
class SawlogCatalog extends TableCatalog with SupportsNamespaces {
  private var named: String = _
  private var settings: CaseInsensitiveStringMap = _

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    SawlogSource.misfit.foreach(wrong => throw new UnsupportedOperationException(wrong))
    named = name
    settings = options
  }

  override def name(): String = named

  override def listTables(namespace: Array[String]): Array[Identifier] = {
    val found = Planner.tables(settings).tables.filter(one => namespace.sameElements(Array(one.namespace)))
    if (found.isEmpty) throw new NoSuchNamespaceException(namespace)
    found.map(one => Identifier.of(namespace, one.name)).toArray
  }

  override def loadTable(ident: Identifier): Table = load(ident, None)

  /** As of a time of the format's own, which is a Milvus TSO. */
  override def loadTable(ident: Identifier, version: String): Table = load(ident, Some(version))

  /** As of microseconds since 1970. */
  override def loadTable(ident: Identifier, timestamp: Long): Table =
    load(ident, Some(Instant.EPOCH.plus(timestamp, java.time.temporal.ChronoUnit.MICROS).toString))

  private def load(ident: Identifier, time: Option[String]): Table = {
    val listing = Planner.tables(settings)
    val known = listing.tables.find(one => one.name == ident.name && ident.namespace.sameElements(Array(one.namespace)))
    val chosen = known.getOrElse(throw new NoSuchTableException(ident))
    val all = new util.HashMap[String, String](settings.asCaseSensitiveMap())
    chosen.options.foreach { case (key, value) => all.put(key, value) }
    time.foreach { moment =>
      val option = listing.time.getOrElse(throw new UnsupportedOperationException(s"$ident has no earlier times"))
      all.put(option, moment)
    }
    val options = new CaseInsensitiveStringMap(all)
    val description = Planner.describe(options)
    new SawlogTable(description.schema, options, Some(description)) {
      override def name(): String = ident.toString

      override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(TableCapability.BATCH_READ)
    }
  }

  override def listNamespaces(): Array[Array[String]] =
    Planner.tables(settings).tables.map(_.namespace).distinct.map(Array(_)).toArray

  override def listNamespaces(namespace: Array[String]): Array[Array[String]] =
    if (namespace.isEmpty) listNamespaces() else Array.empty

  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = {
    if (!listNamespaces().exists(_.sameElements(namespace))) throw new NoSuchNamespaceException(namespace)
    Map.empty[String, String].asJava
  }

  override def createTable(
      ident: Identifier, schema: StructType, partitions: Array[org.apache.spark.sql.connector.expressions.Transform],
      properties: util.Map[String, String]): Table = refuse()

  override def alterTable(ident: Identifier, changes: TableChange*): Table = refuse()

  override def dropTable(ident: Identifier): Boolean = refuse()

  override def renameTable(from: Identifier, to: Identifier): Unit = refuse()

  override def createNamespace(namespace: Array[String], metadata: util.Map[String, String]): Unit = refuse()

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit = refuse()

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean = refuse()

  private def refuse() = throw new UnsupportedOperationException(s"the catalog $named can only be read")
}
