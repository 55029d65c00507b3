"""Samples to judge for a filter with a guarantee, and the guarantees that follow from the verdicts."""
