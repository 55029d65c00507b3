"""Distributions on the unit sphere."""
