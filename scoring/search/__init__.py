"""Numeric search: rows that are close by cosine, codes that differ in few bits, clusters, and nearest neighbours.

NumPy arrays in and out; nothing here knows what they represent.
"""

from scoring.search.cosine import CosineIndex
from scoring.search.graph import Graph, knn_graph
from scoring.search.hamming import HammingIndex
from scoring.search.kmeans import assign, spherical_kmeans
from scoring.search.links import Links, Recall

__all__ = ["CosineIndex", "Graph", "HammingIndex", "Links", "Recall", "assign", "knn_graph", "spherical_kmeans"]
