"""Shared parts of Deephaven's logs and column files: text in its charsets, schema files."""
