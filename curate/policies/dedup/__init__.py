"""Deduplication: groups of equal or similar images, and the kept row of each."""
