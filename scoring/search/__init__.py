"""Numeric search: cosine thresholds, Hamming distances, clusters, and nearest neighbours.

NumPy arrays in and out; nothing here knows what they represent.
"""
