"""Column files for sawlog."""
