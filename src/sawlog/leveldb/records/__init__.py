"""What the records of LevelDB logs hold: write batches, version edits, Datastore entities."""
