package org.apache.spark.sql.execution.python.sawlog

import org.apache.arrow.vector.{BaseFixedWidthVector, BaseVariableWidthVector, BitVector, NullVector, ValueVector, VarCharVector}
import org.apache.spark.sql.types.Decimal
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/**
 * A column of a batch from a Python worker, read straight from memory: `ArrowColumnVector` asks Arrow about each value,
 * and looks at its validity even where no value is null. What is neither of fixed width nor text is left to it.
 *
 * It stays open until the worker's stream is closed: Spark closes columns with each batch, and structs lose fields by it.
 */
class LentColumn(vector: ValueVector, rows: Int, words: Words) extends ColumnVector(LentColumn.arrow(vector).dataType()) {
  private val arrow = LentColumn.arrow(vector)
  private val nulls = vector.getNullCount
  private val validity = vector match {
    case _: NullVector => 0L
    case one => if (nulls > 0) one.getValidityBuffer.memoryAddress() else 0L
  }
  private val data = LentColumn.data(vector, rows)
  private val offsets = vector match {
    case _: BaseVariableWidthVector if rows > 0 => vector.getOffsetBuffer.memoryAddress()
    case _ => 0L
  }
  private val longest = vector match {
    case _: VarCharVector if rows > 0 => Words.Longest
    case _ => 0
  }

  override def close(): Unit = ()

  override def hasNull: Boolean = nulls > 0

  override def numNulls(): Int = nulls

  override def isNullAt(row: Int): Boolean = nulls > 0 && (validity == 0 || !bit(validity, row))

  override def getBoolean(row: Int): Boolean = bit(data, row)

  override def getByte(row: Int): Byte = Platform.getByte(null, data + row)

  override def getShort(row: Int): Short = Platform.getShort(null, data + (row.toLong << 1))

  override def getInt(row: Int): Int = Platform.getInt(null, data + (row.toLong << 2))

  override def getLong(row: Int): Long = Platform.getLong(null, data + (row.toLong << 3))

  override def getFloat(row: Int): Float = Platform.getFloat(null, data + (row.toLong << 2))

  override def getDouble(row: Int): Double = Platform.getDouble(null, data + (row.toLong << 3))

  override def getUTF8String(row: Int): UTF8String =
    if (offsets == 0 || isNullAt(row)) arrow.getUTF8String(row)
    else {
      val start = Platform.getInt(null, offsets + (row.toLong << 2))
      val length = Platform.getInt(null, offsets + (row.toLong << 2) + 4) - start
      if (length <= longest && length > 0 && words.worth) words.at(data + start, length)
      else UTF8String.fromAddress(null, data + start, length)
    }

  override def getBinary(row: Int): Array[Byte] = arrow.getBinary(row)

  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = arrow.getDecimal(row, precision, scale)

  override def getArray(row: Int): ColumnarArray = arrow.getArray(row)

  override def getMap(row: Int): ColumnarMap = arrow.getMap(row)

  override def getChild(ordinal: Int): ColumnVector = arrow.getChild(ordinal)

  private def bit(start: Long, row: Int): Boolean = ((Platform.getByte(null, start + (row >> 3)) >> (row & 7)) & 1) != 0
}

object LentColumn {
  private def arrow(vector: ValueVector) = new ArrowColumnVector(vector)

  /** Where the values begin, if there are as many as the batch has rows. */
  private def data(vector: ValueVector, rows: Int): Long = vector match {
    case _ if rows == 0 => 0L
    case one: BitVector => checked(one, (rows + 7L) / 8)
    case one: BaseFixedWidthVector => checked(one, rows.toLong * one.getTypeWidth)
    case one: BaseVariableWidthVector =>
      require(one.getOffsetBuffer.capacity() >= 4L * (rows + 1), s"column ${one.getName}: offsets are missing")
      checked(one, one.getOffsetBuffer.getInt(4L * rows))
    case _ => 0L
  }

  private def checked(vector: ValueVector, bytes: Long): Long = {
    val buffer = vector.getDataBuffer
    require(buffer.capacity() >= bytes, s"column ${vector.getName}: $bytes bytes expected, ${buffer.capacity()} found")
    buffer.memoryAddress()
  }
}
