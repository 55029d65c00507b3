"""Dataset-relative scores: how a row compares with the others, from embeddings alone."""
