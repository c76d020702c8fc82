"""Hot loops shared by the formats, and how kernels are declared, compiled ahead of time, loaded and called."""
