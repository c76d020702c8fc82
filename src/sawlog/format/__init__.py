"""The contract of a format, and what its parts are described with: scans, queries, options, damage, charts."""
