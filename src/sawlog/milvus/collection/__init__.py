"""Collections: the segments below a root, and the rows that they hold together."""
