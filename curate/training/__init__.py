"""Training commands: from options to a recipe, and from a source to a dataset."""
