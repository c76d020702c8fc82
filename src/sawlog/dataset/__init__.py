"""Datasets, and what can be done with them: read, verify, repair, index, watch."""
