"""From a folder to a reviewed dataset: the steps as a pipeline, run, and the outcome of every image."""
