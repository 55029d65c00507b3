"""Scores that look at the heap: how a row stands among the others, from embeddings alone."""
