"""Formats of annotation tools and data loaders: write exports, read labels back; one module per format."""
