"""Rows of each cell, a class or a cluster, towards a distribution."""
