// Writes a database of RocksDB's that is drawn from a seed, and prints what it holds: family, key and value in
// hexadecimal, a row a line. The process ends without closing it.
//
//     drawn DIRECTORY CASE SEED
//
// CASE is what the database has: cuckoo, encrypted, stacked, ingested, paths, reverse or tracked.

#include <cstdio>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "rocksdb/comparator.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env_encryption.h"
#include "rocksdb/sst_file_writer.h"
#include "rocksdb/table.h"
#include "utilities/blob_db/blob_db.h"

#include "dice.h"

// A table of ascending keys that the database takes in.
static void ingest(DB* db, ColumnFamilyHandle* family, const Options& options, const std::string& path, Dice& dice) {
  SstFileWriter writer(EnvOptions(), options, family);
  check(writer.Open(path));
  int low = dice.below(100);
  for (int number = low; number < low + 3 + dice.below(20); number++) {
    if (dice.below(5) == 0) {
      check(writer.Delete(key_of(number)));
    } else {
      check(writer.Put(key_of(number), dice.bytes(dice.below(60))));
    }
  }
  if (dice.below(2)) check(writer.DeleteRange(key_of(low + 40), key_of(low + 45)));
  check(writer.Finish());
  IngestExternalFileOptions how;
  how.move_files = dice.below(2);
  how.write_global_seqno = dice.below(2);
  check(db->IngestExternalFile(family, {path}, how));
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const std::string directory = arguments[1], kind = arguments[2], home = directory + "/db";
  Dice dice{std::mt19937(static_cast<unsigned>(atoi(arguments[3])))};
  Options options;
  options.create_if_missing = options.create_missing_column_families = true;
  options.disable_auto_compactions = true;
  std::unique_ptr<Env> encrypted;
  const bool fixed = kind == "cuckoo";
  if (fixed) {
    CuckooTableOptions table;
    table.identity_as_first_hash = false;
    options.table_factory.reset(NewCuckooTableFactory(table));
    options.allow_mmap_reads = true;
  }
  if (kind == "encrypted") {
    std::shared_ptr<EncryptionProvider> provider;
    check(EncryptionProvider::CreateFromString(ConfigOptions(), "CTR://test", &provider));
    encrypted.reset(NewEncryptedEnv(Env::Default(), provider));
    options.env = encrypted.get();
  }
  if (kind == "tracked") options.track_and_verify_wals_in_manifest = true;
  ColumnFamilyOptions first(options), second(options);
  if (kind == "reverse") second.comparator = ReverseBytewiseComparator();
  if (kind == "paths") {
    options.db_paths = {{directory + "/tables0", 20000}, {directory + "/tables1", 1 << 30}};
    first.cf_paths = options.db_paths;
    second.cf_paths = {{directory + "/family0", 10000}, {directory + "/family1", 1 << 30}};
  }
  DB* db = nullptr;
  std::unique_ptr<DB> owned;
  std::vector<ColumnFamilyHandle*> families;
  if (kind == "stacked") {
    blob_db::BlobDBOptions blobs;
    blobs.ttl_range_secs = 1 + dice.below(3600);
    blobs.blob_file_size = 1 << (8 + dice.below(8));
    blob_db::BlobDB* stacked = nullptr;
    check(blob_db::BlobDB::Open(options, blobs, home, &stacked));
    db = stacked;
    families = {db->DefaultColumnFamily()};
  } else {
    std::vector<ColumnFamilyDescriptor> named = {{"default", first}, {"zweite", second}};
    check(DB::Open(options, home, named, &families, &owned));
    db = owned.get();
  }
  const int steps = 20 + dice.below(300), keys = 5 + dice.below(120);
  for (int step = 0; step < steps; step++) {
    ColumnFamilyHandle* family = families[dice.below(static_cast<int>(families.size()))];
    const std::string key = key_of(dice.below(keys));
    const int draw = dice.below(40);
    if (draw < 6) {
      check(db->Delete(WriteOptions(), family, key));
    } else if (draw == 6 && kind == "ingested") {
      ingest(db, family, options, directory + "/taken" + std::to_string(step) + ".sst", dice);
    } else if (draw == 6 && kind == "reverse") {
      const int other = dice.below(keys);
      const bool ascends = family->GetName() == "default";
      std::string low = key, high = key_of(other);
      if ((low < high) != ascends) std::swap(low, high);
      check(db->DeleteRange(WriteOptions(), family, low, high));
    } else if (draw == 7) {
      check(db->Flush(FlushOptions(), family));
    } else if (draw == 8 && dice.below(3) == 0 && kind != "stacked") {
      check(db->CompactRange(CompactRangeOptions(), family, nullptr, nullptr));
    } else if (kind == "stacked" && draw < 25) {
      auto* stacked = static_cast<blob_db::BlobDB*>(db);
      check(stacked->PutWithTTL(WriteOptions(), key, dice.bytes(dice.below(60)), 100000 + dice.below(100000)));
    } else {
      check(db->Put(WriteOptions(), family, key, dice.bytes(fixed ? 12 : dice.below(60))));
    }
  }
  if (fixed) {
    for (ColumnFamilyHandle* family : families) check(db->Flush(FlushOptions(), family));
  }
  for (size_t number = 0; number < families.size(); number++) {
    for (int key = 0; key < 200; key++) {
      std::string value;
      Status status = db->Get(ReadOptions(), families[number], key_of(key), &value);
      if (status.IsNotFound()) continue;
      check(status);
      printf("%zu\t", number);
      print(key_of(key));
      printf("\t");
      print(value);
      printf("\n");
    }
  }
  fflush(stdout);
  _exit(0);
}
