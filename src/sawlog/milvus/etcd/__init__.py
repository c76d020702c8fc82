"""An etcd whose server is down: its bbolt file, its write-ahead log, and the keys and values that both hold."""
