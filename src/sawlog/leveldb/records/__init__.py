"""The records of LevelDB logs: write batches, version edits, Datastore entities."""
