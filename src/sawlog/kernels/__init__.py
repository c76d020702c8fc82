"""Hot loops shared by the formats. Importing this package imports Numba: do it when the first batch is decoded."""
