// Writes a database of RocksDB's whose keys have timestamps, drawn from a seed, and prints what it holds at the newest
// time: family, key, timestamp and value in hexadecimal, a row a line. The process ends without closing it.
//
//     stamped DIRECTORY CASE SEED
//
// CASE says which keys have timestamps: persisted, stripped (never in tables), enabled (stripped, and only from a time
// on) or disabled (stripped, and only up to a time). The second family's may have none at all. With held as CASE nothing
// is written: SEED is the number of families, the first one first, whose keys have timestamps in tables, too.

#include <cstdint>
#include <memory>
#include <unistd.h>
#include <vector>

#include "rocksdb/comparator.h"
#include "rocksdb/merge_operator.h"
#include "rocksdb/options.h"

#include "dice.h"

static std::string stamp_of(uint64_t time) {
  std::string stamp;
  for (int place = 0; place < 8; place++) stamp += static_cast<char>(time >> 8 * place & 255);
  return stamp;
}

// Appends operands, so that what is delivered as operands has the same value.
struct Appending : public AssociativeMergeOperator {
  bool Merge(const Slice&, const Slice* before, const Slice& value, std::string* merged, Logger*) const override {
    *merged = (before ? before->ToString() : "") + value.ToString();
    return true;
  }
  const char* Name() const override { return "appending"; }
};

struct Session {
  std::unique_ptr<DB> db;
  std::vector<ColumnFamilyHandle*> families;
  std::vector<bool> stamped;
};

static Session open_session(const std::string& home, const Options& options, const std::vector<bool>& stamped) {
  Session session;
  session.stamped = stamped;
  std::vector<ColumnFamilyDescriptor> named = {{"default", options}, {"zweite", options}};
  for (size_t number = 0; number < named.size(); number++) {
    if (stamped[number]) named[number].options.comparator = BytewiseComparatorWithU64Ts();
  }
  check(DB::Open(options, home, named, &session.families, &session.db));
  return session;
}

static void write(Session& session, Dice& dice, uint64_t& time, bool persisted, bool ranges) {
  const int steps = 20 + dice.below(200), keys = 5 + dice.below(120);
  DB* db = session.db.get();
  for (int step = 0; step < steps; step++) {
    const size_t number = static_cast<size_t>(dice.below(2));
    ColumnFamilyHandle* family = session.families[number];
    const bool stamped = session.stamped[number];
    time += static_cast<uint64_t>(dice.below(3) == 0);
    const std::string key = key_of(dice.below(keys)), value = dice.bytes(dice.below(60)), stamp = stamp_of(time);
    const int first = dice.below(keys), draw = dice.below(40);
    const std::string begin = key_of(first), end = key_of(first + 1 + dice.below(20));
    if (draw < 6) {
      check(stamped ? db->Delete(WriteOptions(), family, key, stamp) : db->Delete(WriteOptions(), family, key));
    } else if (draw < 9 && ranges) {
      check(stamped ? db->DeleteRange(WriteOptions(), family, begin, end, stamp)
                    : db->DeleteRange(WriteOptions(), family, begin, end));
    } else if (draw == 12) {
      check(stamped ? db->Merge(WriteOptions(), family, key, stamp, value) : db->Merge(WriteOptions(), family, key, value));
    } else if (draw == 9) {
      check(db->Flush(FlushOptions(), family));
    } else if (draw == 10 && dice.below(3) == 0) {
      check(db->CompactRange(CompactRangeOptions(), family, nullptr, nullptr));
    } else if (draw == 11 && stamped && persisted && dice.below(4) == 0) {
      check(db->IncreaseFullHistoryTsLow(family, stamp));
    } else {
      check(stamped ? db->Put(WriteOptions(), family, key, stamp, value) : db->Put(WriteOptions(), family, key, value));
    }
  }
}

// Get's timestamp of a merged value is not always that of its newest operand; an iterator's is.
static void answer(Session& session) {
  const std::string newest(8, '\xff');
  const Slice bound(newest);
  for (size_t number = 0; number < session.families.size(); number++) {
    const bool stamped = session.stamped[number];
    ReadOptions reading;
    if (stamped) reading.timestamp = &bound;
    ColumnFamilyHandle* family = session.families[number];
    std::unique_ptr<Iterator> place(session.db->NewIterator(reading, family));
    place->SeekToFirst();
    for (int key = 0; key < 200; key++) {
      std::string value, stamp;
      Status status = session.db->Get(reading, family, key_of(key), &value);
      if (status.IsNotFound()) continue;
      check(status);
      if (!place->Valid() || place->key() != key_of(key) || place->value() != value) {
        fprintf(stderr, "%s: two answers\n", key_of(key).c_str());
        exit(1);
      }
      if (stamped) stamp = place->timestamp().ToString();
      place->Next();
      printf("%zu\t", number);
      print(key_of(key) + stamp);
      printf("\t");
      print(value);
      printf("\n");
    }
    check(place->status());
  }
  fflush(stdout);
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const std::string home = std::string(arguments[1]) + "/db", kind = arguments[2];
  Dice dice{std::mt19937(static_cast<unsigned>(atoi(arguments[3])))};
  Options options;
  if (kind == "held") {
    const int stamped = atoi(arguments[3]);
    options.merge_operator = std::make_shared<Appending>();
    Session session = open_session(home, options, {stamped > 0, stamped > 1});
    answer(session);
    _exit(0);
  }
  options.create_if_missing = options.create_missing_column_families = true;
  options.merge_operator = std::make_shared<Appending>();
  if (dice.below(2)) {  // several tables in several levels
    options.write_buffer_size = 4096;
    options.target_file_size_base = 1024;
    options.max_bytes_for_level_base = 2048;
    options.level0_file_num_compaction_trigger = 2;
  } else {
    options.disable_auto_compactions = true;
  }
  options.allow_concurrent_memtable_write = false;
  options.persist_user_defined_timestamps = kind == "persisted";
  options.avoid_flush_during_recovery = dice.below(2);
  options.avoid_flush_during_shutdown = dice.below(2);
  options.recycle_log_file_num = static_cast<size_t>(dice.below(2));
  if (options.recycle_log_file_num) options.avoid_flush_during_recovery = false;
  const bool changes = kind == "enabled" || kind == "disabled";
  options.enable_blob_files = dice.below(3) == 0 && !changes;  // RocksDB does not find these values again
  options.min_blob_size = 20;
  const bool ranges = dice.below(3) > 0, second = dice.below(3) > 0;
  const std::vector<bool> all = {true, second}, none = {false, false};
  uint64_t time = 1;
  if (changes) {
    Session session = open_session(home, options, kind == "enabled" ? none : all);
    write(session, dice, time, false, ranges);
    for (ColumnFamilyHandle* family : session.families) check(session.db->DestroyColumnFamilyHandle(family));
    check(session.db->Close());
  }
  Session session = open_session(home, options, kind == "disabled" ? none : all);
  if (!changes || dice.below(6)) write(session, dice, time, kind == "persisted", ranges);
  answer(session);
  _exit(0);
}
