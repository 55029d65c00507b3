"""Formats of annotation tools and data loaders: writing exports, reading labels back; one module a format."""
