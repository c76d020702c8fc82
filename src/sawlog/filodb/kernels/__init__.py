"""Hot loops for FiloDB's containers, records, maps and histograms."""
