"""Scores fitted to a dataset: from a scored table to a model that also scores new images."""
