"""Following files that grow: what has been read, what is new, and how much of it the next micro-batch takes."""
