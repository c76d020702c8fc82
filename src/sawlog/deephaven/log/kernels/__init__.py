"""Hot loops of this format: walking the chain of entries, decoding rows, laying rows out."""
