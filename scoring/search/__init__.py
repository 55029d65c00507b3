"""Numeric search on NumPy arrays: cosine thresholds, Hamming distances, clusters, and nearest neighbours."""
