"""Scores that look at the dataset: how a row stands among the others, from embeddings alone."""
