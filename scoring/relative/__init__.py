"""Scores fitted to a dataset: each row compared with the other rows, from embeddings alone; and the junk score."""
