"""Search by example: queries, searched rows, and results with the certainty of both images."""
