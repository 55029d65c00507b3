"""Exports to annotation tools and loaders, and the way back: one file for each format."""
