package org.apache.spark.sql.execution.python.sawlog

import java.util

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.connector.catalog.{MetadataColumn, SupportsMetadataColumns, SupportsRead, SupportsWrite}
import org.apache.spark.sql.connector.catalog.{Table, TableCapability, TableCatalog, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, LogicalWriteInfoImpl, WriteBuilder}
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonTable}
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.{DataType, LongType, StringType, StructType, TimestampType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.slf4j.LoggerFactory

/** The data source `sawlog`: planned and read in Python, its Arrow batches handed to Spark as columns. */
class SawlogSource extends TableProvider with DataSourceRegister {
  private var described: Option[Description] = None
  private var made = false

  override def shortName(): String = if (SawlogSource.misfit.isEmpty) SawlogSource.Name else SawlogSource.Misfit

  override def supportsExternalMetadata(): Boolean = true

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = {
    described = Some(Planner.describe(SawlogSource.options(options)))
    if (described.get.schema.isEmpty) throw new IllegalArgumentException(
      s"${options.get("path")}: no files, whose columns a table could have; name the table's columns")
    described.get.schema
  }

  /** Of tables in Spark's catalog, those only are asked for it that CREATE TABLE is making. */
  override def inferPartitioning(options: CaseInsensitiveStringMap): Array[Transform] = {
    made = options.containsKey(TableCatalog.PROP_PROVIDER)
    Array.empty
  }

  override def getTable(
      schema: StructType, partitioning: Array[Transform], properties: util.Map[String, String]): Table = {
    val options = SawlogSource.options(new CaseInsensitiveStringMap(properties), partitioning)
    if (made) Planner.check(options, schema)
    new SawlogTable(schema, options, described, partitioning, SawlogSource.shown(properties))
  }
}

object SawlogSource {
  val Name = "sawlog"
  private val Misfit = "sawlog-of-another-spark"

  /** What is wrong where the jar is not that of the Spark that runs: its classes call internal ones of Spark's. */
  lazy val misfit: Option[String] = {
    val made = Option(classOf[SawlogSource].getPackage.getImplementationVersion)
    val wrong = made.filter(minor(_) != minor(SPARK_VERSION)).map(version =>
      s"the jar sawlog-spark is not used: it was made for Spark $version, and this is Spark $SPARK_VERSION;" +
        " `sawlog spark-jar` says where the right one is")
    wrong.foreach(LoggerFactory.getLogger(Name).warn(_))
    wrong
  }

  private def minor(version: String) = version.split('.').take(2).toSeq

  /** Among options, the names of those that a table in Spark's catalog has: Python takes what is for a read or a write. */
  private val OfTable = "sawlog.table"

  /** What a table that CREATE TABLE made has for the source, without what the catalog keeps for itself. */
  def options(
      properties: CaseInsensitiveStringMap, partitioning: Array[Transform] = Array.empty): CaseInsensitiveStringMap = {
    if (!properties.containsKey(TableCatalog.PROP_PROVIDER)) return properties
    val kept = new util.HashMap[String, String]
    properties.asCaseSensitiveMap().forEach { (key, value) =>
      if (key.startsWith(TableCatalog.OPTION_PREFIX)) kept.put(key.stripPrefix(TableCatalog.OPTION_PREFIX), value)
      else if (key.equalsIgnoreCase("path")) kept.putIfAbsent(key, value)
    }
    partitioning.find(_.name != "identity").foreach(other =>
      throw new UnsupportedOperationException(s"a table of sawlog is partitioned by columns, not by ${other.describe}"))
    val columns = partitioning.flatMap(_.references).map(_.fieldNames.mkString("."))
    if (columns.nonEmpty) kept.put("partitionBy", columns.mkString(","))
    kept.put(OfTable, String.join(",", new CaseInsensitiveStringMap(kept).keySet()))
    new CaseInsensitiveStringMap(kept)
  }

  /** What a table says of itself, but for how its storage is reached. */
  private def shown(properties: util.Map[String, String]): util.Map[String, String] = {
    if (!properties.containsKey(TableCatalog.PROP_PROVIDER)) return util.Map.of()
    val all = new util.HashMap[String, String](properties)
    all.keySet().removeIf(key =>
      key == "path" || key.toLowerCase(util.Locale.ROOT).stripPrefix(TableCatalog.OPTION_PREFIX).startsWith("storage"))
    all
  }

  /** Options of a table, and on top of them those of a query. */
  def merged(settings: CaseInsensitiveStringMap, options: CaseInsensitiveStringMap): CaseInsensitiveStringMap = {
    val all = new util.HashMap[String, String](settings.asCaseSensitiveMap())
    options.asCaseSensitiveMap().forEach { (key, value) =>
      all.keySet().removeIf(_.equalsIgnoreCase(key))
      all.put(key, value)
    }
    new CaseInsensitiveStringMap(all)
  }
}

/** What a path holds. Sinks are those of the Python source. */
class SawlogTable(
    override val schema: StructType,
    settings: CaseInsensitiveStringMap,
    described: Option[Description],
    override val partitioning: Array[Transform] = Array.empty,
    override val properties: util.Map[String, String] = util.Map.of())
    extends Table with SupportsRead with SupportsWrite with SupportsMetadataColumns {
  private lazy val python = {
    val source = new PythonDataSourceV2
    source.setShortName(SawlogSource.Name)
    new PythonTable(source, SawlogSource.Name, schema)
  }

  override def name(): String = SawlogSource.Name

  override def metadataColumns(): Array[MetadataColumn] = Array(SawlogTable.Metadata)

  override def capabilities(): util.Set[TableCapability] = python.capabilities()

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new SawlogScanBuilder(schema, SawlogSource.merged(settings, options), described)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    val options = SawlogSource.merged(settings, info.options)
    python.newWriteBuilder(
      LogicalWriteInfoImpl(info.queryId, info.schema, options, info.rowIdSchema, info.metadataSchema))
  }
}

object SawlogTable {
  /** The hidden column by which Spark's own file sources tell of the file that a row came from. */
  private object Metadata extends MetadataColumn {
    override def name(): String = "_metadata"

    override def dataType(): DataType = new StructType()
      .add("file_path", StringType)
      .add("file_name", StringType)
      .add("file_size", LongType)
      .add("file_block_start", LongType)
      .add("file_block_length", LongType)
      .add("file_modification_time", TimestampType)
  }
}
