"""What train and cache share: from options to a recipe, from a source to a dataset."""
