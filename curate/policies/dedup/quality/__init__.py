"""Recall and precision of a deduplication."""
