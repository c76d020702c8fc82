"""Groups of rows by the value of a column: the metadata in which they lie, read, written and checked."""
