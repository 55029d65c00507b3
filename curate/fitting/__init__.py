"""Scores fitted to a dataset: from a scored table to a model that scores this dataset and what comes after it."""
