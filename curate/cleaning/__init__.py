"""From a folder to a reviewed dataset: builds a pipeline, runs it, and reports the outcome of every image."""
