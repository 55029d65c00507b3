"""Measurement of recall and precision of a deduplication."""
