"""How good embeddings and certainties are: pure functions, ranks in float64, no N x N matrix."""
