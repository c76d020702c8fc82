"""Deephaven's intraday binary logs: rows in checksummed entries behind a header that holds their schema."""
