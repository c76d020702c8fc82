"""What metadata says about collections: etcd dumps, backups, and schemas given by the user."""
