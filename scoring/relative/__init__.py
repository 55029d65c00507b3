"""Dataset-relative scores: a row compared with the others, from embeddings alone."""
