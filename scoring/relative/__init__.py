"""Dataset-relative scores: each row compared with the other rows, from embeddings alone."""
