"""Measures of embeddings and certainties: pure functions, ranks in float64, no N x N matrix."""
