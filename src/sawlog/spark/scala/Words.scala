package org.apache.spark.sql.execution.python.sawlog

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/**
 * The short texts that a column has had, on the heap, each made once: what Spark looks up in a hash map it copies for
 * every row unless it is an array of its own. A column whose texts seldom come again is left alone as soon as that is seen.
 */
class Words {
  private val heads, tails = new Array[Long](Words.Places)
  private val known = Array.fill(Words.Places)(UTF8String.EMPTY_UTF8)
  private var asked, made = 0L

  /** Whether texts come again: of those that were asked for, an eighth at most had to be made. */
  def worth: Boolean = made <= Words.Places + (asked >>> 3)

  /** The text of 1 to `Longest` bytes at an address. */
  def at(address: Long, length: Int): UTF8String = {
    asked += 1
    var head, tail = 0L // loads that may overlap; with the length they say all that there is
    if (length >= 8) {
      head = Platform.getLong(null, address)
      tail = Platform.getLong(null, address + length - 8)
    } else if (length >= 4) {
      head = Platform.getInt(null, address)
      tail = Platform.getInt(null, address + length - 4)
    } else {
      head = Platform.getByte(null, address) << 8 | Platform.getByte(null, address + length / 2) & 0xff
      tail = Platform.getByte(null, address + length - 1)
    }
    val place = (((head ^ tail * 31 ^ length) * Words.Spread) >>> Words.Shift).toInt
    val found = known(place)
    if (heads(place) == head && tails(place) == tail && found.numBytes == length) found
    else make(address, length, place, head, tail)
  }

  private def make(address: Long, length: Int, place: Int, head: Long, tail: Long): UTF8String = {
    val bytes = new Array[Byte](length)
    Platform.copyMemory(null, address, bytes, Platform.BYTE_ARRAY_OFFSET, length)
    heads(place) = head
    tails(place) = tail
    known(place) = UTF8String.fromBytes(bytes)
    made += 1
    known(place)
  }
}

object Words {
  val Longest = 16
  private val Places = 1024
  private val Shift = 54 // leaves as many bits as places have
  private val Spread = 0x9e3779b97f4a7c15L
}
