"""A junk score that calibrates itself: a classifier that separates a dataset from corrupted copies of its images."""
