"""Deephaven's column files: a directory per location, a few files per column."""
