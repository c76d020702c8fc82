"""Hot loops for FiloDB's containers, records, maps and histograms. Importing any of them imports Numba."""
