"""Sources of images: rows in a fixed order, and access to their bytes."""
