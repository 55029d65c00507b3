"""Comparison of two scored tables: what differs, by how much, and whether the difference is significant."""
