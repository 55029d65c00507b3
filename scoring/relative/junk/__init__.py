"""A self-calibrating junk score: a classifier that separates a dataset from corrupted copies of its images."""
