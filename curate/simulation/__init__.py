"""Rounds replayed where every label is known."""
