"""LevelDB and RocksDB logs: 32 KiB blocks of checksummed fragments."""
