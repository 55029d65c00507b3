"""From a folder to a reviewed dataset: the steps as a pipeline, run, and what became of every image."""
