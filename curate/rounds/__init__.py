"""Labelling in rounds: batches for annotators, imported labels, and measured accuracy, in a folder."""
