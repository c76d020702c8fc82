"""What Deephaven's logs and column files share: text in its charsets, schema files."""
