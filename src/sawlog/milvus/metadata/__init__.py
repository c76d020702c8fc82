"""Metadata of collections: etcd dumps, backups, and schemas given by the user."""
