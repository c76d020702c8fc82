"""TFRecord files for sawlog."""
