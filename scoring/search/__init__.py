"""Numeric search: rows that are close by cosine, codes that differ in few bits, clusters, and nearest neighbours.

NumPy arrays in and out; nothing here knows what they represent.
"""
