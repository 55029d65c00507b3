"""Labelling in rounds, as files: batches sent out, labels imported, and measured accuracy."""
