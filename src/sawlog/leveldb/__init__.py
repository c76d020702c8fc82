"""LevelDB, RocksDB and Pebble: three formats of one system.

- `log`: 32 KiB blocks of checksummed fragments, the format `leveldb_log`.
- `records`: what records of logs hold, write batches and version edits.
- `table`: sorted tables, the format `leveldb_table`.
- `database`: tables and logs merged, the format `leveldb_database`.
- `applications`: what applications put into keys and values, as views of databases.
- `datastore`: entities of Datastore and Firestore exports, whose data files are LevelDB's logs.
"""
