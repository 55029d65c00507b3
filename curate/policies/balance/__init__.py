"""Balancing of cells (classes or clusters) towards a target distribution."""
