// What programs share that draw databases of RocksDB's from seeds.

#pragma once

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "rocksdb/db.h"

using namespace rocksdb;

static void check(const Status& status) {
  if (!status.ok()) {
    fprintf(stderr, "%s\n", status.ToString().c_str());
    exit(1);
  }
}

struct Dice {
  std::mt19937 engine;
  int below(int limit) { return static_cast<int>(engine() % static_cast<unsigned>(limit)); }
  std::string bytes(int size) {
    std::string drawn(size, '\0');
    for (char& one : drawn) one = static_cast<char>(below(256));
    return drawn;
  }
};

static std::string key_of(int number) {
  char text[16];
  snprintf(text, sizeof text, "key%05d", number);
  return text;
}

static void print(const std::string& text) {
  for (unsigned char one : text) printf("%02x", one);
}
