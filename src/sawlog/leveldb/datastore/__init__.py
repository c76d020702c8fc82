"""Entities of Datastore and Firestore exports, whose data files are LevelDB logs."""
