"""The sorted tables of LevelDB, RocksDB and Pebble."""
