"""To annotation tools, loaders and back: one file a format."""
