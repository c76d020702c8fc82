"""Exactly once, proven: writer, driver and workers are killed at random while a log is streamed into every sink."""
