"""Whether this tree still does what a release did: `make same`."""
