"""The Parquet payloads of events, and bare Parquet files."""
