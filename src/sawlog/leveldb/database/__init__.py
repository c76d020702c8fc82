"""Whole databases of LevelDB and RocksDB: tables and logs together."""
